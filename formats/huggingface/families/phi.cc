// Phi 1 and 2, Phi-3, StableLM, StarCoder2: partial rotation or LayerNorm around Llama's blocks.
#include "formats/huggingface/families/common.h"

namespace linnet::formats {
namespace {

struct PartlyRotated {
  double rotated_share = 1.0;
  bool has_share_key = true;              // the family reads partial_rotary_factor
  const char* head_dim_key = "head_dim";  // null: the head size follows from the others
  uint32_t original_context_length = 0;   // RopeDefaults
};

/// Sizes, heads and rope, which all of this file's families share.
void ReadPartlyRotated(ConfigReader& reader, const ShapeDefaults& shape, const PartlyRotated& family,
                       ModelConfig* config, BlockSpec* block) {
  ReadSizes(reader, shape.sizes, config);
  ReadHeads(reader, shape.heads, *config, &block->attention,
            {"num_attention_heads", "num_key_value_heads", family.head_dim_key});
  if (family.head_dim_key == nullptr) ExpectDerivedHeadDim(reader, block->attention);
  RopeDefaults rope;
  rope.head_dim = block->attention.head_dim;
  rope.context_length = config->context_length;
  rope.rotated_share = family.rotated_share;
  rope.original_context_length = family.original_context_length;
  if (family.has_share_key) rope.share_key = "partial_rotary_factor";
  block->attention.rope = InternRope(*config, ReadRope(reader, rope).spec);
  block->ffn.ffn_dim = reader.Positive("intermediate_size", shape.ffn_dim);
  reader.Ignore({"embd_pdrop", "resid_pdrop", "residual_dropout", "embedding_dropout"});
}

constexpr WeightPattern kPhiPatterns[] = {
    {TensorRole::kFinalNormGain, PartKind::kAll, "{base}final_layernorm.weight"},
    {TensorRole::kFinalNormBias, PartKind::kAll, "{base}final_layernorm.bias"},
    {TensorRole::kAttentionOut, PartKind::kAll, "{base}layers.{layer}.self_attn.dense.weight"},
    {TensorRole::kAttentionOutBias, PartKind::kAll, "{base}layers.{layer}.self_attn.dense.bias"},
    {TensorRole::kQNormGain, PartKind::kAll, "{base}layers.{layer}.self_attn.q_layernorm.weight"},
    {TensorRole::kQNormBias, PartKind::kAll, "{base}layers.{layer}.self_attn.q_layernorm.bias"},
    {TensorRole::kKNormGain, PartKind::kAll, "{base}layers.{layer}.self_attn.k_layernorm.weight"},
    {TensorRole::kKNormBias, PartKind::kAll, "{base}layers.{layer}.self_attn.k_layernorm.bias"},
    {TensorRole::kFfnUp, PartKind::kAll, "{base}layers.{layer}.mlp.fc1.weight"},
    {TensorRole::kFfnUpBias, PartKind::kAll, "{base}layers.{layer}.mlp.fc1.bias"},
    {TensorRole::kFfnDown, PartKind::kAll, "{base}layers.{layer}.mlp.fc2.weight"},
    {TensorRole::kFfnDownBias, PartKind::kAll, "{base}layers.{layer}.mlp.fc2.bias"},
};
constexpr std::span<const WeightPattern> kPhiTables[] = {kPhiPatterns, kLlamaGlobals, kLlamaNorms, kLlamaAttention};
constexpr WeightNames kPhiNames = {kModelBases, kPhiTables, kRotaryBuffers};

void ReadPhi(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadPartlyRotated(reader, {{51200, 2048, 24, 2048}, {32, 0, 0}, 8192}, {0.5, true, nullptr}, config, &block);
  block.norm = LayerNorm(reader, 1e-5);
  config->final_norm = block.norm;
  config->head_bias = true;
  block.parallel = block.parallel_shared_norm = true;
  block.attention.qkv_bias = block.attention.out_bias = true;
  if (reader.Flag("qk_layernorm", false)) AddHeadNorm(&block);
  block.ffn.gated = false;
  block.ffn.up_bias = block.ffn.down_bias = true;
  block.ffn.activation = ReadActivation(reader, "hidden_act", "gelu_new");
  AddLayers(*config, block);
}

constexpr WeightPattern kPhi3Patterns[] = {
    {TensorRole::kQkv, PartKind::kAll, "{base}layers.{layer}.self_attn.qkv_proj.weight"},
    {TensorRole::kFfnUp, PartKind::kAll, "{base}layers.{layer}.mlp.gate_up_proj.weight"},
};
constexpr std::span<const WeightPattern> kPhi3Tables[] = {kPhi3Patterns, kLlamaGlobals, kLlamaNorms, kLlamaAttention,
                                                          kLlamaFfn};
constexpr WeightNames kPhi3Names = {kModelBases, kPhi3Tables, kRotaryBuffers};

void ReadPhi3(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadPartlyRotated(reader, {{32064, 3072, 32, 4096}, {32, 0, 0}, 8192}, {1.0, true, "head_dim", 4096}, config, &block);
  block.norm = RmsNorm(reader, 1e-5);
  config->final_norm = block.norm;
  block.attention.window = reader.Size("sliding_window", 0);
  block.ffn.activation = ReadActivation(reader, "hidden_act", "silu");
  reader.Expect("attention_bias", {"false"});
  reader.Expect("mlp_bias", {"false"});
  reader.Expect("lm_head_bias", {"false"});
  reader.Expect("full_attn_mod", {"1"});
  reader.Expect("interpolate_factor", {"1"});
  reader.Ignore({"original_max_position_embeddings"});  // read with the scaling that it belongs to
  AddLayers(*config, block);
}

constexpr WeightPattern kStableLmNorms[] = {
    {TensorRole::kQNormGain, PartKind::kAll, "{base}layers.{layer}.self_attn.q_layernorm.norms.{head}.weight"},
    {TensorRole::kKNormGain, PartKind::kAll, "{base}layers.{layer}.self_attn.k_layernorm.norms.{head}.weight"},
};
constexpr std::span<const WeightPattern> kStableLmTables[] = {kStableLmNorms, kLlamaGlobals, kLlamaNorms,
                                                              kLlamaAttention, kLlamaFfn};
constexpr WeightNames kStableLmNames = {kModelBases, kStableLmTables, kRotaryBuffers};

void ReadStableLm(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadPartlyRotated(reader, {{50304, 2560, 32, 4096}, {32, 32, 0}, 6912}, {0.25, true, nullptr}, config, &block);
  reader.Expect("rotary_scaling_factor", {"1.0", "1"});
  block.norm = LayerNorm(reader, 1e-5);
  config->final_norm = block.norm;
  block.parallel = block.parallel_shared_norm = reader.Flag("use_parallel_residual", false);
  block.attention.qkv_bias = reader.Flag("use_qkv_bias", false);
  if (reader.Flag("qk_layernorm", false)) {
    block.attention.qk_norm = QkNorm::kPerHeadGain;
    block.attention.qk_norm_spec = block.norm;
    block.attention.qk_norm_spec.has_bias = false;
  }
  block.ffn.activation = ReadActivation(reader, "hidden_act", "silu");
  AddLayers(*config, block);
}

constexpr WeightPattern kStarCoder2Ffn[] = {
    {TensorRole::kFfnUp, PartKind::kAll, "{base}layers.{layer}.mlp.c_fc.weight"},
    {TensorRole::kFfnUpBias, PartKind::kAll, "{base}layers.{layer}.mlp.c_fc.bias"},
    {TensorRole::kFfnDown, PartKind::kAll, "{base}layers.{layer}.mlp.c_proj.weight"},
    {TensorRole::kFfnDownBias, PartKind::kAll, "{base}layers.{layer}.mlp.c_proj.bias"},
};
constexpr std::span<const WeightPattern> kStarCoder2Tables[] = {kStarCoder2Ffn, kLlamaGlobals, kLlamaNorms,
                                                                kLlamaAttention};
constexpr WeightNames kStarCoder2Names = {kModelBases, kStarCoder2Tables, kRotaryBuffers};

void ReadStarCoder2(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadPartlyRotated(reader, {{49152, 3072, 30, 4096, true}, {24, 2, 0}, 12288}, {1.0, false}, config, &block);
  block.norm = LayerNorm(reader, 1e-5, "norm_epsilon");
  config->final_norm = block.norm;
  const bool bias = reader.Flag("use_bias", true);
  block.attention.qkv_bias = block.attention.out_bias = bias;
  block.attention.window = reader.Size("sliding_window", 0);
  block.ffn.gated = false;
  block.ffn.up_bias = block.ffn.down_bias = bias;
  block.ffn.activation = ReadActivation(reader, "hidden_act", "gelu_pytorch_tanh");
  reader.Expect("norm_type", {"\"layer_norm\""});
  reader.Expect("mlp_type", {"\"default\""});
  reader.Expect("scale_attn_weights", {"true"});
  // Published files carry them; transformers reads hidden_act and norm_epsilon, and softmax is in f32 always.
  reader.Ignore(
      {"activation_function", "layer_norm_epsilon", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"});
  AddLayers(*config, block);
}

constexpr Family kFamilies[] = {
    {"phi", ReadPhi, &kPhiNames},
    {"phi3", ReadPhi3, &kPhi3Names},
    {"stablelm", ReadStableLm, &kStableLmNames},
    {"starcoder2", ReadStarCoder2, &kStarCoder2Names},
};

}  // namespace

std::span<const Family> PhiFamilies() { return kFamilies; }

}  // namespace linnet::formats
