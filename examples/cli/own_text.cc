#include "examples/cli/own_text.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "core/base/file_mapping.h"
#include "core/count.h"
#include "core/tokenizer.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/output.h"
#include "formats/convert/convert.h"
#include "formats/convert/resume_store.h"
#include "formats/linnet/sha256.h"
#include "platforms/console.h"

namespace linnet::cli {
namespace {

// From this size on the text is written by q4 weights: half the bytes a token, and large models lose little by them.
constexpr uint64_t kQ8WriterParameters = 400'000'000;

// What a model writes by itself may be code and little else. Every other window begins with one of these, so that prose
// of all kinds is among it. README.md of formats/convert has the measurement.
constexpr std::array<const char*, 20> kOpenings = {
    "The history of the town begins",
    "In the spring of that year,",
    "The film tells the story of",
    "She was born in",
    "According to a report published",
    "The river flows through",
    "The government announced that",
    "He began his career as",
    "Scientists have long known that",
    "The album was released in",
    "In the second half of the season,",
    "The species is found in",
    "The building was designed by",
    "After the war, the",
    "Once upon a time there was",
    "\"I don't know,\" she said,",
    "The company was founded in",
    "This chapter explains how",
    "There are many ways to",
    "The court decided that",
};

Status CheckNotInterrupted(Diagnostic* diagnostic) {
  if (!platform::InterruptScope::Requested()) return Status::Ok();
  return Fail(diagnostic, StatusCode::kCancelled, "interrupted", "the calibration text was not finished");
}

/// A file that is gone afterwards, whatever happens.
class ScratchFile {
 public:
  explicit ScratchFile(std::string path) : path_(std::move(path)) {}
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The token that begins a text: bos, else the one that ends it, which stands between texts in training.
int32_t StartToken(const GenerationDefaults& defaults) {
  if (defaults.bos_id >= 0) return defaults.bos_id;
  return defaults.end_ids.empty() ? 0 : defaults.end_ids.front();
}

// What one seed leads to has no window in common with what another does, however near they are.
constexpr uint64_t kSeedStride = uint64_t{1} << 32;

// The key of the windows is the model that wrote them.
Result<formats::ResumeStore> OpenTextStore(const CalibrationTextOptions& options, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const FileMapping writer, FileMapping::Open(options.scratch_path, diagnostic));
  formats::Sha256 key;
  key.Update(writer.bytes());
  key.Update(std::as_bytes(std::span(&options.seed, 1)));
  key.Update(std::as_bytes(std::span(&options.window, 1)));
  return formats::ResumeStore(std::filesystem::path(options.scratch_path).parent_path().string(), key.Finish());
}

std::vector<int32_t> WindowsOf(const formats::ResumeStore& store, const CalibrationTextOptions& options) {
  std::vector<int32_t> ids;
  const auto piece = store.Load(kTextPiece);
  if (!piece || piece->content.size() % (options.window * sizeof(int32_t)) != 0) return ids;
  ids.resize(std::min(piece->content.size() / sizeof(int32_t), size_t{options.windows} * options.window));
  std::copy_n(piece->content.begin(), ids.size() * sizeof(int32_t), std::as_writable_bytes(std::span(ids)).begin());
  return ids;
}

/// The progress of the whole text, in tokens.
class TextProgress {
 public:
  explicit TextProgress(size_t total) : total_(total) {}

  void Update(size_t tokens) {
    progress_.Update(
        tokens, total_,
        "token " + std::to_string(tokens) + " of " + std::to_string(total_) + left_.Text(kStage, tokens, total_));
  }

