#include "examples/cli/calibration_text.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/file_mapping.h"
#include "core/count.h"
#include "core/tokenizer.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/output.h"
#include "formats/convert/convert.h"
#include "formats/linnet/tokenizer_section.h"
#include "platforms/console.h"

namespace linnet::cli {
namespace {

// formats/quantize/README.md has the measurement: a model's own text says less about others, so more of it is used.
constexpr uint32_t kTextWindows = 20, kSelfWindows = 40;

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

// Windows of the text, evenly spread where there are more than wanted; each begins with bos where the model wants it.
std::vector<int32_t> CutWindows(const std::vector<int32_t>& ids, const GenerationDefaults& defaults,
                                CalibrationTextOptions* options) {
  options->window = static_cast<uint32_t>(std::min<size_t>(options->window, ids.size()));
  const size_t available = ids.size() / options->window, wanted = std::min<size_t>(available, options->windows);
  std::vector<int32_t> cut;
  for (size_t i = 0; i < wanted; ++i) {
    const auto begin = ids.begin() + static_cast<ptrdiff_t>(i * available / wanted * options->window);
    const size_t first = cut.size();
    cut.insert(cut.end(), begin, begin + options->window);
    if (defaults.add_bos && defaults.bos_id >= 0) cut[first] = defaults.bos_id;
  }
  return cut;
}

/// A source's tokenizer and the bytes that it reads.
struct SourceTokenizer {
  std::vector<std::byte> section;
  std::optional<Tokenizer> tokenizer;  // none where the source has none
};

Result<SourceTokenizer> OpenTokenizer(const formats::CheckpointInfo& info, Diagnostic* diagnostic) {
  SourceTokenizer source;
  LINNET_ASSIGN_OR_RETURN(source.section, formats::WriteTokenizerSection(info.tokenizer, diagnostic));
  LINNET_ASSIGN_OR_RETURN(TokenizerView view, formats::ReadTokenizerSection(source.section, diagnostic));
  if (view.kind == TokenizerKind::kNone) return source;
  LINNET_ASSIGN_OR_RETURN(source.tokenizer, Tokenizer::Create(std::move(view), diagnostic));
  return source;
}

Result<std::vector<int32_t>> TokenizeFile(const formats::CheckpointInfo& info, const std::string& path,
                                          Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const SourceTokenizer source, OpenTokenizer(info, diagnostic));
  if (!source.tokenizer) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the model has no tokenizer",
                "--calibrate %s: expected a model with a tokenizer, found none", path.c_str());
  }
  const Tokenizer& tokenizer = *source.tokenizer;
  LINNET_ASSIGN_OR_RETURN(const FileMapping file, FileMapping::Open(path, diagnostic));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::vector<int32_t> ids;
  LINNET_RETURN_IF_ERROR(tokenizer.Encode(text, {false, false}, &ids, diagnostic));
  for (const int32_t id : ids) {
    if (static_cast<uint32_t>(id) < info.config.vocab_size) continue;
    return Fail(diagnostic, StatusCode::kInvalidModel, "the tokenizer does not fit the model",
                "--calibrate %s: expected ids below %u, found %d", path.c_str(), info.config.vocab_size, id);
  }
  if (ids.size() < kMinCalibrationTokens) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the calibration text is too short",
                "--calibrate %s: expected at least %zu tokens, found %zu", path.c_str(), kMinCalibrationTokens,
                ids.size());
  }
  return ids;
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

