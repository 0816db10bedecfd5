#include "examples/cli/conversion.h"

#include "examples/cli/output.h"
#include "platforms/clock.h"
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

/// How long a stage will go on, from its own speed so far.
class TimeLeft {
 public:
  std::string Text(const formats::ConvertProgress& state) {
    if (state.stage != stage_) {
      stage_ = state.stage;
      start_ns_ = platform::MonotonicNanoseconds();
      start_done_ = state.elements_done;
    }
    const double seconds = platform::SecondsSince(start_ns_);
    if (seconds < kSettleSeconds || state.elements_done <= start_done_) return "";
    const double left = seconds * static_cast<double>(state.elements_total - state.elements_done) /
                        static_cast<double>(state.elements_done - start_done_);
    if (left < 60.0) return ", less than a minute left";
    return ", about " + std::to_string(static_cast<int>(left / 60.0 + 0.5)) + " min left";
  }

 private:
  static constexpr double kSettleSeconds = 5.0;
  std::string stage_;
  uint64_t start_ns_ = 0, start_done_ = 0;
};

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
    std::string detail = state.stage;
    if (state.tensors_total > 0) {
      detail += ", tensor " + std::to_string(state.tensors_done) + " of " + std::to_string(state.tensors_total);
    }
    progress.Update(state.elements_done, state.elements_total, detail + left.Text(state));
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
