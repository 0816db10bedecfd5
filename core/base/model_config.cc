#include "core/base/model_config.h"

#include <cmath>

namespace linnet {
namespace {

constexpr size_t kMaxFamilyBytes = 256;  // a name for people; longer is not a name

constexpr Status Invalid(const char* message, int64_t value = -1) {
  return {StatusCode::kInvalidModel, message, value};
}

/// Returns kInvalidModel with the static text from the enclosing function where the condition does not hold.
#define LINNET_REQUIRE_FIELD(condition, message, value) \
  do {                                                  \
    if (!(condition)) return Invalid(message, value);   \
  } while (false)

constexpr bool InRange(uint64_t value, uint64_t low, uint64_t high) { return value >= low && value <= high; }
bool IsPositive(double value) { return std::isfinite(value) && value > 0.0; }
bool IsNonNegative(double value) { return std::isfinite(value) && value >= 0.0; }
bool IsNonZero(double value) { return std::isfinite(value) && value != 0.0; }

template <typename Enum>
constexpr bool IsEnumerator(Enum value, Enum last) {
  return static_cast<uint8_t>(value) <= static_cast<uint8_t>(last);
}

Status ValidateNorm(const NormSpec& norm) {
  LINNET_REQUIRE_FIELD(IsEnumerator(norm.kind, NormKind::kLayerNorm), "norm kind is unknown",
                       static_cast<int64_t>(norm.kind));
  if (norm.kind == NormKind::kNone) {
    LINNET_REQUIRE_FIELD(!norm.has_gain && !norm.has_bias && !norm.gain_plus_one, "absent norm has a gain or a bias",
                         -1);
    return Status::Ok();
  }
  LINNET_REQUIRE_FIELD(IsPositive(norm.eps), "norm eps is not a positive number", -1);
  LINNET_REQUIRE_FIELD(norm.has_gain || !norm.gain_plus_one, "norm gain_plus_one without a gain", -1);
  LINNET_REQUIRE_FIELD(!norm.has_bias || norm.kind == NormKind::kLayerNorm, "norm bias outside LayerNorm", -1);
  return Status::Ok();
}

Status ValidateLongRopeFactors(const std::vector<float>& factors, size_t count) {
  LINNET_REQUIRE_FIELD(factors.size() == count, "rope LongRoPE factors are not rope_dim / 2 numbers",
                       static_cast<int64_t>(factors.size()));
  for (float factor : factors) LINNET_REQUIRE_FIELD(IsPositive(factor), "rope LongRoPE factor is not positive", -1);
  return Status::Ok();
}

Status ValidateRope(const RopeSpec& rope) {
  LINNET_REQUIRE_FIELD(IsPositive(rope.theta), "rope theta is not a positive number", -1);
  LINNET_REQUIRE_FIELD(InRange(rope.rope_dim, 2, kMaxDim) && rope.rope_dim % 2 == 0,
                       "rope_dim is not an even number within its limit", rope.rope_dim);
  LINNET_REQUIRE_FIELD(IsEnumerator(rope.layout, RopeLayout::kInterleaved), "rope layout is unknown",
                       static_cast<int64_t>(rope.layout));
  LINNET_REQUIRE_FIELD(IsEnumerator(rope.scaling, RopeScaling::kLongRope), "rope scaling is unknown",
                       static_cast<int64_t>(rope.scaling));
  LINNET_REQUIRE_FIELD(IsPositive(rope.factor), "rope factor is not a positive number", -1);
  LINNET_REQUIRE_FIELD(IsPositive(rope.cos_sin_scale), "rope cos_sin_scale is not a positive number", -1);
  LINNET_REQUIRE_FIELD(rope.original_context_length <= kMaxContext, "rope original_context_length is above its limit",
                       rope.original_context_length);
  const bool needs_original = rope.scaling == RopeScaling::kDynamicNtk || rope.scaling == RopeScaling::kYarn ||
                              rope.scaling == RopeScaling::kLlama3 || rope.scaling == RopeScaling::kLongRope;
  LINNET_REQUIRE_FIELD(!needs_original || rope.original_context_length > 0,
                       "rope original_context_length is missing for its scaling", -1);
  // The dynamic base is theta * (...)^(d / (d - 2)), so a rotated width of 2 has no value.
  LINNET_REQUIRE_FIELD(rope.scaling != RopeScaling::kDynamicNtk || rope.rope_dim > 2,
                       "rope_dim is too small for dynamic NTK scaling", rope.rope_dim);
  LINNET_REQUIRE_FIELD(rope.scaling != RopeScaling::kDynamicNtk || rope.factor >= 1.0,
                       "rope factor of dynamic NTK scaling is below 1", -1);
  // The correction range of YaRN divides by ln(theta).
  LINNET_REQUIRE_FIELD(rope.scaling != RopeScaling::kYarn || rope.theta > 1.0, "rope theta of YaRN is not above 1", -1);
  LINNET_REQUIRE_FIELD(IsPositive(rope.beta_fast) && IsPositive(rope.beta_slow), "rope YaRN beta is not positive", -1);
  LINNET_REQUIRE_FIELD(IsPositive(rope.low_freq_factor) && IsPositive(rope.high_freq_factor) &&
                           rope.low_freq_factor < rope.high_freq_factor,
                       "rope low_freq_factor is not below high_freq_factor", -1);
  const size_t factors = rope.scaling == RopeScaling::kLongRope ? rope.rope_dim / 2 : 0;
  LINNET_RETURN_IF_ERROR(ValidateLongRopeFactors(rope.short_factors, factors));
  return ValidateLongRopeFactors(rope.long_factors, factors);
}

Status ValidateGroupedAttention(const ModelConfig& config, const AttentionSpec& attention) {
  LINNET_REQUIRE_FIELD(attention.value_dim == attention.head_dim, "value_dim is not head_dim", attention.value_dim);
  LINNET_REQUIRE_FIELD(attention.q_lora_rank == 0 && attention.kv_lora_rank == 0,
                       "latent ranks outside latent attention", -1);
  LINNET_REQUIRE_FIELD(attention.latent_norm.kind == NormKind::kNone, "latent norm outside latent attention", -1);
  LINNET_REQUIRE_FIELD(
      attention.rope < 0 || config.ropes[static_cast<size_t>(attention.rope)].rope_dim <= attention.head_dim,
      "rope_dim is above head_dim", attention.rope);
  return Status::Ok();
}

Status ValidateLatentAttention(const ModelConfig& config, const AttentionSpec& attention) {
  LINNET_REQUIRE_FIELD(attention.n_kv_heads == attention.n_heads, "n_kv_heads of latent attention is not n_heads",
                       attention.n_kv_heads);
  LINNET_REQUIRE_FIELD(attention.rope >= 0, "latent attention without rope", -1);
  LINNET_REQUIRE_FIELD(config.ropes[static_cast<size_t>(attention.rope)].rope_dim < attention.head_dim,
                       "rope_dim of latent attention is not below head_dim", attention.head_dim);
  LINNET_REQUIRE_FIELD(InRange(attention.kv_lora_rank, 1, kMaxDim), "kv_lora_rank is 0 or above its limit",
                       attention.kv_lora_rank);
  LINNET_REQUIRE_FIELD(attention.q_lora_rank <= kMaxDim, "q_lora_rank is above its limit", attention.q_lora_rank);
  LINNET_REQUIRE_FIELD(attention.qk_norm == QkNorm::kNone, "qk_norm in latent attention", -1);
  LINNET_REQUIRE_FIELD(!attention.alibi && !attention.sinks, "alibi or sinks in latent attention", -1);
  return ValidateNorm(attention.latent_norm);
}

Status ValidateAttention(const ModelConfig& config, const AttentionSpec& attention) {
  LINNET_REQUIRE_FIELD(IsEnumerator(attention.kind, AttentionKind::kLatent), "attention kind is unknown",
                       static_cast<int64_t>(attention.kind));
  LINNET_REQUIRE_FIELD(InRange(attention.n_heads, 1, kMaxDim), "n_heads is 0 or above its limit", attention.n_heads);
  LINNET_REQUIRE_FIELD(InRange(attention.n_kv_heads, 1, kMaxDim) && attention.n_heads % attention.n_kv_heads == 0,
                       "n_kv_heads does not divide n_heads", attention.n_kv_heads);
  LINNET_REQUIRE_FIELD(InRange(attention.head_dim, 1, kMaxDim), "head_dim is 0 or above its limit", attention.head_dim);
  LINNET_REQUIRE_FIELD(InRange(attention.value_dim, 1, kMaxDim), "value_dim is 0 or above its limit",
                       attention.value_dim);
  LINNET_REQUIRE_FIELD(uint64_t{attention.n_heads} * attention.head_dim <= kMaxDim,
                       "n_heads * head_dim is above its limit", attention.head_dim);
  LINNET_REQUIRE_FIELD(uint64_t{attention.n_heads} * attention.value_dim <= kMaxDim,
                       "n_heads * value_dim is above its limit", attention.value_dim);
  LINNET_REQUIRE_FIELD(IsEnumerator(attention.qk_norm, QkNorm::kFullWidth), "qk_norm is unknown",
                       static_cast<int64_t>(attention.qk_norm));
  LINNET_REQUIRE_FIELD((attention.qk_norm == QkNorm::kNone) == (attention.qk_norm_spec.kind == NormKind::kNone),
                       "qk_norm and qk_norm_spec disagree", -1);
  LINNET_RETURN_IF_ERROR(ValidateNorm(attention.qk_norm_spec));
  LINNET_REQUIRE_FIELD(IsPositive(attention.score_scale), "score_scale is not a positive number", -1);
  LINNET_REQUIRE_FIELD(IsNonNegative(attention.logit_soft_cap), "attention logit_soft_cap is negative", -1);
  LINNET_REQUIRE_FIELD(attention.window <= kMaxContext, "attention window is above its limit", attention.window);
  LINNET_REQUIRE_FIELD(attention.rope >= -1 && attention.rope < static_cast<int64_t>(config.ropes.size()),
                       "rope index is out of range", attention.rope);
  LINNET_REQUIRE_FIELD(!attention.alibi || attention.rope < 0, "alibi and rope in one layer", -1);
  return attention.kind == AttentionKind::kLatent ? ValidateLatentAttention(config, attention)
                                                  : ValidateGroupedAttention(config, attention);
}

Status ValidateExperts(const FfnSpec& ffn) {
  LINNET_REQUIRE_FIELD(ffn.n_experts <= kMaxExperts, "n_experts is above its limit", ffn.n_experts);
  LINNET_REQUIRE_FIELD(InRange(ffn.top_k, 1, ffn.n_experts), "top_k is not within 1 and n_experts", ffn.top_k);
  LINNET_REQUIRE_FIELD(IsEnumerator(ffn.router_score, RouterScore::kSoftmaxOfTopK), "router_score is unknown",
                       static_cast<int64_t>(ffn.router_score));
  LINNET_REQUIRE_FIELD(IsEnumerator(ffn.group_score, GroupScore::kSumOfTopTwo), "group_score is unknown",
                       static_cast<int64_t>(ffn.group_score));
  LINNET_REQUIRE_FIELD(IsPositive(ffn.routed_scale), "routed_scale is not a positive number", -1);
  LINNET_REQUIRE_FIELD(ffn.n_groups >= 1 && ffn.n_experts % ffn.n_groups == 0, "n_groups does not divide n_experts",
                       ffn.n_groups);
  LINNET_REQUIRE_FIELD(InRange(ffn.top_groups, 1, ffn.n_groups), "top_groups is not within 1 and n_groups",
                       ffn.top_groups);
  const uint32_t experts_per_group = ffn.n_experts / ffn.n_groups;
  LINNET_REQUIRE_FIELD(ffn.top_k <= experts_per_group * ffn.top_groups, "top_k is above the experts of top_groups",
                       ffn.top_k);
  LINNET_REQUIRE_FIELD(ffn.n_groups == 1 || ffn.group_score == GroupScore::kMax || experts_per_group >= 2,
                       "a group of one expert has no two best", experts_per_group);
  LINNET_REQUIRE_FIELD(ffn.shared_ffn_dim <= kMaxDim, "shared_ffn_dim is above its limit", ffn.shared_ffn_dim);
  LINNET_REQUIRE_FIELD(!ffn.shared_gate || ffn.shared_ffn_dim > 0, "shared_gate without a shared expert", -1);
  return Status::Ok();
}

Status ValidateFfn(const FfnSpec& ffn) {
  LINNET_REQUIRE_FIELD(IsEnumerator(ffn.activation, Activation::kClampedSwiglu), "activation is unknown",
                       static_cast<int64_t>(ffn.activation));
  LINNET_REQUIRE_FIELD(InRange(ffn.ffn_dim, 1, kMaxDim), "ffn_dim is 0 or above its limit", ffn.ffn_dim);
  const bool clamped = ffn.activation == Activation::kClampedSwiglu;
  LINNET_REQUIRE_FIELD(ffn.gated || !(clamped || ffn.activation == Activation::kSigmoid),
                       "the activation needs a gated FFN", static_cast<int64_t>(ffn.activation));
  LINNET_REQUIRE_FIELD(clamped ? IsPositive(ffn.clamp) : ffn.clamp == 0.0f, "clamp does not fit the activation", -1);
  if (ffn.n_experts > 0) return ValidateExperts(ffn);
  LINNET_REQUIRE_FIELD(ffn.top_k == 0 && !ffn.router_bias && !ffn.selection_bias && !ffn.normalize_top_k,
                       "router fields without experts", -1);
  LINNET_REQUIRE_FIELD(ffn.n_groups == 1 && ffn.top_groups == 1, "expert groups without experts", -1);
  LINNET_REQUIRE_FIELD(ffn.shared_ffn_dim == 0 && !ffn.shared_gate, "shared expert without experts", -1);
  return Status::Ok();
}

Status ValidateBlock(const ModelConfig& config, const BlockSpec& block) {
  LINNET_REQUIRE_FIELD(block.norm.kind != NormKind::kNone, "a block without norms", -1);
  LINNET_RETURN_IF_ERROR(ValidateNorm(block.norm));
  LINNET_REQUIRE_FIELD(IsEnumerator(block.placement, NormPlacement::kBothSides), "norm placement is unknown",
                       static_cast<int64_t>(block.placement));
  LINNET_REQUIRE_FIELD(!block.parallel || block.placement == NormPlacement::kPre,
                       "a parallel block whose norms are not before the sub-layers", -1);
  LINNET_REQUIRE_FIELD(block.parallel || !block.parallel_shared_norm, "parallel_shared_norm in a sequential block", -1);
  LINNET_REQUIRE_FIELD(IsNonZero(block.residual_scale), "residual_scale is not a number other than 0", -1);
  LINNET_REQUIRE_FIELD(IsNonZero(block.branch_scale), "branch_scale is not a number other than 0", -1);
  LINNET_RETURN_IF_ERROR(ValidateAttention(config, block.attention));
  return ValidateFfn(block.ffn);
}

Status ValidateEmbedding(const ModelConfig& config) {
  LINNET_REQUIRE_FIELD(IsNonZero(config.embedding_scale), "embedding_scale is not a number other than 0", -1);
  LINNET_REQUIRE_FIELD(IsEnumerator(config.positions, EmbeddingPositions::kSinusoidal), "positions are unknown",
                       static_cast<int64_t>(config.positions));
  if (config.positions == EmbeddingPositions::kLearned) {
    LINNET_REQUIRE_FIELD(InRange(config.position_rows, 1, uint64_t{kMaxContext} * 2),
                         "position_rows is 0 or above its limit", config.position_rows);
    LINNET_REQUIRE_FIELD(uint64_t{config.context_length} + config.position_offset <= config.position_rows,
                         "position_rows are fewer than context_length + position_offset", config.position_rows);
  } else {
    LINNET_REQUIRE_FIELD(config.position_rows == 0 && config.position_offset == 0,
                         "position_rows or position_offset without learned positions", config.position_rows);
  }
  return ValidateNorm(config.embedding_norm);
}

Status ValidateSizes(const ModelConfig& config) {
  LINNET_REQUIRE_FIELD(config.family.size() <= kMaxFamilyBytes, "family name is too long",
                       static_cast<int64_t>(config.family.size()));
  LINNET_REQUIRE_FIELD(InRange(config.vocab_size, 1, kMaxVocab), "vocab_size is 0 or above its limit",
                       config.vocab_size);
  LINNET_REQUIRE_FIELD(InRange(config.model_dim, 1, kMaxDim), "model_dim is 0 or above its limit", config.model_dim);
  LINNET_REQUIRE_FIELD(InRange(config.n_layers, 1, kMaxLayers), "n_layers is 0 or above its limit", config.n_layers);
  LINNET_REQUIRE_FIELD(InRange(config.context_length, 1, kMaxContext), "context_length is 0 or above its limit",
                       config.context_length);
  LINNET_REQUIRE_FIELD(config.ropes.size() <= kMaxRopes, "more ropes than the limit",
                       static_cast<int64_t>(config.ropes.size()));
  LINNET_REQUIRE_FIELD(InRange(config.blocks.size(), 1, kMaxBlockKinds), "blocks are 0 or above their limit",
                       static_cast<int64_t>(config.blocks.size()));
  LINNET_REQUIRE_FIELD(config.layer_block.size() == config.n_layers, "layer_block has not n_layers entries",
                       static_cast<int64_t>(config.layer_block.size()));
  for (uint16_t block : config.layer_block) {
    LINNET_REQUIRE_FIELD(block < config.blocks.size(), "layer_block names no block", block);
  }
  return Status::Ok();
}

}  // namespace

uint16_t InternBlock(ModelConfig& config, const BlockSpec& block) {
  for (size_t i = 0; i < config.blocks.size(); ++i) {
    if (config.blocks[i] == block) return static_cast<uint16_t>(i);
  }
  LINNET_CHECK(config.blocks.size() < UINT16_MAX);
  config.blocks.push_back(block);
  return static_cast<uint16_t>(config.blocks.size() - 1);
}

Status ValidateModelConfig(const ModelConfig& config) {
  LINNET_RETURN_IF_ERROR(ValidateSizes(config));
  LINNET_RETURN_IF_ERROR(ValidateEmbedding(config));
  LINNET_RETURN_IF_ERROR(ValidateNorm(config.final_norm));
  LINNET_REQUIRE_FIELD(IsNonZero(config.logit_scale), "logit_scale is not a number other than 0", -1);
  LINNET_REQUIRE_FIELD(IsNonNegative(config.logit_soft_cap), "logit_soft_cap is negative", -1);
  for (const RopeSpec& rope : config.ropes) LINNET_RETURN_IF_ERROR(ValidateRope(rope));
  for (const BlockSpec& block : config.blocks) LINNET_RETURN_IF_ERROR(ValidateBlock(config, block));
  return Status::Ok();
}

#undef LINNET_REQUIRE_FIELD

}  // namespace linnet
