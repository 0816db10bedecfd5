#include "core/executor.h"

#include <bit>
#include <cmath>
#include <utility>

#include "core/rope_frequencies.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/norm.h"
#include "ops/quantize_activations.h"
#include "ops/rope.h"

namespace linnet {
namespace {

// Slopes of arXiv:2108.12409: a geometric series for a power of two of heads; other counts take every second value of
// the next power's series for the rest.
std::vector<float> AlibiSlopes(uint32_t n_heads) {
  const uint32_t power = std::bit_floor(n_heads);
  std::vector<float> slopes(n_heads);
  for (uint32_t h = 0; h < n_heads; ++h) {
    const double exponent = h < power ? -8.0 * (h + 1) / power : -4.0 * (2 * (h - power) + 1) / power;
    slopes[h] = static_cast<float>(std::exp2(exponent));
  }
  return slopes;
}

// The table of the 2017 transformer: sine in even places, cosine in odd ones.
void AddSinusoidalRow(uint32_t pos, std::span<float> row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const double angle = pos / std::pow(10000.0, static_cast<double>(i / 2 * 2) / static_cast<double>(row.size()));
    row[i] += static_cast<float>(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
  }
}

}  // namespace

Executor::Executor(const ModelView& model, const Plan& plan, const Memory& memory, ops::ThreadPool& pool)
    : model_(&model), plan_(&plan), memory_(memory), pool_(&pool) {
  const ModelConfig& config = model.config();
  alibi_slopes_.resize(config.n_layers);
  for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
    if (attention(layer).alibi) alibi_slopes_[layer] = AlibiSlopes(attention(layer).n_heads);
  }
  for (const RopeSpec& rope : config.ropes) {
    rope_inv_freq_.emplace_back(rope.rope_dim / 2);
    ComputeRopeFrequencies(rope, 0, rope_inv_freq_.back());
    rope_length_.push_back(0);
  }
}

Executor::Memory Executor::Memory::Place(const MemoryPlan& plan, std::byte* memory) {
  Memory placed;
  placed.kv = memory;
  std::byte* next = memory + plan.kv_cache;
  for (const auto& [use, bytes] :
       {std::pair{BufferUse::kActivation, plan.activations}, std::pair{BufferUse::kScratch, plan.scratch},
        std::pair{BufferUse::kLogits, plan.logits}}) {
    placed.regions[static_cast<size_t>(use)] = next;
    next += bytes;
  }
  return placed;
}

Result<Executor> Executor::Create(const ModelView& model, const Plan& plan, std::span<const std::byte> packed,
                                  const Memory& memory, ops::ThreadPool& pool) {
  LINNET_ASSIGN_OR_RETURN(const std::span<const uint32_t> seeds, OpenPackedWeights(model, plan.packed, packed));
  Executor executor(model, plan, memory, pool);
  executor.linears_.reserve(plan.packed.matrices.size());
  for (size_t i = 0; i < plan.packed.matrices.size(); ++i) {
    const PackedMatrix& matrix = plan.packed.matrices[i];
    LINNET_ASSIGN_OR_RETURN(ops::MatrixProduct product,
                            ops::MatrixProduct::Create(model.tensors()[matrix.tensor], matrix.group,
                                                       packed.subspan(matrix.offset, matrix.bytes), seeds[i]));
    executor.linears_.push_back(std::move(product));
  }
  return executor;
}

ops::Rows Executor::RowsAt(BufferId buffer, size_t width) const { return {At<float>(buffer), width}; }

float* Executor::ThreadScratch(BufferId buffer, size_t thread) const {
  const uint64_t bytes = current_.plan->buffers[buffer].bytes / plan_->options.n_threads;
  return reinterpret_cast<float*>(At<std::byte>(buffer) + thread * bytes);
}

ops::LinearInput Executor::Input(const RowsBuffer& rows) const {
  if (rows.int8 == kNoBuffer) return {.f32 = At<float>(rows.f32)};
  return {.int8 = At<int8_t>(rows.int8), .rows = At<ops::RowQuantization>(rows.quantization)};
}

