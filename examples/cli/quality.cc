// linnet quality: what a model lost against a reference, on one text.
#include <algorithm>
#include <cmath>
#include <memory>
#include <ranges>
#include <string>
#include <vector>

#include "core/base/file_mapping.h"
#include "core/trace.h"
#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/output.h"
#include "examples/cli/quality_report.h"
#include "examples/cli/scoring.h"
#include "platforms/console.h"

namespace linnet::cli {
namespace {

// Positions that both models run before they are compared: what is held of the reference is this many rows of the
// vocabulary's size.
constexpr uint32_t kPiece = 64;

struct Options {
  std::string reference;
  RunOptions run;  // the model's
  std::string text, html;
  uint32_t windows = 0;  // 0: all
  bool json = false;
};

// Logits of a piece's positions, as logarithms of probabilities.
struct Piece {
  uint32_t vocab_size = 0;
  uint32_t first_pos = 0;
  std::vector<float> rows;  // [kPiece, vocab_size]

  float* Row(uint32_t pos) { return rows.data() + size_t{pos - first_pos} * vocab_size; }
  static void Take(void* context, uint32_t first_pos, const float* logits, uint32_t n_rows) {
    Piece& piece = *static_cast<Piece*>(context);
    for (uint32_t r = 0; r < n_rows; ++r) {
      LogSoftmax(logits + size_t{r} * piece.vocab_size, {piece.Row(first_pos + r), piece.vocab_size});
    }
  }
};

bool KeepOn(void*, uint32_t, uint32_t) { return !platform::InterruptScope::Requested(); }

/// Both models side by side.
class Comparison {
 public:
  Comparison(LoadedModel& reference, LoadedModel& model, uint32_t context)
      : reference_(reference), model_(model), context_(context) {
    for (Piece* piece : {&base_, &own_}) {
      piece->vocab_size = model.config().vocab_size;
      piece->rows.resize(size_t{kPiece} * piece->vocab_size);
    }
  }

  Status Score(std::span<const int32_t> window);
  Status TraceLayers(std::span<const int32_t> window);
  void Finish(QualityReport* report);

 private:
  Status Prefill(std::span<const int32_t> ids, bool scored);
  void CompareRows(std::span<const int32_t> window, uint32_t first, uint32_t end);

