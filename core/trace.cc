#include "core/trace.h"

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "core/executor.h"

namespace linnet {
namespace {

double NormOf(const float* row, size_t width) {
  double sum = 0.0;
  for (size_t i = 0; i < width; ++i) sum += double{row[i]} * double{row[i]};
  return std::sqrt(sum);
}

/// Watches the steps of a prefill. Everything is computed after the step that made it, while the buffers hold it.
class StreamObserver {
 public:
  StreamObserver(const ModelConfig& config, const StreamTrace& trace, size_t n_tokens, uint32_t first_pos)
      : config_(config), trace_(trace), n_tokens_(n_tokens), first_pos_(first_pos), current_norms_(n_tokens) {}

  static void Observe(void* context, const Executor& executor, const ExecutionPlan& plan, size_t step) {
    static_cast<StreamObserver*>(context)->AfterStep(executor, plan, step);
  }

 private:
  void AfterStep(const Executor& executor, const ExecutionPlan& plan, size_t index) {
    if (index >= plan.head_begin) return;
    const Step& step = plan.steps[index];
    const size_t first = executor.pass().first_pos - first_pos_, count = executor.pass().ids.size();
    const auto* residual = std::get_if<ResidualStep>(&step.data);
    if (residual != nullptr && residual->stream == plan.stream) {
      AddShare(*residual, static_cast<uint32_t>(step.layer), executor.f32(plan, residual->branch), first, count);
    }
    const float* stream = executor.f32(plan, plan.stream);
    const bool is_last = index + 1 == plan.head_begin || plan.steps[index + 1].layer != step.layer;
    if (is_last) {
      Capture(static_cast<size_t>(step.layer + 1), stream, first, count);
    } else if (residual != nullptr && residual->stream == plan.stream) {
      UpdateNorms(stream, first, count);
    } else if (const auto* norm = std::get_if<NormStep>(&step.data);
               norm != nullptr && norm->out.f32 == plan.stream) {  // post-norm: the stream itself is normed
      UpdateNorms(stream, first, count);
    }
  }

  void UpdateNorms(const float* stream, size_t first, size_t count) {
    const size_t width = config_.model_dim;
    for (size_t r = 0; r < count; ++r) current_norms_[first + r] = NormOf(stream + r * width, width);
  }

  // The stream between two layers.
  void Capture(size_t entry, const float* stream, size_t first, size_t count) {
    const size_t width = config_.model_dim;
    std::copy_n(stream, count * width, trace_.stream.data() + (entry * n_tokens_ + first) * width);
    UpdateNorms(stream, first, count);
    for (size_t t = first; t < first + count; ++t) {
      trace_.norms[entry * n_tokens_ + t] = static_cast<float>(current_norms_[t]);
    }
    is_ffn_ = false;
  }

  // A block has two additions, the attention's first.
  void AddShare(const ResidualStep& step, uint32_t layer, const float* branch, size_t first, size_t count) {
    const BlockSpec& block = config_.layer(layer);
    const std::span<float> shares = is_ffn_ ? trace_.ffn_share : trace_.attention_share;
    const double stream_scale = std::abs(block.residual_scale), branch_scale = std::abs(step.branch_scale);
    for (size_t r = 0; r < count; ++r) {
      const size_t t = first + r;
      const double before = block.parallel ? double{trace_.norms[layer * n_tokens_ + t]} : current_norms_[t];
      const double added = branch_scale * NormOf(branch + r * config_.model_dim, config_.model_dim);
      shares[layer * n_tokens_ + t] = static_cast<float>(before > 0.0 ? added / (stream_scale * before) : 0.0);
    }
    is_ffn_ = true;
  }

  const ModelConfig& config_;
  const StreamTrace& trace_;
  const size_t n_tokens_;
  const uint32_t first_pos_;
  std::vector<double> current_norms_;  // of every token's row as it is now
  bool is_ffn_ = false;
};

bool HasSizes(const StreamTrace& trace, const ModelConfig& config, size_t n_tokens) {
  const size_t layers = size_t{config.n_layers} * n_tokens, entries = layers + n_tokens;
  return trace.stream.size() == entries * config.model_dim && trace.norms.size() == entries &&
         trace.attention_share.size() == layers && trace.ffn_share.size() == layers;
}

}  // namespace

Status TraceStream(Session& session, const ModelConfig& config, std::span<const int32_t> ids, const StreamTrace& trace,
                   const PrefillProgress& progress) {
  if (!HasSizes(trace, config, ids.size())) {
    return {StatusCode::kInvalidArgument, "a trace's span has another size than layers and tokens ask for"};
  }
  StreamObserver observer(config, trace, ids.size(), session.position());
  session.SetObserver({StreamObserver::Observe, &observer});
  const Status status = session.Prefill(ids, progress);
  session.SetObserver({});
  return status;
}

Status ReadLens(Session& session, std::span<const float> stream_row, std::span<LensToken> top) {
  LINNET_RETURN_IF_ERROR(session.ReadHead(stream_row));
  const std::span<const float> logits = session.logits();
  if (top.empty() || top.size() > logits.size()) {
    return {StatusCode::kInvalidArgument, "the number of top tokens is out of range", static_cast<int64_t>(top.size())};
  }
  std::vector<int32_t> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  // Broken weights give NaN, which has no place in an order: last.
  const auto key = [&](int32_t id) { return std::isnan(logits[id]) ? -INFINITY : logits[id]; };
  const auto better = [&](int32_t a, int32_t b) { return key(a) != key(b) ? key(a) > key(b) : a < b; };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(top.size()), ids.end(), better);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - double{logits[ids[0]]});
  for (size_t i = 0; i < top.size(); ++i) {
    const float logit = logits[ids[i]];
    top[i] = {ids[i], logit, static_cast<float>(std::exp(double{logit} - double{logits[ids[0]]}) / sum)};
  }
  return Status::Ok();
}

}  // namespace linnet