Status Executor::RunSteps(size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    LINNET_RETURN_IF_ERROR(std::visit([this](const auto& step) { return Run(step); }, current_.plan->steps[i].data));
    if (observer_.function != nullptr) observer_.function(observer_.context, *this, *current_.plan, i);
  }
  return Status::Ok();
}

Status Executor::RunBody(const ExecutionPlan& plan, const Pass& pass, uint32_t first_row) {
  const auto n_tokens = static_cast<uint32_t>(pass.ids.size());
  current_ = {.plan = &plan, .pass = pass, .n_rows = n_tokens, .stream_row = 0};
  if (pass.stream != nullptr) std::copy_n(pass.stream, pass.ids.size() * model_dim(), stream(plan));
  LINNET_RETURN_IF_ERROR(RunSteps(pass.stream == nullptr ? 0 : plan.body_begin, plan.tail_begin));
  if (observer_.function != nullptr) first_row = 0;
  if (first_row >= n_tokens) return Status::Ok();
  current_.n_rows = n_tokens - first_row;
  current_.stream_row = first_row;
  return RunSteps(plan.tail_begin, plan.head_begin);
}

Status Executor::RunHead(const ExecutionPlan& plan, uint32_t first_row, uint32_t n_rows) {
  current_ = {.plan = &plan, .pass = {}, .n_rows = n_rows, .stream_row = first_row};
  return RunSteps(plan.head_begin, plan.steps.size());
}

Status Executor::Run(const EmbedStep& step) {
  const TensorView& table = tensor(step.table);
  const float scale = model_->config().embedding_scale;
  ForRows(current_.n_rows, [&](size_t first, size_t n, size_t) {
    ops::EmbeddingLookup(table, current_.pass.ids.subspan(first, n), scale,
                         {At<float>(step.x) + first * model_dim(), model_dim()});
  });
  return Status::Ok();
}

Status Executor::Run(const PositionStep& step) {
  const ops::Rows x = RowsAt(step.x, model_dim());
  if (step.table != kNoTensor) {
    const size_t first_row = size_t{current_.pass.first_pos} + model_->config().position_offset;
    ops::AddPositionRows(tensor(step.table), first_row, current_.n_rows, x);
    return Status::Ok();
  }
  for (uint32_t r = 0; r < current_.n_rows; ++r) {
    AddSinusoidalRow(current_.pass.first_pos + r, {x.row(r), model_dim()});
  }
  return Status::Ok();
}

Status Executor::Run(const RopeTableStep& step) {
  const RopeSpec& rope = model_->config().ropes[step.rope];
  std::vector<float>& inv_freq = rope_inv_freq_[step.rope];
  const uint32_t length = current_.pass.sequence_tokens;
  if (RopeDependsOnLength(rope) && rope_length_[step.rope] != length) {
    ComputeRopeFrequencies(rope, length, inv_freq);
    rope_length_[step.rope] = length;
  }
  const size_t pairs = inv_freq.size();
  ForRows(current_.n_rows, [&](size_t first, size_t n, size_t) {
    ops::ComputeRopeTable({.inv_freq = inv_freq,
                           .cos_sin_scale = rope.cos_sin_scale,
                           .first_pos = current_.pass.first_pos + first,
                           .n_tokens = n},
                          At<float>(step.cos) + first * pairs, At<float>(step.sin) + first * pairs);
  });
  return Status::Ok();
}

void Executor::NormRows(const NormWeights& norm, ops::ConstRows in, size_t n_rows, size_t width, ops::Rows out) const {
  const ops::NormParams params = {.eps = norm.spec.eps,
                                  .gain = Values(norm.gain),
                                  .bias = Values(norm.bias),
                                  .gain_stride = 0,
                                  .gain_plus_one = norm.spec.gain_plus_one};
  if (norm.spec.kind == NormKind::kLayerNorm) {
    ops::LayerNorm(in, n_rows, width, params, out);
  } else {
    ops::RmsNorm(in, n_rows, width, params, out);
  }
}

// Rows [row, row + n_rows) of the int8 form of `out` from `in`, whose first row is `row`.
void Executor::QuantizeTo(const RowsBuffer& out, ops::ConstRows in, size_t row, size_t n_rows, size_t width,
                          uint32_t rotation_block, float* scratch) const {
  ops::QuantizeRows({.n_rows = n_rows, .width = width, .rotation_block = rotation_block}, in, {scratch, width},
                    {.values = {At<int8_t>(out.int8) + row * width, width},
                     .params = At<ops::RowQuantization>(out.quantization) + row});
}

