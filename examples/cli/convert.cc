// linnet convert: a checkpoint becomes a model file.
#include "formats/convert/convert.h"

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "core/chat_template.h"
#include "core/tokenizer.h"
#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/conversion.h"
#include "examples/cli/output.h"
#include "formats/gguf/checkpoint.h"
#include "formats/huggingface/checkpoint.h"
#include "formats/linnet/model_file.h"
#include "formats/linnet/tokenizer_section.h"
#include "platforms/files.h"

namespace linnet::cli {
namespace {

struct Options {
  std::string source, output;
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
  LINNET_RETURN_IF_ERROR(CheckOutputIsNot(options.source, options.output, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const std::unique_ptr<formats::Checkpoint> source, OpenSource(options.source, diagnostic));
  LINNET_RETURN_IF_ERROR(CheckOutput(options, *source, diagnostic));
  formats::ConvertReport report;
  LINNET_RETURN_IF_ERROR(RunConversion(*source, options.convert, options.output, "converting", &report, diagnostic));
  WarnOfText(options.output);
  PrintConvertReport(report, options.json);
  return Status::Ok();
}

}  // namespace

void AddConvert(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = commands.Add("convert", "Make a model file from a Hugging Face directory or a .gguf file",
                                   "linnet convert SmolLM2-135M-Instruct -o model.linnet --weights q8");
  command
      ->add_option("source", options->source,
                   "A directory with config.json and safetensors (also of GPTQ or AWQ), or a .gguf file")
      ->required()
      ->type_name("SRC");
  command->add_option("-o,--output", options->output, "The model file to write")->required()->type_name("FILE");
  AddConvertOptions(command, &options->convert);
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
