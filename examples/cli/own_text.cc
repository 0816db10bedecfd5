#include "examples/cli/own_text.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <numeric>
#include <span>
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

// From this size on the text is shorter, and written by q4 weights (half the bytes a token): large models lose little
// by either, and take their time.
constexpr uint64_t kLargeParameters = 400'000'000;
constexpr uint32_t kWindows = 60, kLargeWindows = 40;

bool IsLarge(const formats::Checkpoint& source) {
  const auto count = CountModel(source.info().config, {});
  return !count.ok() || count->parameters.active >= kLargeParameters;
}

// What a model writes by itself may be code and little else. Every text begins with one of these, so that it is prose
// of all kinds. README.md of formats/convert has the measurement.
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

// Tokens of a short text, its opening not counted; and those at a text's end that have been in the window before when
// it repeats itself.
constexpr size_t kTextTokens = 128, kRepeatedTokens = 8;

bool RepeatsItself(const std::vector<int32_t>& text) {
  if (text.size() <= kRepeatedTokens) return false;
  const auto end = text.end() - kRepeatedTokens;
  return std::search(text.begin(), text.end() - 1, end, text.end()) != text.end() - 1;
}

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

/// Writes windows of texts, one after the other, each opened with a few words of prose. A text is over where the model
/// ends it, where it repeats itself (an instruct model that is not asked anything does so without end), and in every
/// other window after kTextTokens: what a small model writes far from any given word is hardly language.
class TextWriter {
 public:
  /// The model outlives the writer. seed: of the whole text.
  TextWriter(LoadedModel* model, uint64_t seed);

  /// The window of this number: `n` ids, the first of which is the model's start token. Told as what follows n_before
  /// others. Errors: kCancelled, those of Session and Sampler.
  Status Write(uint32_t window, size_t n, size_t n_before, TextProgress* progress, std::vector<int32_t>* text,
               Diagnostic* diagnostic);

 private:
  Status Continue(size_t end, size_t n_before, Sampler* sampler, TextProgress* progress, std::vector<int32_t>* text,
                  Diagnostic* diagnostic);
  bool IsEnd(int32_t id) const { return std::ranges::find(end_ids_, id) != end_ids_.end(); }
  const std::vector<int32_t>& Opening(size_t window, size_t index) const;

  LoadedModel& model_;
  const uint64_t seed_;
  const int32_t start_;
  const std::vector<int32_t> end_ids_;
  std::vector<int32_t> barred_;  // control tokens that end nothing: no text has them
  // Of a window's first text, and of one behind another; the start token alone where the tokenizer does not work.
  std::vector<std::vector<int32_t>> first_openings_, next_openings_;
  std::vector<float> logits_;
};

TextWriter::TextWriter(LoadedModel* model, uint64_t seed)
    : model_(*model),
      seed_(seed),
      start_(StartToken(model->file().generation())),
      end_ids_(model->file().generation().end_ids),
      logits_(model->config().vocab_size) {
  const auto tokenizer = OpenTokenizer(model->file(), {}, nullptr);
  const auto n_ids = static_cast<int32_t>(logits_.size());
  for (int32_t id = 0; tokenizer.ok() && id < std::min(n_ids, tokenizer->vocab_size()); ++id) {
    if (tokenizer->IsSpecial(id) && !IsEnd(id)) barred_.push_back(id);
  }
  for (const char* words : kOpenings) {
    std::vector<int32_t> first = {start_}, next;
    const bool encoded = tokenizer.ok() && tokenizer->Encode(words, {}, &first).ok() &&
                         tokenizer->Encode(std::string("\n\n") + words, {}, &next).ok() && !next.empty();
    const auto fits = [n_ids](int32_t id) { return id < n_ids; };
    const bool usable = encoded && std::ranges::all_of(first, fits) && std::ranges::all_of(next, fits);
    first_openings_.push_back(usable ? first : std::vector{start_});
    next_openings_.push_back(usable ? next : std::vector{start_});
  }
}

