// The attention and FFN parts of PlanBuilder.
#include "core/plan_builder.h"
#include "ops/attention.h"
#include "ops/routing.h"
#include "ops/matrix_product.h"

namespace linnet {
namespace {

bool NeedsInt8(const TensorView& weight) { return IsQuantized(weight.dtype); }

}  // namespace

BufferId PlanBuilder::Attention(int32_t layer, const BlockSpec& block, Ready& in) {
  Ready heads;
  heads.rows.f32 = block.attention.kind == AttentionKind::kLatent ? LatentAttention(layer, block.attention, in)
                                                                  : GroupedAttention(layer, block.attention, in);
  return Product("attention.out", layer, Find(TensorRole::kAttentionOut, layer), heads);
}

BufferId PlanBuilder::AttentionOver(int32_t layer, BufferId q, uint32_t q_stride, uint32_t q_head_stride) {
  const ops::KvLayout& layout = plan_.kv[static_cast<size_t>(layer)];
  const uint32_t n_heads = config_.layer(static_cast<uint32_t>(layer)).attention.n_heads;
  const BufferId out = NewRows("attention", uint64_t{n_heads} * layout.shape.value_dim);
  const BufferId scratch = ThreadScratch(ops::AttentionThreadScratchBytes(layout) / sizeof(float));
  const BufferId partials =
      NewBuffer("attention partials", BufferUse::kScratch, ops::AttentionPartialBytes(layout, n_heads));
  Add("attention", layer,
      AttentionStep{.layer = static_cast<uint32_t>(layer),
                    .q = q,
                    .q_stride = q_stride,
                    .q_head_stride = q_head_stride,
                    .out = out,
                    .thread_scratch = scratch,
                    .partials = partials,
                    .sinks = Find(TensorRole::kSinks, layer)},
      {q, out, scratch, partials});
  return out;
}

BufferId PlanBuilder::GroupedAttention(int32_t layer, const AttentionSpec& attention, Ready& in) {
  const TensorIndex weight = Find(TensorRole::kQkv, layer);
  const auto width = static_cast<uint32_t>(tensor(weight).rows());
  const BufferId qkv = Product("attention.qkv", layer, weight, in);
  const bool rotated = attention.rope >= 0;
  const RopeBuffers rope = rotated ? ropes_[static_cast<size_t>(attention.rope)] : RopeBuffers{};
  Add("attention.heads", layer,
      HeadsStep{.layer = static_cast<uint32_t>(layer),
                .qkv = qkv,
                .cos = rope.cos,
                .sin = rope.sin,
                .q_norm = Norm(attention.qk_norm_spec, TensorRole::kQNormGain, TensorRole::kQNormBias, layer),
                .k_norm = Norm(attention.qk_norm_spec, TensorRole::kKNormGain, TensorRole::kKNormBias, layer)},
      {qkv, rope.cos, rope.sin});
  return AttentionOver(layer, qkv, width, attention.head_dim);
}

// The queries [., H * D]: straight from the stacked rows, or through the low-rank latent and its norm.
BufferId PlanBuilder::LatentQueries(int32_t layer, const AttentionSpec& attention, BufferId latent,
                                    uint32_t latent_width, uint32_t* q_stride) {
  if (attention.q_lora_rank == 0) {
    *q_stride = latent_width;
    return latent;
  }
  const TensorIndex weight = Find(TensorRole::kLatentQ, layer);
  const bool int8 = NeedsInt8(tensor(weight));
  Ready normed;
  normed.rotation_block = tensor(weight).rotation_block;
  normed.rows = NewRowsFor("q latent", attention.q_lora_rank, !int8, int8);
  const BufferId scratch = int8 ? ThreadScratch(2 * uint64_t{attention.q_lora_rank}) : kNoBuffer;
  Add("attention.q_norm", layer,
      NormStep{.norm = {.spec = attention.latent_norm, .gain = Find(TensorRole::kLatentQNormGain, layer)},
               .in = latent,
               .width = attention.q_lora_rank,
               .in_stride = latent_width,
               .in_offset = 0,
               .out = normed.rows,
               .rotation_block = normed.rotation_block,
               .scratch = scratch},
      {latent, normed.rows.f32, normed.rows.int8, normed.rows.quantization, scratch});
  *q_stride = attention.n_heads * attention.head_dim;
  return Product("attention.q", layer, weight, normed);
}

BufferId PlanBuilder::LatentAttention(int32_t layer, const AttentionSpec& attention, Ready& in) {
  const auto index = static_cast<uint32_t>(layer);
  const uint32_t rope_dim = attention.rope >= 0 ? config_.ropes[static_cast<size_t>(attention.rope)].rope_dim : 0;
  const uint32_t cached = attention.kv_lora_rank + rope_dim, nope = attention.head_dim - rope_dim;
  const TensorIndex in_weight = Find(TensorRole::kLatentIn, layer);
  const auto latent_width = static_cast<uint32_t>(tensor(in_weight).rows());
  const BufferId latent = Product("attention.latent", layer, in_weight, in);
  uint32_t q_stride = 0;
  const BufferId q = LatentQueries(layer, attention, latent, latent_width, &q_stride);

  const RopeBuffers rope = rope_dim > 0 ? ropes_[static_cast<size_t>(attention.rope)] : RopeBuffers{};
  const BufferId row = NewRows("latent row", cached);
  Add("attention.heads", layer,
      LatentHeadsStep{.layer = index,
                      .latent = latent,
                      .latent_width = latent_width,
                      .kv_offset = latent_width - cached,
                      .q = q,
                      .q_stride = q_stride,
                      .cos = rope.cos,
                      .sin = rope.sin,
                      .kv_norm = {.spec = attention.latent_norm, .gain = Find(TensorRole::kLatentKvNormGain, layer)},
                      .row = row},
      {latent, q, rope.cos, rope.sin, row});

  const auto per_head = [&](TensorRole role, uint32_t k, uint32_t n, RowsBuffer* head_in, BufferId* head_out) {
    const TensorView& weight = tensor(Find(role, layer));
    *head_in = NewRowsFor("head input", k, true, NeedsInt8(weight));
    *head_out = NewRows("head output", n);
    return weight.rotation_block;
  };
  AbsorbStep absorb = {
      .layer = index, .first_matrix = FirstMatrix(Find(TensorRole::kLatentKeyUp, layer)), .q = q, .q_stride = q_stride};
  absorb.rotation_block =
      per_head(TensorRole::kLatentKeyUp, nope, attention.kv_lora_rank, &absorb.head_in, &absorb.head_out);
  absorb.absorbed = NewRows("absorbed query", uint64_t{attention.n_heads} * cached);
  absorb.scratch = ThreadScratch(nope);
  Add("attention.absorb", layer, absorb,
      {q, absorb.head_in.f32, absorb.head_in.int8, absorb.head_in.quantization, absorb.head_out, absorb.absorbed,
       absorb.scratch});

  ValueUpStep value = {.layer = index, .first_matrix = FirstMatrix(Find(TensorRole::kLatentValueUp, layer))};
  value.latents = AttentionOver(layer, absorb.absorbed, attention.n_heads * cached, cached);
  value.rotation_block = per_head(TensorRole::kLatentValueUp, attention.kv_lora_rank, attention.value_dim,
                                  &value.head_in, &value.head_out);
  value.out = NewRows("attention values", uint64_t{attention.n_heads} * attention.value_dim);
  value.scratch = ThreadScratch(attention.kv_lora_rank);
  Add("attention.values", layer, value,
      {value.latents, value.head_in.f32, value.head_in.int8, value.head_in.quantization, value.head_out, value.out,
       value.scratch});
  return value.out;
}

BufferId PlanBuilder::Ffn(int32_t layer, const FfnSpec& ffn, Ready& in) {
  if (ffn.n_experts > 0) return MixtureOfExperts(layer, ffn, in);
  const BufferId up = Product("ffn.up", layer, Find(TensorRole::kFfnUp, layer), in);
  const TensorIndex down = Find(TensorRole::kFfnDown, layer);
  Ready activated = Activate("ffn.activation", layer, ffn, up, ffn.ffn_dim, down);
  return Product("ffn.down", layer, down, activated);
}

BufferId PlanBuilder::MixtureOfExperts(int32_t layer, const FfnSpec& ffn, Ready& in) {
  const uint64_t chosen = row_count_ * ffn.top_k;
  RouteStep route = {.ffn = &ffn,
                     .router = Find(TensorRole::kRouter, layer),
                     .bias = Find(TensorRole::kRouterBias, layer),
                     .selection_bias = Find(TensorRole::kRouterSelectionBias, layer),
                     .in = in.rows.f32};
  route.logits = NewRows("router logits", ffn.n_experts);
  route.ids = NewBuffer("expert ids", BufferUse::kActivation, chosen * sizeof(uint32_t));
  route.weights = NewBuffer("expert weights", BufferUse::kActivation, chosen * sizeof(float));
  route.scratch = ThreadScratch(ops::RoutingScratchFloats(ffn));
  Add("ffn.router", layer, route, {route.in, route.logits, route.ids, route.weights, route.scratch});

  const TensorIndex up = Find(TensorRole::kExpertUp, layer), down = Find(TensorRole::kExpertDown, layer);
  const bool up_int8 = NeedsInt8(tensor(up)), down_int8 = NeedsInt8(tensor(down));
  ExpertsStep experts = {.ffn = &ffn, .first_up = FirstMatrix(up), .first_down = FirstMatrix(down)};
  experts.in = RowsFor(up, layer, in, config_.model_dim);
  experts.ids = route.ids;
  experts.weights = route.weights;
  experts.order = NewBuffer("expert order", BufferUse::kScratch, (chosen + ffn.n_experts + 1) * sizeof(uint32_t));
  experts.row_weights = NewBuffer("expert row weights", BufferUse::kScratch, chosen * sizeof(float));
  experts.gathered = NewRowsFor("expert input", config_.model_dim, !up_int8, up_int8);
  experts.up = NewRows("expert up", tensor(up).rows());
  experts.activated = NewRowsFor("expert activated", ffn.ffn_dim, !down_int8, down_int8);
  experts.down_rotation = tensor(down).rotation_block;
  experts.down = NewRows("expert down", config_.model_dim);
  experts.out = NewRows("experts", config_.model_dim);
  experts.scratch = ThreadScratch(2 * uint64_t{ffn.ffn_dim});
  Add("ffn.experts", layer, experts,
      {experts.in.f32, experts.in.int8, experts.in.quantization, experts.ids, experts.weights, experts.order,
       experts.row_weights, experts.gathered.f32, experts.gathered.int8, experts.gathered.quantization, experts.up,
       experts.activated.f32, experts.activated.int8, experts.activated.quantization, experts.down, experts.out,
       experts.scratch});
  if (ffn.shared_ffn_dim > 0) SharedExpert(layer, ffn, in, experts.out);
  return experts.out;
}

void PlanBuilder::SharedExpert(int32_t layer, const FfnSpec& ffn, Ready& in, BufferId out) {
  const BufferId up = Product("ffn.shared_up", layer, Find(TensorRole::kSharedUp, layer), in);
  const TensorIndex down = Find(TensorRole::kSharedDown, layer);
  Ready activated = Activate("ffn.shared_activation", layer, ffn, up, ffn.shared_ffn_dim, down);
  const BufferId shared = Product("ffn.shared_down", layer, down, activated);
  if (ffn.shared_gate) {
    const BufferId gates = NewRows("shared gates", 1);
    Add("ffn.shared_gate", layer,
        SharedGateStep{.gate = Find(TensorRole::kSharedGate, layer), .x = in.rows.f32, .in = shared, .scratch = gates},
        {in.rows.f32, shared, gates});
  }
  Add("ffn.shared_add", layer,
      ResidualStep{.stream = out, .branch = shared, .residual_scale = 1.0f, .branch_scale = 1.0f}, {out, shared});
}

}  // namespace linnet
