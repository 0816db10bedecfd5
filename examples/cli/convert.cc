// linnet convert: a checkpoint becomes a model file.
#include "formats/convert/convert.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "core/chat_template.h"
#include "core/part_runner.h"
#include "core/tokenizer.h"
#include "examples/cli/args.h"
#include "examples/cli/calibration_text.h"
#include "examples/cli/command.h"
#include "examples/cli/conversion.h"
#include "examples/cli/output.h"
#include "formats/gguf/checkpoint.h"
#include "formats/huggingface/checkpoint.h"
#include "formats/linnet/model_file.h"
#include "formats/linnet/tokenizer_section.h"
#include "platforms/console.h"
#include "platforms/cpu.h"
#include "platforms/files.h"

namespace linnet::cli {
namespace {

struct Options {
  std::string source, output;
  formats::ConvertOptions convert;
  CalibrationTextOptions calibration;  // source empty: none
  float damping = 0.01f;
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

// The text and what runs the model on it, while the conversion lasts.
struct Calibration {
  std::optional<ops::ThreadPool> pool;
  std::optional<ExecutorPartRunner> runner;
  formats::CalibrationOptions options;

  // Where no block was finished.
  void RemoveEmptyFolder() const {
    std::error_code ignored;
    if (!options.resume_folder.empty()) std::filesystem::remove(options.resume_folder, ignored);
  }
  // Only what a conversion has put there; anything else stays, and the folder with it.
  void RemoveResumeFolder() const {
    if (options.resume_folder.empty()) return;
    std::error_code ignored;
    for (const auto& file : std::filesystem::directory_iterator(options.resume_folder, ignored)) {
      const std::string name = file.path().filename().string();
      if (name == "choices" || name.starts_with("block-")) std::filesystem::remove(file.path(), ignored);
    }
    std::filesystem::remove(options.resume_folder, ignored);
  }
};

Status PrepareCalibration(Options& options, const formats::Checkpoint& source, Calibration* calibration,
                          Diagnostic* diagnostic) {
  CalibrationTextOptions& text = options.calibration;
  const bool budget = options.convert.bits > 0.0 || options.convert.file_bytes > 0;
  if (text.source.empty() && !budget) return Status::Ok();
  if (text.source.empty()) text.source = kSelfText;  // losses are measured on a text, of whatever kind
  if (text.threads == 0) text.threads = platform::DefaultThreadCount();
  text.scratch_path = options.output + ".writer";
  LINNET_ASSIGN_OR_RETURN(calibration->options.ids, MakeCalibrationText(source, &text, diagnostic));
  LINNET_ASSIGN_OR_RETURN(calibration->pool, ops::ThreadPool::Create(text.threads));
  calibration->runner.emplace(*calibration->pool);
  calibration->options.runner = &*calibration->runner;
  calibration->options.pool = &*calibration->pool;
  calibration->options.window = text.window;
  calibration->options.damping = options.damping;
  calibration->options.resume_folder = options.output + ".resume";
  LINNET_RETURN_IF_ERROR(platform::MakeFolders(calibration->options.resume_folder, diagnostic));
  options.convert.calibration = &calibration->options;
  return Status::Ok();
}

Status Run(Options& options, Diagnostic* diagnostic) {
  platform::InterruptScope interrupt;  // the calibration text is made before the conversion's own begins
  LINNET_RETURN_IF_ERROR(CheckOutputIsNot(options.source, options.output, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const std::unique_ptr<formats::Checkpoint> source, OpenSource(options.source, diagnostic));
  LINNET_RETURN_IF_ERROR(CheckOutput(options, *source, diagnostic));
  Calibration calibration;
  LINNET_RETURN_IF_ERROR(PrepareCalibration(options, *source, &calibration, diagnostic));
  formats::ConvertReport report;
  const Status status = RunConversion(*source, options.convert, options.output, "converting", &report, diagnostic);
  if (!status.ok()) calibration.RemoveEmptyFolder();
  if (status.code() == StatusCode::kCancelled && platform::IsFolder(calibration.options.resume_folder)) {
    return Fail(diagnostic, StatusCode::kCancelled, "interrupted",
                "%s: nothing was written; the same command goes on from where it was", options.output.c_str());
  }
  LINNET_RETURN_IF_ERROR(status);
  calibration.RemoveResumeFolder();
  WarnOfText(options.output);
  PrintConvertReport(report, options.json);
  return Status::Ok();
}

// "300M", "1.5G", "98362432": bytes, with decimal suffixes.
bool ParseSize(const std::string& text, uint64_t* bytes) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  double unit = 1.0;
  switch (*end) {
    case 'k':
    case 'K':
      unit = 1e3;
      break;
    case 'M':
      unit = 1e6;
      break;
    case 'G':
      unit = 1e9;
      break;
    default:
      break;
  }
  if (unit != 1.0) ++end;
  const bool valid = end != text.c_str() && *end == '\0' && value * unit >= 1.0 && value * unit <= 1e15;
  if (valid) *bytes = static_cast<uint64_t>(value * unit);
  return valid;
}

void AddCalibrationOptions(CLI::App* command, Options* options) {
  command
      ->add_option(
          "--calibrate", options->calibration.source,
          "Fit the rounding to the inputs that this text gives every layer; self: a text that the model writes")
      ->type_name("TEXT|self");
  command
      ->add_option("--calibrate-windows", options->calibration.windows,
                   "Windows of the text to use (default: 20, of self 40)")
      ->check(CLI::Range(1u, 4096u));
  command
      ->add_option("--damping", options->damping,
                   "Calibration: part of the inputs' mean square that is added to every direction (default: 0.01)")
      ->check(FiniteRange(1e-6, 1.0));
  command->add_option("--seed", options->calibration.seed, "Seed of the text that the model writes (default: 0)");
  AddThreadsOption(command, &options->calibration.threads);
}

void AddBudgetOptions(CLI::App* command, formats::ConvertOptions* convert) {
  CLI::Option* bits =
      command
          ->add_option("--bits", convert->bits,
                       "Choose every tensor's type by its measured loss, such that all take this many bits per weight")
          ->check(FiniteRange(4.0, 16.0));
  const auto parse = [convert](const std::string& text) {
    if (ParseSize(text, &convert->file_bytes)) return;
    throw CLI::ValidationError("--size", "expected a number of bytes such as 300M or 1.5G, found \"" + text + "\"");
  };
  CLI::Option* size =
      command->add_option_function<std::string>("--size", parse, "The same, by the file's size")->type_name("BYTES");
  bits->excludes(size);
  for (CLI::Option* budget : {bits, size}) {
    budget->excludes(command->get_option("--weights"));
    budget->excludes(command->get_option("--block"));
  }
}

}  // namespace

void AddConvert(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      commands.Add("convert", "Make a model file from a Hugging Face directory or a .gguf file",
                   "linnet convert SmolLM2-135M-Instruct -o model.linnet --weights q4 --calibrate self");
  command
      ->add_option("source", options->source,
                   "A directory with config.json and safetensors (also of GPTQ or AWQ), or a .gguf file")
      ->required()
      ->type_name("SRC");
  command->add_option("-o,--output", options->output, "The model file to write")->required()->type_name("FILE");
  AddConvertOptions(command, &options->convert);
  AddCalibrationOptions(command, options.get());
  AddBudgetOptions(command, &options->convert);
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