 private:
  static constexpr const char* kStage = "writing text";
  size_t total_;
  Progress progress_{kStage};
  TimeLeft left_;
};

// Sampled from the model's whole distribution, but for tokens that end a text: what an instruct model writes after them
// are empty turns, again and again. text: [start token, what the window is opened with]; filled up to n tokens, told as
// what follows n_before others.
Status ContinueText(LoadedModel& model, size_t n, uint64_t seed, size_t n_before, TextProgress* progress,
                    std::vector<int32_t>* text, Diagnostic* diagnostic) {
  const uint32_t vocab_size = model.config().vocab_size;
  SamplerOptions sampling;
  sampling.temperature = 1.0f;
  sampling.seed = seed;
  OwnedSampler sampler;
  LINNET_RETURN_IF_ERROR(MakeSampler(sampling, vocab_size, &sampler, diagnostic));
  Session& session = model.session();
  std::vector<float> logits(vocab_size);
  LINNET_RETURN_IF_ERROR(session.Rewind(0));
  LINNET_RETURN_IF_ERROR(session.Prefill(*text));
  while (true) {
    LINNET_RETURN_IF_ERROR(CheckNotInterrupted(diagnostic));
    progress->Update(n_before + text->size());
    std::copy_n(session.logits().begin(), vocab_size, logits.begin());
    for (const int32_t id : model.file().generation().end_ids) {
      logits[static_cast<size_t>(id)] = std::numeric_limits<float>::lowest();
    }
    LINNET_ASSIGN_OR_RETURN(const int32_t next, sampler.sampler->Sample(logits));
    text->push_back(next);
    if (text->size() == n) return Status::Ok();
    LINNET_RETURN_IF_ERROR(session.Decode(next));
  }
}

// What each window is opened with: nothing where the model is on its own, or where its tokenizer does not work.
std::vector<std::vector<int32_t>> MakeOpenings(const LoadedModel& model, const CalibrationTextOptions& options) {
  std::vector<std::vector<int32_t>> openings(options.windows);
  const auto tokenizer = OpenTokenizer(model.file(), options.scratch_path, nullptr);
  if (!tokenizer.ok()) return openings;
  const auto is_id = [&model](int32_t id) { return static_cast<uint32_t>(id) < model.config().vocab_size; };
  for (uint32_t i = 1; i < options.windows; i += 2) {
    std::vector<int32_t>& ids = openings[i];
    const Status status = tokenizer->Encode(kOpenings[i / 2 % kOpenings.size()], {false, false}, &ids, nullptr);
    const bool fits = ids.size() + 1 < options.window && std::all_of(ids.begin(), ids.end(), is_id);
    if (!status.ok() || !fits) ids.clear();
  }
  return openings;
}

// The model in a form that writes its text.
Status WriteWriter(const formats::Checkpoint& source, const std::string& path, Diagnostic* diagnostic) {
  Progress progress("writing the model for its own text");
  formats::ConvertOptions convert;
  LINNET_ASSIGN_OR_RETURN(const ModelCount count, CountModel(source.info().config, {}));
  convert.weights = count.parameters.active < kQ8WriterParameters ? DType::kQ8 : DType::kQ4;
  const auto update = [&progress](const formats::ConvertProgress& state) {
    progress.Update(state.elements_done, state.elements_total, state.stage);
    return !platform::InterruptScope::Requested();
  };
  return formats::Convert(source, convert, path, update, nullptr, diagnostic);
}

}  // namespace

Result<std::vector<int32_t>> WriteOwnText(const formats::Checkpoint& source, const CalibrationTextOptions& options,
                                          Diagnostic* diagnostic) {
  const ScratchFile scratch(options.scratch_path);
  LINNET_RETURN_IF_ERROR(WriteWriter(source, scratch.path(), diagnostic));
  RunOptions run;
  run.model = scratch.path();
  run.context_tokens = options.window + 1;
  run.threads = options.threads;
  run.no_cache = true;
  LINNET_ASSIGN_OR_RETURN(LoadedModel model, LoadedModel::Load(run, 1, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const formats::ResumeStore store, OpenTextStore(options, diagnostic));
  const auto openings = MakeOpenings(model, options);
  const GenerationDefaults& defaults = model.file().generation();
  // Where the model does not ask for a start token, none stands in a window: a text's first token takes all the
  // attention that goes nowhere, and is any token then.
  const size_t left_out = defaults.add_bos ? 0 : 1;
  TextProgress progress(size_t{options.windows} * options.window);
  std::vector<int32_t> ids = WindowsOf(store, options);
  for (size_t i = ids.size() / options.window; i < options.windows; ++i) {
    std::vector<int32_t> text = {StartToken(defaults)};
    text.insert(text.end(), openings[i].begin(), openings[i].end());
    const uint64_t seed = options.seed * kSeedStride + i;
    LINNET_RETURN_IF_ERROR(
        ContinueText(model, options.window + left_out, seed, ids.size(), &progress, &text, diagnostic));
    ids.insert(ids.end(), text.begin() + static_cast<ptrdiff_t>(left_out), text.end());
    LINNET_RETURN_IF_ERROR(store.Save(kTextPiece, std::as_bytes(std::span(ids)), diagnostic));
  }
  return ids;
}

}  // namespace linnet::cli
