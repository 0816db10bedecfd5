// Tables of names and small pieces that several families share.
#ifndef LINNET_FORMATS_HUGGINGFACE_FAMILIES_COMMON_H_
#define LINNET_FORMATS_HUGGINGFACE_FAMILIES_COMMON_H_

#include "formats/huggingface/config_parts.h"
#include "formats/huggingface/families/families.h"

namespace linnet::formats {

inline constexpr const char* kModelBases[] = {"model.", ""};

/// Rotary frequencies, which old checkpoints store.
inline constexpr const char* kRotaryBuffers[] = {"*.rotary_emb.inv_freq", "*.rotary_emb.cos_cached",
                                                 "*.rotary_emb.sin_cached"};

inline constexpr WeightPattern kLlamaGlobals[] = {
    {TensorRole::kTokenEmbedding, PartKind::kAll, "{base}embed_tokens.weight"},
    {TensorRole::kFinalNormGain, PartKind::kAll, "{base}norm.weight"},
    {TensorRole::kFinalNormBias, PartKind::kAll, "{base}norm.bias"},
    {TensorRole::kHead, PartKind::kAll, "lm_head.weight"},
    {TensorRole::kHeadBias, PartKind::kAll, "lm_head.bias"},
};

/// Norms before the sub-layers.
inline constexpr WeightPattern kLlamaNorms[] = {
    {TensorRole::kAttentionNormGain, PartKind::kAll, "{base}layers.{layer}.input_layernorm.weight"},
    {TensorRole::kAttentionNormBias, PartKind::kAll, "{base}layers.{layer}.input_layernorm.bias"},
    {TensorRole::kFfnNormGain, PartKind::kAll, "{base}layers.{layer}.post_attention_layernorm.weight"},
    {TensorRole::kFfnNormBias, PartKind::kAll, "{base}layers.{layer}.post_attention_layernorm.bias"},
};

inline constexpr WeightPattern kLlamaAttention[] = {
    {TensorRole::kQkv, PartKind::kQ, "{base}layers.{layer}.self_attn.q_proj.weight"},
    {TensorRole::kQkv, PartKind::kK, "{base}layers.{layer}.self_attn.k_proj.weight"},
    {TensorRole::kQkv, PartKind::kV, "{base}layers.{layer}.self_attn.v_proj.weight"},
    {TensorRole::kQkvBias, PartKind::kQ, "{base}layers.{layer}.self_attn.q_proj.bias"},
    {TensorRole::kQkvBias, PartKind::kK, "{base}layers.{layer}.self_attn.k_proj.bias"},
    {TensorRole::kQkvBias, PartKind::kV, "{base}layers.{layer}.self_attn.v_proj.bias"},
    {TensorRole::kQNormGain, PartKind::kAll, "{base}layers.{layer}.self_attn.q_norm.weight"},
    {TensorRole::kKNormGain, PartKind::kAll, "{base}layers.{layer}.self_attn.k_norm.weight"},
    {TensorRole::kAttentionOut, PartKind::kAll, "{base}layers.{layer}.self_attn.o_proj.weight"},
    {TensorRole::kAttentionOutBias, PartKind::kAll, "{base}layers.{layer}.self_attn.o_proj.bias"},
};

inline constexpr WeightPattern kLlamaFfn[] = {
    {TensorRole::kFfnUp, PartKind::kGate, "{base}layers.{layer}.mlp.gate_proj.weight"},
    {TensorRole::kFfnUp, PartKind::kUp, "{base}layers.{layer}.mlp.up_proj.weight"},
    {TensorRole::kFfnUpBias, PartKind::kGate, "{base}layers.{layer}.mlp.gate_proj.bias"},
    {TensorRole::kFfnUpBias, PartKind::kUp, "{base}layers.{layer}.mlp.up_proj.bias"},
    {TensorRole::kFfnDown, PartKind::kAll, "{base}layers.{layer}.mlp.down_proj.weight"},
    {TensorRole::kFfnDownBias, PartKind::kAll, "{base}layers.{layer}.mlp.down_proj.bias"},
};

inline constexpr std::span<const WeightPattern> kLlamaTables[] = {kLlamaGlobals, kLlamaNorms, kLlamaAttention,
                                                                  kLlamaFfn};

/// Sizes and heads in the order of transformers' config classes; n_kv_heads and head_dim as in HeadDefaults.
struct ShapeDefaults {
  SizeDefaults sizes;
  HeadDefaults heads;
  uint32_t ffn_dim = 0;
};

/// What most families share: pre-norm blocks with RMSNorm, rotary grouped attention and a gated FFN, final RMSNorm.
/// Fills config's globals and `block`; the caller changes what differs and adds the layers.
struct LlamaLike {
  ShapeDefaults shape;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
};
void ReadLlamaLike(ConfigReader& reader, const LlamaLike& family, ModelConfig* config, BlockSpec* block);

/// attention_bias: of q, k, v and the output. mlp_bias: of gate, up and down.
void ReadAttentionBias(ConfigReader& reader, BlockSpec* block);
void ReadMlpBias(ConfigReader& reader, BlockSpec* block);

/// For families whose head size follows from the others: a head_dim that says something else is refused.
void ExpectDerivedHeadDim(ConfigReader& reader, const AttentionSpec& attention);

/// QK-norm over each head, with the block's own norm.
void AddHeadNorm(BlockSpec* block);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_HUGGINGFACE_FAMILIES_COMMON_H_
