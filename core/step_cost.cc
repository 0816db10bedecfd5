#include "core/step_cost.h"

#include <algorithm>
#include <variant>

namespace linnet {
namespace {

constexpr uint64_t kF32Bytes = sizeof(float);

/// One overload a step; everything but the tokens' positions is in the plan.
class Coster {
 public:
  Coster(const ModelView& model, const Plan& plan, const StepRows& rows)
      : model_(model), plan_(plan), n_(rows.n_rows), first_pos_(rows.first_pos) {}

  StepCost operator()(const EmbedStep& step) const {
    return {.weight_bytes = n_ * RowBytes(step.table), .activation_bytes = n_ * width() * kF32Bytes};
  }
  StepCost operator()(const PositionStep& step) const {
    return {.weight_bytes = step.table == kNoTensor ? 0 : n_ * RowBytes(step.table),
            .activation_bytes = 2 * n_ * width() * kF32Bytes};
  }
  StepCost operator()(const RopeTableStep& step) const {
    return {.activation_bytes = n_ * model_.config().ropes[step.rope].rope_dim * kF32Bytes};
  }
  StepCost operator()(const NormStep& step) const {
    return {.activation_bytes = n_ * (step.width * kF32Bytes + RowsBytes(step.out, step.width))};
  }
  StepCost operator()(const QuantizeStep& step) const {
    return {.activation_bytes = n_ * (step.width * kF32Bytes + RowsBytes(step.out, step.width))};
  }
  StepCost operator()(const LinearStep& step) const {
    StepCost cost = Product(step.matrix, 1, step.in.int8 != kNoBuffer, n_);
    cost.activation_bytes = n_ * (RowsBytes(step.in, Columns(step.matrix)) + step.n * kF32Bytes);
    return cost;
  }
  StepCost operator()(const HeadsStep& step) const {
    const AttentionSpec& attention = AttentionOf(step.layer);
    const uint64_t q_and_k = (uint64_t{attention.n_heads} + attention.n_kv_heads) * attention.head_dim;
    const uint64_t v = uint64_t{attention.n_kv_heads} * attention.value_dim;
    return {.kv_bytes = n_ * KvBytesPerPosition(step.layer), .activation_bytes = n_ * (2 * q_and_k + v) * kF32Bytes};
  }
  StepCost operator()(const AttentionStep& step) const {
    const AttentionSpec& attention = AttentionOf(step.layer);
    const ops::KvShape& shape = plan_.kv[step.layer].shape;
    const uint64_t each = uint64_t{attention.n_heads} * (uint64_t{shape.head_dim} + shape.value_dim);
    return {.kv_bytes = PositionsRead(attention) * KvBytesPerPosition(step.layer),
            .activation_bytes = n_ * each * kF32Bytes,
            .float_multiply_adds = each * VisiblePairs(attention)};
  }
  StepCost operator()(const ActivationStep& step) const {
    const uint64_t in = (step.ffn->gated ? 2 : 1) * uint64_t{step.width} * kF32Bytes;
    return {.activation_bytes = n_ * (in + RowsBytes(step.out, step.width))};
  }
  StepCost operator()(const ResidualStep&) const { return {.activation_bytes = 3 * n_ * width() * kF32Bytes}; }
  StepCost operator()(const RouteStep& step) const {
    const TensorView& router = Tensor(step.router);
    return {.weight_bytes = router.data.size(),
            .activation_bytes = n_ * (width() + 2 * router.rows()) * kF32Bytes,
            .float_multiply_adds = n_ * router.rows() * router.columns()};
  }
  StepCost operator()(const ExpertsStep& step) const {
    const uint64_t pairs = n_ * step.ffn->top_k;
    const uint64_t touched = std::min<uint64_t>(pairs, step.ffn->n_experts);
    StepCost cost = Product(step.first_up, touched, step.in.int8 != kNoBuffer, pairs);
    cost += Product(step.first_down, touched, step.activated.int8 != kNoBuffer, pairs);
    const uint64_t up = (step.ffn->gated ? 2 : 1) * uint64_t{step.ffn->ffn_dim};
    cost.activation_bytes = pairs * (3 * width() + 2 * up) * kF32Bytes;
    return cost;
  }
  StepCost operator()(const SharedGateStep& step) const {
    return {.weight_bytes = Tensor(step.gate).data.size(),
            .activation_bytes = 3 * n_ * width() * kF32Bytes,
            .float_multiply_adds = n_ * width()};
  }
  StepCost operator()(const LatentHeadsStep& step) const {
    const AttentionSpec& attention = AttentionOf(step.layer);
    const uint64_t q = uint64_t{attention.n_heads} * attention.head_dim;
    return {.kv_bytes = n_ * KvBytesPerPosition(step.layer),
            .activation_bytes = n_ * (step.latent_width + 2 * q) * kF32Bytes};
  }
  StepCost operator()(const AbsorbStep& step) const {
    return HeadProducts(step.layer, step.first_matrix, step.head_in);
  }
  StepCost operator()(const ValueUpStep& step) const {
    return HeadProducts(step.layer, step.first_matrix, step.head_in);
  }
  StepCost operator()(const LogitsStep&) const {
    const ModelConfig& config = model_.config();
    const uint64_t passes = (config.logit_scale != 1.0f ? 1 : 0) + (config.logit_soft_cap > 0.0f ? 1 : 0);
    return {.activation_bytes = 2 * passes * n_ * config.vocab_size * kF32Bytes};
  }

