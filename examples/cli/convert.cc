// linnet convert: a checkpoint becomes a model file.
#include "formats/convert/convert.h"

#include <memory>
#include <optional>
#include <string>

#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/output.h"
#include "formats/gguf/checkpoint.h"
#include "formats/huggingface/checkpoint.h"
#include "platforms/console.h"
#include "platforms/files.h"

namespace linnet::cli {
namespace {

struct Options {
  std::string source, output;
  std::string rotate = "on";
  formats::ConvertOptions convert;
  bool json = false;
};

Result<std::unique_ptr<formats::Checkpoint>> OpenSource(const std::string& path, Diagnostic* diagnostic) {
  if (platform::IsFolder(path)) return formats::OpenHuggingFaceCheckpoint(path, diagnostic);
  return formats::OpenGgufCheckpoint(path, diagnostic);
}

Status Run(const Options& options, Diagnostic* diagnostic) {
  // From here on Ctrl-C ends the conversion through its progress function, which leaves no file behind.
  platform::InterruptScope interrupt;
  LINNET_ASSIGN_OR_RETURN(const std::unique_ptr<formats::Checkpoint> source, OpenSource(options.source, diagnostic));
  formats::ConvertReport report;
  Status status;
  {
    Progress progress("converting");
    const auto update = [&progress](const formats::ConvertProgress& state) {
      progress.Update(state.elements_done, state.elements_total,
                      std::string(state.stage) + ", tensor " + std::to_string(state.tensors_done) + " of " +
                          std::to_string(state.tensors_total));
      return !platform::InterruptScope::Requested();
    };
    status = formats::Convert(*source, options.convert, options.output, update, &report, diagnostic);
  }
  if (status.code() == StatusCode::kCancelled) {
    return Fail(diagnostic, StatusCode::kCancelled, "interrupted", "%s: nothing was written", options.output.c_str());
  }
  LINNET_RETURN_IF_ERROR(status);
  if (options.json) {
    Print(formats::ConvertReportJson(report) + "\n");
    return Status::Ok();
  }
  std::string text = formats::ConvertReportText(report);
  if (!text.empty() && text.back() != '\n') text += '\n';
  Print(text);
  return Status::Ok();
}

void AddTypeOption(CLI::App* command, const std::string& name, std::optional<DType>* type, const std::string& what) {
  const auto parse = [name, type](const std::string& text) {
    if (formats::ParseWeightType(text, type)) return;
    throw CLI::ValidationError(name, "expected auto, f32, f16, bf16, q8 or q4, found \"" + text + "\"");
  };
  command->add_option_function<std::string>(name, parse, what)->type_name("TYPE");
}

}  // namespace

void AddConvert(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = commands.Add("convert", "Make a model file from a Hugging Face directory or a .gguf file",
                                   "linnet convert SmolLM2-135M-Instruct -o model.linnet --weights q8");
  command->add_option("source", options->source, "A directory with config.json and safetensors, or a .gguf file")
      ->required()
      ->type_name("SRC");
  command->add_option("-o,--output", options->output, "The model file to write")->required()->type_name("FILE");
  AddTypeOption(command, "--weights", &options->convert.weights,
                "Linear layers: auto, f32, f16, bf16, q8 or q4 (auto: q8 below 500M parameters or from 4-bit sources, "
                "else q4)");
  command->add_option("--block", options->convert.block_size, "q4: weights that share a scale (default: 32)")
      ->check(CLI::IsMember({32, 64, 128}));
  command->add_option("--rotate", options->rotate, "Rotate the inputs of quantized layers (default: on)")
      ->check(CLI::IsMember({"on", "off"}));
  AddTypeOption(command, "--embedding", &options->convert.embedding,
                "Embedding table (auto: q8 where weights are quantized)");
  AddTypeOption(command, "--head", &options->convert.head, "Output matrix (auto: q8 where weights are quantized)");
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options](Diagnostic* diagnostic) {
    options->convert.rotate = options->rotate == "on";
    return Run(*options, diagnostic);
  });
}

}  // namespace linnet::cli
