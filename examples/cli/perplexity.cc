// linnet perplexity: how well a model predicts a text, counted as llama.cpp's tool counts.
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/file_mapping.h"
#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/kl_file.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/output.h"
#include "platforms/console.h"

namespace linnet::cli {
namespace {

constexpr uint32_t kDefaultWindow = 512;
constexpr uint32_t kLogitRows = 16;  // positions per product with the head: enough to reuse its weights

struct Options {
  RunOptions run;
  std::string text;
  uint32_t windows = 0;  // 0: all
  std::string save_logits, kl_from;
  bool json = false;
};

// Turns logits into logarithms of probabilities; returns the index of the largest.
size_t LogSoftmax(const float* logits, std::span<float> out) {
  const size_t top = static_cast<size_t>(std::max_element(logits, logits + out.size()) - logits);
  double sum = 0.0;
  for (size_t i = 0; i < out.size(); ++i) sum += std::exp(logits[i] - logits[top]);
  const float shift = logits[top] + static_cast<float>(std::log(sum));
  for (size_t i = 0; i < out.size(); ++i) out[i] = logits[i] - shift;
  return top;
}

// sum p (log p - log q) in nats.
double KlDivergence(std::span<const float> log_p, std::span<const float> log_q) {
  double sum = 0.0;
  for (size_t i = 0; i < log_p.size(); ++i) sum += std::exp(log_p[i]) * (log_p[i] - log_q[i]);
  return sum;
}

// Receives the logits of scored positions, window after window.
struct Score {
  const int32_t* window = nullptr;  // [context] tokens
  uint32_t context = 0;
  double nll_sum = 0.0;  // nats
  uint64_t count = 0;
  std::vector<float> log_probs, base;
  std::optional<KlWriter> writer;
  std::optional<KlReader> reader;
  std::vector<double> kl;
  uint64_t top1_equal = 0;
  Status status;
  Diagnostic* diagnostic = nullptr;

  static void Take(void* context, uint32_t first_pos, const float* logits, uint32_t n_rows) {
    Score& score = *static_cast<Score*>(context);
    for (uint32_t row = 0; row < n_rows; ++row) {
      score.TakeRow(first_pos + row, logits + size_t{row} * score.log_probs.size());
    }
  }
  static bool Continue(void* context, uint32_t, uint32_t) {
    return static_cast<Score*>(context)->status.ok() && !platform::InterruptScope::Requested();
  }
  void TakeRow(uint32_t pos, const float* logits) {
    if (pos + 1 >= context || !status.ok()) return;  // the last position's next token lies outside the window
    const size_t top = LogSoftmax(logits, log_probs);
    nll_sum -= log_probs[static_cast<size_t>(window[pos + 1])];
    if (reader) {
      reader->Read(count, base);
      kl.push_back(KlDivergence(base, log_probs));
      top1_equal += static_cast<size_t>(std::max_element(base.begin(), base.end()) - base.begin()) == top;
    }
    if (writer) status = writer->Append(log_probs, diagnostic);
    ++count;
  }
  double Perplexity() const { return std::exp(nll_sum / static_cast<double>(count)); }
};

// The windows' tokens, [windows, context]: the whole text tokenized without recognizing special tokens, one bos before
// it and in place of each window's first token where the model wants bos.
Result<std::vector<int32_t>> MakeWindows(const Options& options, const LoadedModel& model, uint32_t context,
                                         Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const Tokenizer tokenizer, OpenTokenizer(model.file(), options.run.model, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const FileMapping file, FileMapping::Open(options.text, diagnostic));
  const GenerationDefaults& defaults = model.file().generation();
  const bool add_bos = defaults.add_bos && defaults.bos_id >= 0;
  std::vector<int32_t> ids;
  if (add_bos) ids.push_back(defaults.bos_id);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  LINNET_RETURN_IF_ERROR(tokenizer.Encode(text, {false, false}, &ids, diagnostic));
  const size_t available = ids.size() / context;
  const size_t windows = options.windows == 0 ? available : options.windows;
  if (available == 0 || windows > available) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the text is too short",
                "%s: expected at least %zu tokens (%zu windows of %u), found %zu", options.text.c_str(),
                std::max<size_t>(windows, 1) * context, std::max<size_t>(windows, 1), context, ids.size());
  }
  ids.resize(windows * context);
  if (add_bos) {
    for (size_t i = 0; i < windows; ++i) ids[i * context] = defaults.bos_id;
  }
  const auto vocab_size = static_cast<int64_t>(model.config().vocab_size);
  for (const int32_t id : ids) {
    if (id >= vocab_size) {
      return Fail(diagnostic, StatusCode::kInvalidModel, "the tokenizer does not fit the model",
                  "%s: expected ids below %lld, found %d", options.run.model.c_str(),
                  static_cast<long long>(vocab_size), id);
    }
  }
  return ids;
}

Status OpenComparison(const std::string& path, const KlShape& shape, std::vector<int32_t>* ids, bool windows_given,
                      Score* score, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(score->reader, KlReader::Open(path, diagnostic));
  const KlShape& saved = score->reader->shape();
  if (saved.vocab_size != shape.vocab_size || saved.context != shape.context) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "saved logits of another model or context",
                "%s: expected vocabulary %u and context %u, found %u and %u", path.c_str(), shape.vocab_size,
                shape.context, saved.vocab_size, saved.context);
  }
  const auto tokens = score->reader->tokens();
  if (!windows_given && tokens.size() < ids->size()) ids->resize(tokens.size());
  if (tokens.size() < ids->size() || !std::equal(ids->begin(), ids->end(), tokens.begin())) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "saved logits of another text",
                "%s: expected the tokens of this text (%zu), found %zu others", path.c_str(), ids->size(),
                tokens.size());
  }
  return Status::Ok();
}