// Every window goes through the openings in an order of its own.
const std::vector<int32_t>& TextWriter::Opening(size_t window, size_t index) const {
  constexpr size_t kStep = 7;  // has no factor in common with their number
  static_assert(std::gcd(kStep, kOpenings.size()) == 1);
  const auto& openings = index == 0 ? first_openings_ : next_openings_;
  return openings[(window + index * kStep) % openings.size()];
}

// One text, sampled from the model's whole distribution up to its end or to `end` tokens of the window.
Status TextWriter::Continue(size_t end, size_t n_before, Sampler* sampler, TextProgress* progress,
                            std::vector<int32_t>* text, Diagnostic* diagnostic) {
  Session& session = model_.session();
  while (true) {
    LINNET_RETURN_IF_ERROR(CheckNotInterrupted(diagnostic));
    progress->Update(n_before + text->size());
    std::copy_n(session.logits().begin(), logits_.size(), logits_.begin());
    for (const int32_t id : barred_) logits_[static_cast<size_t>(id)] = std::numeric_limits<float>::lowest();
    LINNET_ASSIGN_OR_RETURN(const int32_t next, sampler->Sample(logits_));
    if (IsEnd(next)) return Status::Ok();
    text->push_back(next);
    if (text->size() == end || RepeatsItself(*text)) return Status::Ok();
    LINNET_RETURN_IF_ERROR(session.Decode(next));
  }
}

Status TextWriter::Write(uint32_t window, size_t n, size_t n_before, TextProgress* progress, std::vector<int32_t>* text,
                         Diagnostic* diagnostic) {
  SamplerOptions sampling;
  sampling.temperature = 1.0f;
  sampling.seed = seed_ * kSeedStride + window;
  OwnedSampler sampler;
  LINNET_RETURN_IF_ERROR(MakeSampler(sampling, model_.config().vocab_size, &sampler, diagnostic));
  Session& session = model_.session();
  LINNET_RETURN_IF_ERROR(session.Rewind(0));
  text->clear();
  for (size_t i = 0; text->size() < n; ++i) {
    const std::span opening = Opening(window, i);
    const auto kept = opening.first(std::min(opening.size(), n - text->size()));
    text->insert(text->end(), kept.begin(), kept.end());
    LINNET_RETURN_IF_ERROR(session.Prefill(std::span(*text).subspan(session.position())));
    if (text->size() < n) {
      const size_t end = window % 2 == 0 ? n : std::min(n, text->size() + kTextTokens);
      LINNET_RETURN_IF_ERROR(Continue(end, n_before, sampler.sampler.get(), progress, text, diagnostic));
    }
  }
  return Status::Ok();
}

// The model in a form that writes its text.
Status WriteWriter(const formats::Checkpoint& source, const std::string& path, Diagnostic* diagnostic) {
  Progress progress("writing the model for its own text");
  formats::ConvertOptions convert;
  convert.weights = IsLarge(source) ? DType::kQ4 : DType::kQ8;
  const auto update = [&progress](const formats::ConvertProgress& state) {
    progress.Update(state.elements_done, state.elements_total, state.stage);
    return !platform::InterruptScope::Requested();
  };
  return formats::Convert(source, convert, path, update, nullptr, diagnostic);
}

}  // namespace

uint32_t OwnTextWindows(const formats::Checkpoint& source) { return IsLarge(source) ? kLargeWindows : kWindows; }

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
  TextWriter writer(&model, options.seed);
  // Where the model does not ask for a start token, none stands in a window: a text's first token takes all the
  // attention that goes nowhere, and is any token then.
  const size_t left_out = model.file().generation().add_bos ? 0 : 1;
  TextProgress progress(size_t{options.windows} * options.window);
  std::vector<int32_t> ids = WindowsOf(store, options), text;
  for (auto i = static_cast<uint32_t>(ids.size() / options.window); i < options.windows; ++i) {
    LINNET_RETURN_IF_ERROR(writer.Write(i, options.window + left_out, ids.size(), &progress, &text, diagnostic));
    ids.insert(ids.end(), text.begin() + static_cast<ptrdiff_t>(left_out), text.end());
    store.Save(kTextPiece, std::as_bytes(std::span(ids)));
  }
  return ids;
}

}  // namespace linnet::cli
