// linnet convert: a checkpoint becomes a model file.
#include "formats/convert/convert.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
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
#include "examples/cli/own_text.h"
#include "formats/convert/resume_store.h"
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
  float damping = formats::kMomentsDamping;
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

// No file that is read may be replaced.
Status CheckOutput(const Options& options, const formats::Checkpoint& source, Diagnostic* diagnostic) {
  const std::string& text = options.calibration.source;
  if (!text.empty() && text != kSelfText) {
    LINNET_RETURN_IF_ERROR(CheckOutputIsNot(text, options.output, diagnostic));
  }
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

// In the resume folder: the model while it writes its own text.
constexpr const char* kWriter = "writer";

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
      const bool is_piece = formats::IsResumePiece(name) || name == kTextPiece || name == kWriter;
      if (is_piece || platform::IsTemporaryName(name)) {
        std::filesystem::remove(file.path(), ignored);
      }
    }
    std::filesystem::remove(options.resume_folder, ignored);
  }
};

// The folder beside the target, and nothing above it. A target that cannot be written is told here, before the work.
Status MakeResumeFolder(const std::string& output, std::string* folder, Diagnostic* diagnostic) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(output).parent_path();
  if (!parent.empty() && !std::filesystem::is_directory(parent, error)) {
    return Fail(diagnostic, StatusCode::kIoError, "cannot create the file",
                "%s: expected an existing folder, found none (No such file or directory: %s)", output.c_str(),
                parent.string().c_str());
  }
  if (platform::IsFolder(output)) {
    return Fail(diagnostic, StatusCode::kIoError, "cannot create the file", "%s: expected a file, found a directory",
                output.c_str());
  }
  LINNET_RETURN_IF_ERROR(platform::MakeFolders(output + ".resume", diagnostic));
  *folder = output + ".resume";  // not before: what is in its place otherwise is somebody else's
  return Status::Ok();
}

Status PrepareCalibration(Options& options, const formats::Checkpoint& source, Calibration* calibration,
                          Diagnostic* diagnostic) {
  CalibrationTextOptions& text = options.calibration;
  if (text.source.empty() && !options.convert.has_budget()) return Status::Ok();
  if (text.source.empty()) text.source = kSelfText;  // losses are measured on a text, of whatever kind
  if (text.threads == 0) text.threads = platform::DefaultThreadCount();
  options.convert.calibration = &calibration->options;
  LINNET_RETURN_IF_ERROR(formats::CheckConversion(source, options.convert, diagnostic));
  LINNET_RETURN_IF_ERROR(MakeResumeFolder(options.output, &calibration->options.resume_folder, diagnostic));
  text.scratch_path = (std::filesystem::path(calibration->options.resume_folder) / kWriter).string();
  LINNET_ASSIGN_OR_RETURN(calibration->options.ids, MakeCalibrationText(source, &text, diagnostic));
  LINNET_ASSIGN_OR_RETURN(calibration->pool, ops::ThreadPool::Create(text.threads));
  calibration->runner.emplace(*calibration->pool);
  calibration->options.runner = &*calibration->runner;
  calibration->options.pool = &*calibration->pool;
  calibration->options.window = text.window;
  calibration->options.damping = options.damping;
  return Status::Ok();
}

Status Run(Options& options, Diagnostic* diagnostic) {
  platform::InterruptScope interrupt;  // the calibration text is made before the conversion's own begins
  LINNET_RETURN_IF_ERROR(CheckOutputIsNot(options.source, options.output, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const std::unique_ptr<formats::Checkpoint> source, OpenSource(options.source, diagnostic));
  LINNET_RETURN_IF_ERROR(CheckOutput(options, *source, diagnostic));
  Calibration calibration;
  formats::ConvertReport report;
  Status status = PrepareCalibration(options, *source, &calibration, diagnostic);
  if (status.ok()) status = RunConversion(*source, options.convert, options.output, "converting", &report, diagnostic);
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

// "300M", "1.5GB", "98362432", "286MiB": bytes; K, M and G are decimal, as disks and downloads are counted, Ki, Mi and
// Gi are not.
bool ParseSize(const std::string& text, uint64_t* bytes) {
  double value = 0.0;
  std::string unit;
  if (!SplitUnit(text, &value, &unit)) return false;
  if (unit.ends_with('b')) unit.pop_back();
  const bool binary = unit.size() == 2 && unit.ends_with('i');
  if (binary) unit.pop_back();
  const size_t power = std::string_view("kmg").find(unit);
  if (unit.size() > 1 || power == std::string_view::npos) return false;
  const double size =
      unit.empty() ? value : value * std::pow(binary ? 1024.0 : 1000.0, 1.0 + static_cast<double>(power));
  if (!(size >= 1.0 && size <= 1e15)) return false;
  *bytes = static_cast<uint64_t>(size);
  return true;
}

void AddCalibrationOptions(CLI::App* command, Options* options) {
  command
      ->add_option(
          "--calibrate", options->calibration.source,
          "Fit the rounding to the inputs that this text gives every layer; self: a text that the model writes")
      ->type_name("TEXT|self");
  command
      ->add_option("--calibrate-windows", options->calibration.windows,
                   "Windows of the text to use (default: 20; of self 60, for models from 400M parameters on 40)")
      ->check(CLI::Range(1u, 4096u));
  command
      ->add_option("--damping", options->damping,
                   "Calibration: part of the inputs' mean square that is added to every direction (default: 0.01)")
      ->check(FiniteRange(1e-6, 1.0));
  command->add_option("--seed", options->calibration.seed, "Seed of the text that the model writes (default: 0)");
  AddThreadsOption(command, &options->calibration.threads);
  // An option that would have no effect is a mistake of whoever gave it.
  command->final_callback([options, command] {
    const bool budget = command->count("--bits") + command->count("--size") > 0;
    const std::string& text = options->calibration.source;
    if (command->count("--calibrate") > 0 && text.empty()) {
      throw CLI::ValidationError("--calibrate", "expected a text file or self, found an empty name");
    }
    const bool own_text = text == kSelfText || (text.empty() && budget);
    for (const char* name : {"--calibrate-windows", "--damping"}) {
      if (command->count(name) == 0 || budget || !text.empty()) continue;
      throw CLI::ValidationError(name, "expected --calibrate, --bits or --size beside it, found none of them");
    }
    if (command->count("--seed") == 0 || own_text) return;
    throw CLI::ValidationError("--seed", "expected a text that the model writes (--calibrate self), found none");
  });
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
  CLI::Option* size = command
                          ->add_option_function<std::string>(
                              "--size", parse, "The same, by the file's size (K, M, G are powers of 1000)")
                          ->type_name("BYTES");
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