void PrintReport(const Options& options, const LoadedModel& model, const KlShape& shape, Score& score) {
  uint64_t elements = 0;
  for (const TensorView& tensor : model.file().view().tensors()) elements += tensor.elements();
  const double bits =
      static_cast<double>(model.file().weight_bytes()) * 8 / static_cast<double>(std::max<uint64_t>(elements, 1));
  nlohmann::ordered_json json = {{"model", options.run.model},       {"text", options.text},
                                 {"context", shape.context},         {"windows", shape.windows},
                                 {"perplexity", score.Perplexity()}, {"tokens", score.count},
                                 {"bits_per_weight", bits}};
  if (score.reader) {
    std::sort(score.kl.begin(), score.kl.end());
    double sum = 0.0;
    for (const double kl : score.kl) sum += kl;
    const auto count = static_cast<double>(score.count);
    json["kl_mean"] = sum / count;
    json["kl_median"] = score.kl[score.kl.size() / 2];
    json["kl_p99"] = score.kl[std::min(score.kl.size() - 1, static_cast<size_t>(0.99 * count))];
    json["kl_max"] = score.kl.back();
    json["top1_agreement"] = static_cast<double>(score.top1_equal) / count;
  }
  if (options.json) {
    PrintJson(json);
    return;
  }
  PrintFormat("perplexity %.4f over %llu tokens (%u windows of %u), %.3f bits per weight\n", score.Perplexity(),
              static_cast<unsigned long long>(score.count), shape.windows, shape.context, bits);
  if (score.reader) {
    PrintFormat(
        "KL divergence: mean %.6f, median %.6f, 99th percentile %.6f, largest %.6f nats; same top token %.3f %%\n",
        json["kl_mean"].get<double>(), json["kl_median"].get<double>(), json["kl_p99"].get<double>(),
        json["kl_max"].get<double>(), json["top1_agreement"].get<double>() * 100);
  }
}

Status RunWindows(LoadedModel& model, std::span<const int32_t> ids, const KlShape& shape, Score& score,
                  Diagnostic* diagnostic) {
  Session& session = model.session();
  for (uint32_t i = 0; i < shape.windows; ++i) {
    LINNET_RETURN_IF_ERROR(session.Rewind(0));
    score.window = ids.data() + size_t{i} * shape.context;
    const Status status = session.Prefill({score.window, shape.context}, {Score::Continue, &score},
                                          {Score::Take, &score, shape.first_scored});
    LINNET_RETURN_IF_ERROR(score.status);
    if (status.code() == StatusCode::kCancelled || platform::InterruptScope::Requested()) {
      return Fail(diagnostic, StatusCode::kCancelled, "interrupted", "window %u of %u", i + 1, shape.windows);
    }
    LINNET_RETURN_IF_ERROR(status);
    Note("perplexity: window %u of %u: %.4f", i + 1, shape.windows, score.Perplexity());
  }
  return Status::Ok();
}

Status Run(Options& options, Diagnostic* diagnostic) {
  platform::InterruptScope interrupt;  // so that no part of a --save-logits file stays behind
  if (options.run.context_tokens == 0) options.run.context_tokens = kDefaultWindow;
  LINNET_ASSIGN_OR_RETURN(LoadedModel model, LoadedModel::Load(options.run, kLogitRows, diagnostic));
  KlShape shape;
  shape.vocab_size = model.config().vocab_size;
  shape.context = options.run.context_tokens;
  shape.first_scored = shape.context / 2;
  LINNET_ASSIGN_OR_RETURN(std::vector<int32_t> ids, MakeWindows(options, model, shape.context, diagnostic));
  Score score;
  score.context = shape.context;
  score.diagnostic = diagnostic;
  score.log_probs.resize(shape.vocab_size);
  score.base.resize(shape.vocab_size);
  if (!options.kl_from.empty()) {
    LINNET_RETURN_IF_ERROR(OpenComparison(options.kl_from, shape, &ids, options.windows != 0, &score, diagnostic));
  }
  shape.windows = static_cast<uint32_t>(ids.size() / shape.context);
  if (!options.save_logits.empty()) {
    LINNET_ASSIGN_OR_RETURN(score.writer, KlWriter::Create(options.save_logits, shape, ids, diagnostic));
  }
  LINNET_RETURN_IF_ERROR(RunWindows(model, ids, shape, score, diagnostic));
  if (score.writer) LINNET_RETURN_IF_ERROR(score.writer->Finish(diagnostic));
  PrintReport(options, model, shape, score);
  return Status::Ok();
}

}  // namespace

void AddPerplexity(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = commands.Add(
      "perplexity", "Measure how well a model predicts a text, in windows of --context tokens (default: 512)",
      "linnet perplexity model.linnet text.txt --context 512 --windows 8");
  AddRunOptions(command, &options->run);
  command->get_option("--context")->check(CLI::Range(4u, kMaxContext));
  command->add_option("text", options->text, "The text file")->required()->type_name("TEXT");
  command->add_option("--windows", options->windows, "Use only the first N windows")
      ->check(CLI::Range(1u, kMaxContext));
  command
      ->add_option("--save-logits", options->save_logits,
                   "Write the distributions of all scored positions to this file")
      ->type_name("FILE");
  command->add_option("--kl-from", options->kl_from, "Compare with distributions that --save-logits wrote")
      ->type_name("FILE");
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
