// linnet perplexity: how well a model predicts a text, counted as llama.cpp's tool counts.
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/kl_file.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/output.h"
#include "examples/cli/scoring.h"
#include "platforms/console.h"

namespace linnet::cli {
namespace {

struct Options {
  RunOptions run;
  std::string text;
  uint32_t windows = 0;  // 0: all
  std::string save_logits, kl_from;
  bool json = false;
};

// Receives the logits of scored positions, window after window.
struct Score {
  const int32_t* window = nullptr;  // [context] tokens
  uint32_t context = 0;
  double nll_sum = 0.0, base_nll_sum = 0.0;  // nats
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
      base_nll_sum -= base[static_cast<size_t>(window[pos + 1])];
      kl.push_back(KlDivergence(base, log_probs));
      top1_equal += static_cast<size_t>(std::max_element(base.begin(), base.end()) - base.begin()) == top;
    }
    if (writer) status = writer->Append(log_probs, diagnostic);
    ++count;
  }
  double Perplexity() const { return std::exp(nll_sum / static_cast<double>(count)); }
  double BasePerplexity() const { return std::exp(base_nll_sum / static_cast<double>(count)); }
};

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
  const double bits = BitsPerWeight(model.file());
  nlohmann::ordered_json json = {{"model", options.run.model},       {"text", options.text},
                                 {"context", shape.context},         {"windows", shape.windows},
                                 {"perplexity", score.Perplexity()}, {"tokens", score.count},
                                 {"bits_per_weight", bits},          {"weight_bytes", model.file().weight_bytes()}};
  if (score.reader) {
    const Spread kl = SpreadOf(score.kl);
    json["perplexity_reference"] = score.BasePerplexity();
    json["kl_mean"] = kl.mean;
    json["kl_median"] = kl.median;
    json["kl_p99"] = kl.p99;
    json["kl_max"] = kl.max;
    json["top1_agreement"] = static_cast<double>(score.top1_equal) / static_cast<double>(score.count);
  }
  if (options.json) {
    PrintJson(json);
    return;
  }
  PrintFormat("perplexity %.4f over %llu tokens (%u windows of %u), %.3f bits per weight\n", score.Perplexity(),
              static_cast<unsigned long long>(score.count), shape.windows, shape.context, bits);
  if (score.reader) {
    PrintFormat(
        "reference: perplexity %.4f\n"
        "KL divergence: mean %.6f, median %.6f, 99th percentile %.6f, largest %.6f nats; same top token %.3f %%\n",
        json["perplexity_reference"].get<double>(), json["kl_mean"].get<double>(), json["kl_median"].get<double>(),
        json["kl_p99"].get<double>(), json["kl_max"].get<double>(), json["top1_agreement"].get<double>() * 100);
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
  if (!options.save_logits.empty()) {
    for (const std::string& input : {options.run.model, options.text, options.kl_from}) {
      LINNET_RETURN_IF_ERROR(CheckOutputIsNot(input, options.save_logits, diagnostic));
    }
  }
  platform::InterruptScope interrupt;  // so that no part of a --save-logits file stays behind
  if (options.run.context_tokens == 0) options.run.context_tokens = kDefaultWindow;
  LINNET_ASSIGN_OR_RETURN(LoadedModel model, LoadedModel::Load(options.run, kScoredLogitRows, diagnostic));
  KlShape shape;
  shape.vocab_size = model.config().vocab_size;
  shape.context = options.run.context_tokens;
  shape.first_scored = shape.context / 2;
  LINNET_ASSIGN_OR_RETURN(std::vector<int32_t> ids, MakeWindows(model, options.run.model, options.text, shape.context,
                                                                options.windows, diagnostic));
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
