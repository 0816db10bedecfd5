// linnet convert: a checkpoint becomes a model file.
#include "formats/convert/convert.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "core/chat_template.h"
#include "core/tokenizer.h"
#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/output.h"
#include "formats/gguf/checkpoint.h"
#include "formats/huggingface/checkpoint.h"
#include "formats/linnet/model_file.h"
#include "formats/linnet/tokenizer_section.h"
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

// Name of a .gguf file in a folder without config.json; empty for none.
std::string FindLoneGguf(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::path(folder) / "config.json", error)) return "";
  std::string found;  // the first by name, as folders have no order
  for (std::filesystem::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
    const std::string name = file->path().filename().string();
    if (file->path().extension() == ".gguf" && (found.empty() || name < found)) found = name;
  }
  return found;
}

Result<std::unique_ptr<formats::Checkpoint>> OpenSource(const std::string& path, Diagnostic* diagnostic) {
  if (!platform::IsFolder(path)) return formats::OpenGgufCheckpoint(path, diagnostic);
  const std::string gguf = FindLoneGguf(path);
  if (!gguf.empty()) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "no checkpoint in the directory",
                "%s: expected a config.json, found none but %s: give that file", path.c_str(), gguf.c_str());
  }
  return formats::OpenHuggingFaceCheckpoint(path, diagnostic);
}

// No file of the source may be replaced while it is read.
Status CheckOutput(const Options& options, const formats::Checkpoint& source, Diagnostic* diagnostic) {
  const std::filesystem::path path(options.source);
  const std::filesystem::path folder = platform::IsFolder(options.source) ? path : path.parent_path();
  for (const auto& file : source.files()) {
    LINNET_RETURN_IF_ERROR(CheckOutputIsNot((folder / file.name).string(), options.output, diagnostic));
  }
  return Status::Ok();
}

// Ids work with any tokenizer and template; text does not, and whoever converts should know now.
void WarnOfText(const std::string& path) {
  Diagnostic reason;
  const auto file = formats::ModelFile::Open(path, &reason);
  if (!file.ok()) return;
  auto view = formats::ReadTokenizerSection(file->tokenizer_bytes(), &reason);
  if (view.ok() && view->kind == TokenizerKind::kNone) return;
  std::string bos, eos;
  Status status = view.status();
  if (view.ok()) {
    const auto tokenizer = Tokenizer::Create(std::move(view).value(), &reason);
    status = tokenizer.status();
    if (tokenizer.ok()) {
      bos = tokenizer->TokenText(tokenizer->bos_id());
      eos = tokenizer->TokenText(tokenizer->eos_id());
    }
  }
  if (!status.ok()) {
    Note("convert: warning: the tokenizer does not work, only ids do (--ids): %s: %s", status.message(), reason.text());
  }
  if (file->chat_template().empty()) return;
  Diagnostic template_reason;
  const auto chat_template = ChatTemplate::Parse(file->chat_template(), bos, eos, &template_reason);
  if (chat_template.ok()) return;
  Note("convert: warning: the chat template does not work, so chat will not: %s: %s", chat_template.status().message(),
       template_reason.text());
}

Status Run(const Options& options, Diagnostic* diagnostic) {
  // From here on Ctrl-C ends the conversion through its progress function, which leaves no file behind.
  platform::InterruptScope interrupt;
  LINNET_RETURN_IF_ERROR(CheckOutputIsNot(options.source, options.output, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const std::unique_ptr<formats::Checkpoint> source, OpenSource(options.source, diagnostic));
  LINNET_RETURN_IF_ERROR(CheckOutput(options, *source, diagnostic));
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
  WarnOfText(options.output);
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