// Sampled from the model's whole distribution, but for tokens that end a text: what an instruct model writes after them
// are empty turns, again and again. text: [start token, what the window is opened with]; filled up to n tokens.
Status ContinueText(LoadedModel& model, size_t n, uint64_t seed, std::vector<int32_t>* text, Diagnostic* diagnostic) {
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

// One window. Its start token stays where the model expects one before every text; elsewhere a text's first token
// takes all the attention that goes nowhere, and is any token.
Status WriteWindow(LoadedModel& model, uint32_t window, uint64_t seed, const std::vector<int32_t>& opening,
                   std::vector<int32_t>* ids, Diagnostic* diagnostic) {
  const GenerationDefaults& defaults = model.file().generation();
  const size_t left_out = defaults.add_bos ? 0 : 1;
  std::vector<int32_t> text = {StartToken(defaults)};
  text.insert(text.end(), opening.begin(), opening.end());
  LINNET_RETURN_IF_ERROR(ContinueText(model, window + left_out, seed, &text, diagnostic));
  ids->insert(ids->end(), text.begin() + static_cast<ptrdiff_t>(left_out), text.end());
  return Status::Ok();
}

// What each window is opened with: nothing where the model is on its own, or where its tokenizer does not work.
std::vector<std::vector<int32_t>> MakeOpenings(const formats::CheckpointInfo& info, uint32_t n_windows,
                                               uint32_t window) {
  std::vector<std::vector<int32_t>> openings(n_windows);
  const auto source = OpenTokenizer(info, nullptr);
  if (!source.ok() || !source->tokenizer) return openings;
  for (uint32_t i = 1; i < n_windows; i += 2) {
    std::vector<int32_t>& ids = openings[i];
    const Status status = source->tokenizer->Encode(kOpenings[i / 2 % kOpenings.size()], {false, false}, &ids, nullptr);
    const bool fits = std::all_of(ids.begin(), ids.end(),
                                  [&info](int32_t id) { return static_cast<uint32_t>(id) < info.config.vocab_size; });
    if (!status.ok() || !fits || ids.size() + 1 >= window) ids.clear();
  }
  return openings;
}

Result<std::vector<int32_t>> WriteOwnText(const formats::Checkpoint& source, const CalibrationTextOptions& options,
                                          Diagnostic* diagnostic) {
  const ScratchFile scratch(options.scratch_path);
  {
    Progress progress("writing the model for its own text");
    formats::ConvertOptions convert;
    LINNET_ASSIGN_OR_RETURN(const ModelCount count, CountModel(source.info().config, {}));
    convert.weights = count.parameters.active < kQ8WriterParameters ? DType::kQ8 : DType::kQ4;
    const auto update = [&progress](const formats::ConvertProgress& state) {
      progress.Update(state.elements_done, state.elements_total, state.stage);
      return !platform::InterruptScope::Requested();
    };
    LINNET_RETURN_IF_ERROR(formats::Convert(source, convert, scratch.path(), update, nullptr, diagnostic));
  }
  RunOptions run;
  run.model = scratch.path();
  run.context_tokens = options.window + 1;
  run.threads = options.threads;
  run.no_cache = true;
  LINNET_ASSIGN_OR_RETURN(LoadedModel model, LoadedModel::Load(run, 1, diagnostic));
  const auto openings = MakeOpenings(source.info(), options.windows, options.window);
  Progress progress("writing text");
  std::vector<int32_t> ids;
  for (uint32_t i = 0; i < options.windows; ++i) {
    progress.Update(i, options.windows, "window " + std::to_string(i + 1) + " of " + std::to_string(options.windows));
    LINNET_RETURN_IF_ERROR(WriteWindow(model, options.window, options.seed + i, openings[i], &ids, diagnostic));
  }
  return ids;
}

}  // namespace

Result<std::vector<int32_t>> MakeCalibrationText(const formats::Checkpoint& source, CalibrationTextOptions* options,
                                                 Diagnostic* diagnostic) {
  const ModelConfig& config = source.info().config;
  if (options->windows == 0) options->windows = options->source == kSelfText ? kSelfWindows : kTextWindows;
  if (config.context_length > 0) options->window = std::min(options->window, config.context_length);
  if (options->source == kSelfText) {
    // One more token is written than is kept.
    if (options->window == config.context_length) options->window = std::max(options->window - 1, 1u);
    return WriteOwnText(source, *options, diagnostic);
  }
  LINNET_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, TokenizeFile(source.info(), options->source, diagnostic));
  return CutWindows(ids, source.info().generation, options);
}

}  // namespace linnet::cli