 private:
  uint64_t width() const { return model_.config().model_dim; }
  const AttentionSpec& AttentionOf(uint32_t layer) const { return model_.config().layer(layer).attention; }
  const TensorView& Tensor(TensorIndex index) const { return model_.tensors()[static_cast<size_t>(index)]; }
  const TensorView& TensorOf(uint32_t matrix) const { return model_.tensors()[plan_.packed.matrices[matrix].tensor]; }
  uint64_t Columns(uint32_t matrix) const { return TensorOf(matrix).columns(); }

  uint64_t RowBytes(TensorIndex index) const {
    const TensorView& table = Tensor(index);
    return (table.data.size() + table.scales.size()) / table.rows();
  }
  static uint64_t RowsBytes(const RowsBuffer& rows, uint64_t width) {
    return (rows.f32 != kNoBuffer ? width * kF32Bytes : 0) + (rows.int8 != kNoBuffer ? width : 0);
  }
  uint64_t KvBytesPerPosition(uint32_t layer) const {
    const ops::KvLayout& layout = plan_.kv[layer];
    return layout.bytes / layout.shape.capacity;  // no byte of a cache is padding
  }
  // Positions whose keys and values the rows see, each once.
  uint64_t PositionsRead(const AttentionSpec& attention) const {
    const uint64_t all = first_pos_ + n_;
    return attention.window == 0 ? all : std::min(all, attention.window + n_ - 1);
  }
  // Pairs of a row and a position that it sees.
  uint64_t VisiblePairs(const AttentionSpec& attention) const {
    uint64_t pairs = 0;
    for (uint64_t pos = first_pos_; pos < first_pos_ + n_; ++pos) {
      pairs += attention.window == 0 ? pos + 1 : std::min<uint64_t>(pos + 1, attention.window);
    }
    return pairs;
  }

  // `rows` rows through `count` matrices of one shape that follow each other; each row passes one of them.
  StepCost Product(uint32_t first_matrix, uint64_t count, bool int8, uint64_t rows) const {
    const TensorView& weight = TensorOf(first_matrix);
    StepCost cost;
    for (uint64_t i = 0; i < count; ++i) cost.weight_bytes += plan_.packed.matrices[first_matrix + i].bytes;
    (int8 ? cost.int8_multiply_adds : cost.float_multiply_adds) = rows * weight.rows() * weight.columns();
    return cost;
  }
  // A matrix for each head.
  StepCost HeadProducts(uint32_t layer, uint32_t first_matrix, const RowsBuffer& in) const {
    const uint64_t heads = AttentionOf(layer).n_heads;
    const TensorView& weight = TensorOf(first_matrix);
    StepCost cost = Product(first_matrix, heads, in.int8 != kNoBuffer, n_ * heads);
    cost.activation_bytes = n_ * heads * (weight.rows() + weight.columns()) * kF32Bytes;
    return cost;
  }

  const ModelView& model_;
  const Plan& plan_;
  const uint64_t n_, first_pos_;
};

StepCost CostOfSteps(const ModelView& model, const Plan& plan, std::span<const Step> steps, const StepRows& rows) {
  StepCost cost;
  for (const Step& step : steps) cost += CostOfStep(model, plan, step, rows);
  return cost;
}

}  // namespace

StepCost& StepCost::operator+=(const StepCost& other) {
  weight_bytes += other.weight_bytes;
  kv_bytes += other.kv_bytes;
  activation_bytes += other.activation_bytes;
  int8_multiply_adds += other.int8_multiply_adds;
  float_multiply_adds += other.float_multiply_adds;
  return *this;
}

StepCost CostOfStep(const ModelView& model, const Plan& plan, const Step& step, const StepRows& rows) {
  return std::visit(Coster(model, plan, rows), step.data);
}

StepCost CostOfPrefill(const ModelView& model, const Plan& plan, uint32_t position, uint32_t n_tokens) {
  const std::span<const Step> steps = plan.prefill.steps;
  StepCost cost;
  for (uint32_t done = 0; done < n_tokens;) {
    const uint32_t rows = std::min(plan.prefill.max_tokens, n_tokens - done);
    cost += CostOfSteps(model, plan, steps.first(plan.prefill.head_begin), {rows, position + done});
    done += rows;
  }
  cost += CostOfSteps(model, plan, steps.subspan(plan.prefill.head_begin), {1, position + n_tokens - 1});
  return cost;
}

StepCost CostOfDecode(const ModelView& model, const Plan& plan, uint32_t position, uint32_t n_tokens) {
  StepCost cost;
  for (uint32_t i = 0; i < n_tokens; ++i) cost += CostOfSteps(model, plan, plan.decode.steps, {1, position + i});
  return cost;
}

}  // namespace linnet
