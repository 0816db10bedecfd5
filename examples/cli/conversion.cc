#include "examples/cli/conversion.h"

#include "examples/cli/output.h"
#include "platforms/console.h"

namespace linnet::cli {
namespace {

void AddTypeOption(CLI::App* command, const std::string& name, std::optional<DType>* type, const std::string& what) {
  const auto parse = [name, type](const std::string& text) {
    if (formats::ParseWeightType(text, type)) return;
    throw CLI::ValidationError(name, "expected auto, f32, f16, bf16, q8 or q4, found \"" + text + "\"");
  };
  command->add_option_function<std::string>(name, parse, what)->type_name("TYPE");
}

}  // namespace

void AddConvertOptions(CLI::App* command, formats::ConvertOptions* options) {
  AddTypeOption(command, "--weights", &options->weights,
                "Linear layers: auto, f32, f16, bf16, q8 or q4 (auto: q8 below 500M parameters or from 4-bit sources, "
                "else q4; q4 keeps the integers of Q4_0 and of symmetric GPTQ and AWQ as they are)");
  command->add_option("--block", options->block_size, "q4: weights that share a scale (default: 32)")
      ->check(CLI::IsMember({32, 64, 128}));
  command
      ->add_option_function<std::string>(
          "--rotate", [options](const std::string& text) { options->rotate = text == "on"; },
          "Rotate the inputs of quantized layers (default: on)")
      ->check(CLI::IsMember({"on", "off"}));
  AddTypeOption(command, "--embedding", &options->embedding, "Embedding table (auto: q8 where weights are quantized)");
  AddTypeOption(command, "--head", &options->head, "Output matrix (auto: q8 where weights are quantized)");
}

Status RunConversion(const formats::Checkpoint& source, const formats::ConvertOptions& options,
                     const std::string& output, const char* label, formats::ConvertReport* report,
                     Diagnostic* diagnostic) {
  // From here on Ctrl-C ends the conversion through its progress function.
  platform::InterruptScope interrupt;
  Progress progress(label);
  TimeLeft left;
  const auto update = [&progress, &left](const formats::ConvertProgress& state) {
    std::string detail = state.stage + left.Text(state.stage, state.elements_done, state.elements_total);
    if (state.tensors_total > 0) {
      detail += ", tensor " + std::to_string(state.tensors_done) + " of " + std::to_string(state.tensors_total);
    }
    progress.Update(state.elements_done, state.elements_total, detail);
    return !platform::InterruptScope::Requested();
  };
  const Status status = formats::Convert(source, options, output, update, report, diagnostic);
  if (status.code() != StatusCode::kCancelled) return status;
  return Fail(diagnostic, StatusCode::kCancelled, "interrupted", "%s: nothing was written", output.c_str());
}

void PrintConvertReport(const formats::ConvertReport& report, bool json) {
  std::string text = json ? formats::ConvertReportJson(report) : formats::ConvertReportText(report);
  if (!text.empty() && text.back() != '\n') text += '\n';
  Print(text);
}

}  // namespace linnet::cli