Status Executor::Run(const NormStep& step) {
  const size_t width = step.width;
  const float* in = At<float>(step.in) + step.in_offset;
  ForRows(current_.n_rows, [&](size_t first, size_t n, size_t thread) {
    // Row by row, so that what was normed is quantized while it is in the first cache.
    for (size_t r = first; r < first + n; ++r) {
      const ops::ConstRows row = {in + r * step.in_stride, width};
      float* scratch = step.scratch == kNoBuffer ? nullptr : ThreadScratch(step.scratch, thread);
      float* normed = step.out.f32 == kNoBuffer ? scratch + width : At<float>(step.out.f32) + r * width;
      NormRows(step.norm, row, 1, width, {normed, width});
      if (step.out.int8 != kNoBuffer) QuantizeTo(step.out, {normed, width}, r, 1, width, step.rotation_block, scratch);
    }
  });
  return Status::Ok();
}

Status Executor::Run(const QuantizeStep& step) {
  const size_t width = step.width;
  ForRows(current_.n_rows, [&](size_t first, size_t n, size_t thread) {
    QuantizeTo(step.out, {At<float>(step.in) + first * width, width}, first, n, width, step.rotation_block,
               ThreadScratch(step.scratch, thread));
  });
  return Status::Ok();
}

Status Executor::Multiply(uint32_t matrix, const ops::LinearInput& input, size_t n_rows, float* out) {
  if (product_observer_.function != nullptr) {
    product_observer_.function(product_observer_.context, matrix, input, n_rows);
  }
  return linears_[matrix].Run(input, n_rows, out, *pool_);
}

Status Executor::Run(const LinearStep& step) {
  return Multiply(step.matrix, Input(step.in), current_.n_rows, At<float>(step.out));
}

void Executor::ActivateRow(const FfnSpec& ffn, const float* up, size_t row, size_t width, const RowsBuffer& out,
                           uint32_t rotation_block, float* scratch) const {
  const ops::ActivationSpec spec = {.kind = ffn.activation, .clamp = ffn.clamp};
  float* activated = out.f32 == kNoBuffer ? scratch + width : At<float>(out.f32) + row * width;
  if (ffn.gated) {
    ops::GatedActivation(spec, {up, 2 * width}, 1, width, {activated, width});
  } else {
    ops::PlainActivation(spec, {up, width}, 1, width, {activated, width});
  }
  if (out.int8 != kNoBuffer) QuantizeTo(out, {activated, width}, row, 1, width, rotation_block, scratch);
}

Status Executor::Run(const ActivationStep& step) {
  const size_t in_width = step.ffn->gated ? 2 * size_t{step.width} : step.width;
  const float* up = At<float>(step.up);
  ForRows(current_.n_rows, [&](size_t first, size_t n, size_t thread) {
    float* scratch = step.scratch == kNoBuffer ? nullptr : ThreadScratch(step.scratch, thread);
    for (size_t r = first; r < first + n; ++r) {
      ActivateRow(*step.ffn, up + r * in_width, r, step.width, step.out, step.rotation_block, scratch);
    }
  });
  return Status::Ok();
}

Status Executor::Run(const ResidualStep& step) {
  const size_t width = model_dim();
  ForRows(current_.n_rows, [&](size_t first, size_t n, size_t) {
    ops::ResidualAdd({.residual = step.residual_scale, .branch = step.branch_scale},
                     {At<float>(step.branch) + first * width, width}, n, width,
                     {At<float>(step.stream) + first * width, width});
  });
  return Status::Ok();
}

Status Executor::Run(const LogitsStep& step) {
  const size_t width = model_->config().vocab_size;
  const ops::Rows logits = RowsAt(step.logits, width);
  const float scale = model_->config().logit_scale, cap = model_->config().logit_soft_cap;
  if (scale != 1.0f) ops::ScaleRows(logits, current_.n_rows, width, scale);
  if (cap > 0.0f) ops::SoftCap(logits, current_.n_rows, width, cap);
  return Status::Ok();
}

}  // namespace linnet