  LoadedModel& reference_;
  LoadedModel& model_;
  const uint32_t context_;
  Piece base_, own_;
  double base_nll_ = 0.0, own_nll_ = 0.0;  // nats
  uint64_t top1_equal_ = 0;
  std::vector<double> kl_, stream_error_;
};

Status Comparison::Prefill(std::span<const int32_t> ids, bool scored) {
  base_.first_pos = own_.first_pos = reference_.session().position();
  const LogitsSink base = {Piece::Take, &base_, base_.first_pos}, own = {Piece::Take, &own_, own_.first_pos};
  LINNET_RETURN_IF_ERROR(reference_.session().Prefill(ids, {KeepOn, nullptr}, scored ? base : LogitsSink{}));
  return model_.session().Prefill(ids, {KeepOn, nullptr}, scored ? own : LogitsSink{});
}

void Comparison::CompareRows(std::span<const int32_t> window, uint32_t first, uint32_t end) {
  const size_t vocab_size = own_.vocab_size;
  for (uint32_t pos = first; pos < std::min(end, context_ - 1); ++pos) {  // the last one's next token lies outside
    const std::span<const float> base(base_.Row(pos), vocab_size), own(own_.Row(pos), vocab_size);
    const auto next = static_cast<size_t>(window[pos + 1]);
    base_nll_ -= base[next];
    own_nll_ -= own[next];
    kl_.push_back(KlDivergence(base, own));
    const auto base_top = std::max_element(base.begin(), base.end()) - base.begin();
    top1_equal_ += base_top == std::max_element(own.begin(), own.end()) - own.begin();
  }
}

// The second half of the window's positions, as perplexity scores them.
Status Comparison::Score(std::span<const int32_t> window) {
  LINNET_RETURN_IF_ERROR(reference_.session().Rewind(0));
  LINNET_RETURN_IF_ERROR(model_.session().Rewind(0));
  uint32_t pos = context_ / 2;
  LINNET_RETURN_IF_ERROR(Prefill(window.first(pos), false));
  while (pos < context_) {
    const uint32_t count = std::min(kPiece, context_ - pos);
    LINNET_RETURN_IF_ERROR(Prefill(window.subspan(pos, count), true));
    CompareRows(window, pos, pos + count);
    pos += count;
  }
  return Status::Ok();
}

// Memory of a trace of kPiece tokens.
struct TraceMemory {
  explicit TraceMemory(const ModelConfig& config, size_t n_tokens)
      : stream((config.n_layers + 1) * n_tokens * config.model_dim),
        norms((config.n_layers + 1) * n_tokens),
        attention(config.n_layers * n_tokens),
        ffn(config.n_layers * n_tokens) {}
  StreamTrace spans() { return {stream, norms, attention, ffn}; }
  std::vector<float> stream, norms, attention, ffn;
};

Status Comparison::TraceLayers(std::span<const int32_t> window) {
  const ModelConfig &a = reference_.config(), &b = model_.config();
  if (a.n_layers != b.n_layers || a.model_dim != b.model_dim) return Status::Ok();
  LINNET_RETURN_IF_ERROR(reference_.session().Rewind(0));
  LINNET_RETURN_IF_ERROR(model_.session().Rewind(0));
  const size_t entries = size_t{a.n_layers} + 1, width = a.model_dim;
  stream_error_.assign(entries, 0.0);
  for (size_t pos = 0; pos < window.size(); pos += kPiece) {
    const auto ids = window.subspan(pos, std::min<size_t>(kPiece, window.size() - pos));
    TraceMemory base(a, ids.size()), own(b, ids.size());
    LINNET_RETURN_IF_ERROR(TraceStream(reference_.session(), a, ids, base.spans(), {KeepOn, nullptr}));
    LINNET_RETURN_IF_ERROR(TraceStream(model_.session(), b, ids, own.spans(), {KeepOn, nullptr}));
    for (size_t row = 0; row < entries * ids.size(); ++row) {
      double squares = 0.0;
      for (size_t i = row * width; i < (row + 1) * width; ++i) {
        const double difference = double{own.stream[i]} - double{base.stream[i]};
        squares += difference * difference;
      }
      const double norm = base.norms[row];
      if (norm > 0.0) stream_error_[row / ids.size()] += std::sqrt(squares) / norm / static_cast<double>(window.size());
    }
  }
  return Status::Ok();
}

void Comparison::Finish(QualityReport* report) {
  const auto count = static_cast<double>(kl_.size());
  report->tokens = kl_.size();
  report->reference.perplexity = std::exp(base_nll_ / count);
  report->model.perplexity = std::exp(own_nll_ / count);
  report->top1_agreement = static_cast<double>(top1_equal_) / count;
  report->kl = SpreadOf(kl_);
  report->kl_values = std::move(kl_);
  report->stream_error = std::move(stream_error_);
}

Status CheckPair(const Options& options, const LoadedModel& reference, const LoadedModel& model,
                 std::span<const int32_t> reference_ids, std::span<const int32_t> ids, Diagnostic* diagnostic) {
  if (reference.config().vocab_size != model.config().vocab_size) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "models of different vocabularies",
                "%s: expected the reference's vocabulary of %u tokens, found %u", options.run.model.c_str(),
                reference.config().vocab_size, model.config().vocab_size);
  }
  if (!std::ranges::equal(reference_ids, ids)) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "models of different tokenizers",
                "%s: expected the reference's tokens for %s, found others", options.run.model.c_str(),
                options.text.c_str());
  }
  return Status::Ok();
}

