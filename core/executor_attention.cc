// The attention steps of Executor.
#include <cstring>

#include "core/executor.h"
#include "ops/attention.h"
#include "ops/norm.h"
#include "ops/quantize_activations.h"
#include "ops/rope.h"
#include "ops/walsh_hadamard.h"

namespace linnet {
namespace {

// Each head of one row, in place; `block` divides a head.
void RotateHeads(float* heads, size_t width, size_t block) {
  if (block > 1) ops::WalshHadamard({heads, width}, 1, width, block, {heads, width});
}

}  // namespace

// QK-norm of the heads of one row, in place.
void Executor::NormHeads(const NormWeights& norm, QkNorm kind, float* heads, size_t n_heads, size_t head_dim) const {
  if (kind == QkNorm::kNone) return;
  const bool full = kind == QkNorm::kFullWidth;
  const size_t rows = full ? 1 : n_heads, width = full ? n_heads * head_dim : head_dim;
  const ops::NormParams params = {.eps = norm.spec.eps,
                                  .gain = Values(norm.gain),
                                  .bias = Values(norm.bias),
                                  .gain_stride = kind == QkNorm::kPerHeadGain ? head_dim : 0,
                                  .gain_plus_one = norm.spec.gain_plus_one};
  if (norm.spec.kind == NormKind::kLayerNorm) {
    ops::LayerNorm({heads, width}, rows, width, params, {heads, width});
  } else {
    ops::RmsNorm({heads, width}, rows, width, params, {heads, width});
  }
}

// Norm and position of the queries and keys of one row of stacked q, k, v, and the cache's rotation of all three.
void Executor::PrepareRow(const HeadsStep& step, size_t row) const {
  const AttentionSpec& spec = attention(step.layer);
  const size_t q_width = size_t{spec.n_heads} * spec.head_dim, k_width = size_t{spec.n_kv_heads} * spec.head_dim;
  const size_t v_width = size_t{spec.n_kv_heads} * spec.value_dim, width = q_width + k_width + v_width;
  float* q = At<float>(step.qkv) + row * width;
  NormHeads(step.q_norm, spec.qk_norm, q, spec.n_heads, spec.head_dim);
  NormHeads(step.k_norm, spec.qk_norm, q + q_width, spec.n_kv_heads, spec.head_dim);
  // Keys follow the queries, so that one call serves both.
  if (spec.rope >= 0) {
    const RopeSpec& rope = model_->config().ropes[static_cast<size_t>(spec.rope)];
    const size_t pairs = rope.rope_dim / 2;
    ops::ApplyRope({q, width}, 1,
                   {.n_heads = size_t{spec.n_heads} + spec.n_kv_heads,
                    .head_stride = spec.head_dim,
                    .rope_dim = rope.rope_dim,
                    .rope_offset = 0,
                    .layout = rope.layout},
                   At<float>(step.cos) + row * pairs, At<float>(step.sin) + row * pairs);
  }
  RotateHeads(q, q_width + k_width, ops::KvRotationBlock(plan_->kv_type, spec.head_dim));
  RotateHeads(q + q_width + k_width, v_width, ops::KvRotationBlock(plan_->kv_type, spec.value_dim));
}

void Executor::StoreKv(uint32_t layer, const float* k, size_t k_stride, const float* v, size_t v_stride) {
  const ops::KvStoreArgs args = {.layout = &plan_->kv[layer],
                                 .cache = KvLayer(layer),
                                 .first_pos = current_.pass.first_pos,
                                 .n_tokens = current_.n_rows,
                                 .k = k,
                                 .k_token_stride = k_stride,
                                 .v = v,
                                 .v_token_stride = v_stride};
  if (current_.n_rows == 1) {
    ops::StoreKv(args);
    return;
  }
  pool_->ParallelFor(ops::KvStoreTaskCount(args), [&](size_t task, size_t) { ops::RunKvStoreTask(args, task); });
}

Status Executor::Run(const HeadsStep& step) {
  const AttentionSpec& spec = attention(step.layer);
  ForRows(current_.n_rows, [&](size_t first, size_t n, size_t) {
    for (size_t r = first; r < first + n; ++r) PrepareRow(step, r);
  });
  const size_t q_width = size_t{spec.n_heads} * spec.head_dim, k_width = size_t{spec.n_kv_heads} * spec.head_dim;
  const size_t width = q_width + k_width + size_t{spec.n_kv_heads} * spec.value_dim;
  const float* k = At<float>(step.qkv) + q_width;
  StoreKv(step.layer, k, width, k + k_width, width);
  return Status::Ok();
}

Status Executor::Run(const AttentionStep& step) {
  const AttentionSpec& spec = attention(step.layer);
  const ops::KvLayout& layout = plan_->kv[step.layer];
  const size_t out_stride = layout.shape.value_dim;
  const ops::AttentionArgs args = {
      .layout = &layout,
      .cache = KvLayer(step.layer),
      .n_heads = spec.n_heads,
      .first_pos = current_.pass.first_pos + current_.stream_row,
      .n_tokens = current_.n_rows,
      .q = At<float>(step.q) + size_t{current_.stream_row} * step.q_stride,
      .q_token_stride = step.q_stride,
      .q_head_stride = step.q_head_stride,
      .out = At<float>(step.out),
      .out_token_stride = spec.n_heads * out_stride,
      .out_head_stride = out_stride,
      .options = {.score_scale = spec.score_scale,
                  .logit_soft_cap = spec.logit_soft_cap,
                  .window = spec.window,
                  .sinks = Values(step.sinks),
                  .alibi_slopes = alibi_slopes_[step.layer].empty() ? nullptr : alibi_slopes_[step.layer].data()}};
  auto* partials = At<std::byte>(step.partials);
  pool_->ParallelFor(ops::AttentionTaskCount(args), [&](size_t task, size_t thread) {
    ops::RunAttentionTask(args, task, reinterpret_cast<std::byte*>(ThreadScratch(step.thread_scratch, thread)),
                          partials);
  });
  // Merging is little work; only a long context's many splits are worth waking the threads for.
  const size_t merges = ops::AttentionMergeTaskCount(args);
  for (size_t task = 0; task < merges; ++task) ops::RunAttentionMergeTask(args, task, partials);
  const size_t rotation = ops::KvRotationBlock(plan_->kv_type, layout.shape.value_dim);
  if (rotation > 1) {
    ForRows(current_.n_rows, [&](size_t first, size_t n, size_t) {
      for (size_t r = first; r < first + n; ++r) {
        RotateHeads(args.out + r * args.out_token_stride, args.out_token_stride, rotation);
      }
    });
  }
  return Status::Ok();
}

Status Executor::Run(const LatentHeadsStep& step) {
  const AttentionSpec& spec = attention(step.layer);
  const size_t rank = spec.kv_lora_rank;
  const size_t rope_dim = plan_->kv[step.layer].shape.head_dim - rank;
  const size_t cached = rank + rope_dim;
  ForRows(current_.n_rows, [&](size_t first, size_t n, size_t) {
    for (size_t r = first; r < first + n; ++r) {
      const float* latent = At<float>(step.latent) + r * step.latent_width + step.kv_offset;
      float* row = At<float>(step.row) + r * cached;
      NormRows(step.kv_norm, {latent, rank}, 1, rank, {row, rank});
      RotateHeads(row, rank, ops::KvRotationBlock(plan_->kv_type, rank));
      std::memcpy(row + rank, latent + rank, rope_dim * sizeof(float));
      if (rope_dim == 0) continue;
      const RopeLayout layout = model_->config().ropes[static_cast<size_t>(spec.rope)].layout;
      const float* cos = At<float>(step.cos) + r * (rope_dim / 2);
      const float* sin = At<float>(step.sin) + r * (rope_dim / 2);
      ops::ApplyRope({row, cached}, 1,
                     {.n_heads = 1, .head_stride = cached, .rope_dim = rope_dim, .rope_offset = rank, .layout = layout},
                     cos, sin);
      ops::ApplyRope({At<float>(step.q) + r * step.q_stride, step.q_stride}, 1,
                     {.n_heads = spec.n_heads,
                      .head_stride = spec.head_dim,
                      .rope_dim = rope_dim,
                      .rope_offset = spec.head_dim - rope_dim,
                      .layout = layout},
                     cos, sin);
    }
  });
  StoreKv(step.layer, At<float>(step.row), cached, nullptr, 0);
  return Status::Ok();
}

// One head's product: `in.f32` [n_rows, k] holds the head's values side by side.
Status Executor::HeadProduct(uint32_t matrix, size_t k, const RowsBuffer& in, uint32_t rotation_block, BufferId out,
                             BufferId scratch) {
  RowsBuffer rows = {.f32 = in.f32};
  if (linears_[matrix].quantized_input()) {
    ForRows(current_.n_rows, [&](size_t first, size_t n, size_t thread) {
      QuantizeTo(in, {At<float>(in.f32) + first * k, k}, first, n, k, rotation_block, ThreadScratch(scratch, thread));
    });
    rows = {.int8 = in.int8, .quantization = in.quantization};
  }
  return Multiply(matrix, Input(rows), current_.n_rows, At<float>(out));
}

Status Executor::Run(const AbsorbStep& step) {
  const AttentionSpec& spec = attention(step.layer);
  const size_t rank = spec.kv_lora_rank, cached = plan_->kv[step.layer].shape.head_dim;
  const size_t rope_dim = cached - rank, nope = spec.head_dim - rope_dim;
  for (uint32_t h = 0; h < spec.n_heads; ++h) {
    const float* q = At<float>(step.q) + h * spec.head_dim;
    float* head_in = At<float>(step.head_in.f32);
    for (size_t r = 0; r < current_.n_rows; ++r) {
      std::memcpy(head_in + r * nope, q + r * step.q_stride, nope * sizeof(float));
    }
    LINNET_RETURN_IF_ERROR(
        HeadProduct(step.first_matrix + h, nope, step.head_in, step.rotation_block, step.head_out, step.scratch));
    const float* head_out = At<float>(step.head_out);
    for (size_t r = 0; r < current_.n_rows; ++r) {
      float* absorbed = At<float>(step.absorbed) + (r * spec.n_heads + h) * cached;
      std::memcpy(absorbed, head_out + r * rank, rank * sizeof(float));
      RotateHeads(absorbed, rank, ops::KvRotationBlock(plan_->kv_type, rank));
      std::memcpy(absorbed + rank, q + r * step.q_stride + nope, rope_dim * sizeof(float));
    }
  }
  return Status::Ok();
}

Status Executor::Run(const ValueUpStep& step) {
  const AttentionSpec& spec = attention(step.layer);
  const size_t rank = spec.kv_lora_rank, width = spec.value_dim;
  for (uint32_t h = 0; h < spec.n_heads; ++h) {
    float* head_in = At<float>(step.head_in.f32);
    for (size_t r = 0; r < current_.n_rows; ++r) {
      std::memcpy(head_in + r * rank, At<float>(step.latents) + (r * spec.n_heads + h) * rank, rank * sizeof(float));
    }
    LINNET_RETURN_IF_ERROR(
        HeadProduct(step.first_matrix + h, rank, step.head_in, step.rotation_block, step.head_out, step.scratch));
    for (size_t r = 0; r < current_.n_rows; ++r) {
      std::memcpy(At<float>(step.out) + (r * spec.n_heads + h) * width, At<float>(step.head_out) + r * width,
                  width * sizeof(float));
    }
  }
  return Status::Ok();
}

}  // namespace linnet