Status Compare(Comparison& comparison, std::span<const int32_t> ids, uint32_t context, Diagnostic* diagnostic) {
  const size_t windows = ids.size() / context;
  Progress progress("quality");
  Status status = comparison.TraceLayers(ids.first(context));
  for (size_t i = 0; status.ok() && i < windows; ++i) {
    progress.Update(i, windows, "window " + std::to_string(i + 1) + " of " + std::to_string(windows));
    status = comparison.Score(ids.subspan(i * context, context));
  }
  if (status.code() != StatusCode::kCancelled) return status;
  return Fail(diagnostic, StatusCode::kCancelled, "interrupted", "nothing was written");
}

Status WriteHtml(const std::string& path, const QualityReport& report, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::Create(path, diagnostic));
  const std::string html = QualityHtml(report);
  LINNET_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(html)), diagnostic));
  return writer.Commit(diagnostic);
}

Status Run(Options& options, Diagnostic* diagnostic) {
  platform::InterruptScope interrupt;
  if (!options.html.empty()) {
    for (const std::string& input : {options.reference, options.run.model, options.text}) {
      LINNET_RETURN_IF_ERROR(CheckOutputIsNot(input, options.html, diagnostic));
    }
  }
  if (options.run.context_tokens == 0) options.run.context_tokens = kDefaultWindow;
  const uint32_t context = options.run.context_tokens;
  RunOptions reference_run = options.run;
  reference_run.model = options.reference;
  reference_run.kv = SessionOptions::Kv::kF32;
  LINNET_ASSIGN_OR_RETURN(LoadedModel reference, LoadedModel::Load(reference_run, kScoredLogitRows, diagnostic));
  LINNET_ASSIGN_OR_RETURN(LoadedModel model, LoadedModel::Load(options.run, kScoredLogitRows, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                          MakeWindows(model, options.run.model, options.text, context, options.windows, diagnostic));
  LINNET_ASSIGN_OR_RETURN(
      const std::vector<int32_t> reference_ids,
      MakeWindows(reference, options.reference, options.text, context, options.windows, diagnostic));
  LINNET_RETURN_IF_ERROR(CheckPair(options, reference, model, reference_ids, ids, diagnostic));
  Comparison comparison(reference, model, context);
  LINNET_RETURN_IF_ERROR(Compare(comparison, ids, context, diagnostic));
  QualityReport report;
  report.reference = FactsOf(options.reference, reference.file());
  report.reference.kv = ops::KvTypeName(reference.session().plan().kv_type);
  report.model = FactsOf(options.run.model, model.file());
  report.model.kv = ops::KvTypeName(model.session().plan().kv_type);
  report.text = options.text;
  report.context = context;
  report.windows = static_cast<uint32_t>(ids.size() / context);
  comparison.Finish(&report);
  if (!options.html.empty()) LINNET_RETURN_IF_ERROR(WriteHtml(options.html, report, diagnostic));
  Print(options.json ? QualityJson(report) : QualityText(report));
  return Status::Ok();
}

}  // namespace

void AddQuality(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = commands.Add(
      "quality", "Measure what a model lost against a reference: KL divergence, perplexity, the layers' errors",
      "linnet quality f32.linnet q4.linnet text.txt --windows 8 --html report.html");
  command->add_option("reference", options->reference, "The reference: the same model with f32 or less rounded weights")
      ->required()
      ->type_name("REFERENCE");
  AddRunOptions(command, &options->run);
  command->get_option("--context")->check(CLI::Range(4u, kMaxContext));
  command->add_option("text", options->text, "The text file")->required()->type_name("TEXT");
  command->add_option("--windows", options->windows, "Use only the first N windows")
      ->check(CLI::Range(1u, kMaxContext));
  command->add_option("--html", options->html, "Also write the report as one HTML page")->type_name("FILE");
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
