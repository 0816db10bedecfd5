// The GPT line: GPT-2, GPT-1, OPT, GPT-NeoX. LayerNorm with bias, ungated FFN, biases everywhere.
#include <cmath>

#include "formats/huggingface/families/common.h"

namespace linnet::formats {
namespace {

constexpr const char* kTransformerBases[] = {"transformer.", ""};
/// Causal masks that the original files store as tensors.
constexpr const char* kGpt2Buffers[] = {"*h.*.attn.bias", "*h.*.attn.masked_bias"};

constexpr WeightPattern kGpt2Blocks[] = {
    {TensorRole::kAttentionNormGain, PartKind::kAll, "{base}h.{layer}.ln_1.weight"},
    {TensorRole::kAttentionNormBias, PartKind::kAll, "{base}h.{layer}.ln_1.bias"},
    {TensorRole::kFfnNormGain, PartKind::kAll, "{base}h.{layer}.ln_2.weight"},
    {TensorRole::kFfnNormBias, PartKind::kAll, "{base}h.{layer}.ln_2.bias"},
    {TensorRole::kQkv, PartKind::kAll, "{base}h.{layer}.attn.c_attn.weight", true},
    {TensorRole::kQkvBias, PartKind::kAll, "{base}h.{layer}.attn.c_attn.bias"},
    {TensorRole::kAttentionOut, PartKind::kAll, "{base}h.{layer}.attn.c_proj.weight", true},
    {TensorRole::kAttentionOutBias, PartKind::kAll, "{base}h.{layer}.attn.c_proj.bias"},
    {TensorRole::kFfnUp, PartKind::kAll, "{base}h.{layer}.mlp.c_fc.weight", true},
    {TensorRole::kFfnUpBias, PartKind::kAll, "{base}h.{layer}.mlp.c_fc.bias"},
    {TensorRole::kFfnDown, PartKind::kAll, "{base}h.{layer}.mlp.c_proj.weight", true},
    {TensorRole::kFfnDownBias, PartKind::kAll, "{base}h.{layer}.mlp.c_proj.bias"},
};
constexpr WeightPattern kGpt2Globals[] = {
    {TensorRole::kTokenEmbedding, PartKind::kAll, "{base}wte.weight"},
    {TensorRole::kPositionEmbedding, PartKind::kAll, "{base}wpe.weight"},
    {TensorRole::kFinalNormGain, PartKind::kAll, "{base}ln_f.weight"},
    {TensorRole::kFinalNormBias, PartKind::kAll, "{base}ln_f.bias"},
    {TensorRole::kHead, PartKind::kAll, "lm_head.weight"},
};
constexpr std::span<const WeightPattern> kGpt2Tables[] = {kGpt2Globals, kGpt2Blocks};
constexpr WeightNames kGpt2Names = {kTransformerBases, kGpt2Tables, kGpt2Buffers};

constexpr WeightPattern kGpt1Globals[] = {
    {TensorRole::kTokenEmbedding, PartKind::kAll, "{base}tokens_embed.weight"},
    {TensorRole::kPositionEmbedding, PartKind::kAll, "{base}positions_embed.weight"},
    {TensorRole::kHead, PartKind::kAll, "lm_head.weight"},
};
constexpr std::span<const WeightPattern> kGpt1Tables[] = {kGpt1Globals, kGpt2Blocks};
constexpr WeightNames kGpt1Names = {kTransformerBases, kGpt1Tables, kGpt2Buffers};

/// Training's and classifiers' keys of both.
constexpr const char* kGptIgnored[] = {"attn_pdrop",
                                       "embd_pdrop",
                                       "resid_pdrop",
                                       "n_ctx",
                                       "n_special",
                                       "predict_special_tokens",
                                       "summary_activation",
                                       "summary_first_dropout",
                                       "summary_proj_to_labels",
                                       "summary_type",
                                       "summary_use_proj"};

void ReadGptBlock(ConfigReader& reader, const SizeDefaults& sizes, ModelConfig* config, BlockSpec* block) {
  ReadSizes(reader, sizes, config, {"n_embd", "n_layer", "n_positions"});
  ReadHeads(reader, {12, 0, 0}, *config, &block->attention, {"n_head", nullptr, nullptr});
  block->norm = LayerNorm(reader, 1e-5, "layer_norm_epsilon");
  block->attention.qkv_bias = block->attention.out_bias = true;
  block->ffn.gated = false;
  block->ffn.up_bias = block->ffn.down_bias = true;
  config->positions = EmbeddingPositions::kLearned;
  config->position_rows = config->context_length;
  reader.Ignore(kGptIgnored);
}

uint32_t FourTimes(uint32_t width) { return width <= kMaxDim ? 4 * width : width; }  // a larger one is refused anyway

void ReadGpt2(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadGptBlock(reader, {50257, 768, 12, 1024, true}, config, &block);
  block.ffn.activation = ReadActivation(reader, "activation_function", "gelu_new");
  block.ffn.ffn_dim = reader.Positive("n_inner", FourTimes(config->model_dim));
  config->final_norm = block.norm;
  if (!reader.Flag("scale_attn_weights", true)) block.attention.score_scale = 1.0f;
  const bool by_layer = reader.Flag("scale_attn_by_inverse_layer_idx", false);
  reader.Ignore({"reorder_and_upcast_attn"});  // the order of two exact scalings in f32
  AddLayers(*config, block, [&](uint32_t layer, BlockSpec& own) {
    if (by_layer) own.attention.score_scale /= static_cast<float>(layer + 1);
  });
}

void ReadGpt1(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadGptBlock(reader, {40478, 768, 12, 512, true}, config, &block);
  block.placement = NormPlacement::kPost;
  block.ffn.ffn_dim = FourTimes(config->model_dim);
  block.ffn.activation = ReadActivation(reader, "afn", "gelu");
  // This family's "gelu" is the tanh form.
  if (block.ffn.activation == Activation::kGelu) block.ffn.activation = Activation::kGeluTanh;
  AddLayers(*config, block);
}

constexpr const char* kOptBases[] = {"model.decoder.", "decoder.", ""};
constexpr WeightPattern kOptPatterns[] = {
    {TensorRole::kTokenEmbedding, PartKind::kAll, "{base}embed_tokens.weight"},
    {TensorRole::kPositionEmbedding, PartKind::kAll, "{base}embed_positions.weight"},
    {TensorRole::kFinalNormGain, PartKind::kAll, "{base}final_layer_norm.weight"},
    {TensorRole::kFinalNormBias, PartKind::kAll, "{base}final_layer_norm.bias"},
    {TensorRole::kHead, PartKind::kAll, "lm_head.weight"},
    {TensorRole::kAttentionNormGain, PartKind::kAll, "{base}layers.{layer}.self_attn_layer_norm.weight"},
    {TensorRole::kAttentionNormBias, PartKind::kAll, "{base}layers.{layer}.self_attn_layer_norm.bias"},
    {TensorRole::kFfnNormGain, PartKind::kAll, "{base}layers.{layer}.final_layer_norm.weight"},
    {TensorRole::kFfnNormBias, PartKind::kAll, "{base}layers.{layer}.final_layer_norm.bias"},
    {TensorRole::kAttentionOut, PartKind::kAll, "{base}layers.{layer}.self_attn.out_proj.weight"},
    {TensorRole::kAttentionOutBias, PartKind::kAll, "{base}layers.{layer}.self_attn.out_proj.bias"},
    {TensorRole::kFfnUp, PartKind::kAll, "{base}layers.{layer}.fc1.weight"},
    {TensorRole::kFfnUpBias, PartKind::kAll, "{base}layers.{layer}.fc1.bias"},
    {TensorRole::kFfnDown, PartKind::kAll, "{base}layers.{layer}.fc2.weight"},
    {TensorRole::kFfnDownBias, PartKind::kAll, "{base}layers.{layer}.fc2.bias"},
};
constexpr std::span<const WeightPattern> kOptTables[] = {kOptPatterns, kLlamaAttention};
constexpr WeightNames kOptNames = {kOptBases, kOptTables};

void ReadOpt(ConfigReader& reader, ModelConfig* config) {
  constexpr uint32_t kPositionOffset = 2;  // the table's first rows once stood for padding
  BlockSpec block;
  ReadSizes(reader, {50272, 768, 12, 2048, true}, config);
  ReadHeads(reader, {12, 0, 0}, *config, &block.attention, {"num_attention_heads", nullptr, nullptr});
  config->positions = EmbeddingPositions::kLearned;
  config->position_offset = kPositionOffset;
  config->position_rows = config->context_length + kPositionOffset;
  block.norm.kind = NormKind::kLayerNorm;
  block.norm.eps = 1e-5f;  // no key: the family never sets another
  block.norm.has_gain = block.norm.has_bias = reader.Flag("layer_norm_elementwise_affine", true);
  const bool norm_before = reader.Flag("do_layer_norm_before", true);
  block.placement = norm_before ? NormPlacement::kPre : NormPlacement::kPost;
  if (norm_before && !reader.Flag("_remove_final_layer_norm", false)) config->final_norm = block.norm;
  const bool bias = reader.Flag("enable_bias", true);
  block.attention.qkv_bias = block.attention.out_bias = bias;
  block.ffn.up_bias = block.ffn.down_bias = bias;
  block.ffn.gated = false;
  block.ffn.activation = ReadActivation(reader, "activation_function", "relu");
  block.ffn.ffn_dim = reader.Positive("ffn_dim", 3072);
  if (reader.Positive("word_embed_proj_dim", config->model_dim) != config->model_dim) {
    reader.Refuse("word_embed_proj_dim", "the value of hidden_size");
  }
  reader.Ignore({"dropout", "layerdrop", "init_std", "activation_dropout", "_remove_final_layer_norm", "prefix"});
  AddLayers(*config, block);
}

constexpr const char* kNeoXBases[] = {"gpt_neox.", ""};
constexpr const char* kNeoXBuffers[] = {"*.attention.bias", "*.attention.masked_bias", "*.rotary_emb.inv_freq"};
constexpr WeightPattern kNeoXPatterns[] = {
    {TensorRole::kTokenEmbedding, PartKind::kAll, "{base}embed_in.weight"},
    {TensorRole::kFinalNormGain, PartKind::kAll, "{base}final_layer_norm.weight"},
    {TensorRole::kFinalNormBias, PartKind::kAll, "{base}final_layer_norm.bias"},
    {TensorRole::kHead, PartKind::kAll, "embed_out.weight"},
    {TensorRole::kQkv, PartKind::kQkvGrouped, "{base}layers.{layer}.attention.query_key_value.weight"},
    {TensorRole::kQkvBias, PartKind::kQkvGrouped, "{base}layers.{layer}.attention.query_key_value.bias"},
    {TensorRole::kAttentionOut, PartKind::kAll, "{base}layers.{layer}.attention.dense.weight"},
    {TensorRole::kAttentionOutBias, PartKind::kAll, "{base}layers.{layer}.attention.dense.bias"},
    {TensorRole::kFfnUp, PartKind::kAll, "{base}layers.{layer}.mlp.dense_h_to_4h.weight"},
    {TensorRole::kFfnUpBias, PartKind::kAll, "{base}layers.{layer}.mlp.dense_h_to_4h.bias"},
    {TensorRole::kFfnDown, PartKind::kAll, "{base}layers.{layer}.mlp.dense_4h_to_h.weight"},
    {TensorRole::kFfnDownBias, PartKind::kAll, "{base}layers.{layer}.mlp.dense_4h_to_h.bias"},
};
constexpr std::span<const WeightPattern> kNeoXTables[] = {kNeoXPatterns, kLlamaNorms};
constexpr WeightNames kNeoXNames = {kNeoXBases, kNeoXTables, kNeoXBuffers};

void ReadNeoX(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadSizes(reader, {50432, 6144, 44, 2048}, config);
  ReadHeads(reader, {64, 0, 0}, *config, &block.attention, {"num_attention_heads", nullptr, nullptr});
  ExpectDerivedHeadDim(reader, block.attention);
  RopeDefaults rope;
  rope.head_dim = block.attention.head_dim;
  rope.context_length = config->context_length;
  rope.rotated_share = 0.25;
  rope.theta_key = reader.Either({"rope_theta", "rotary_emb_base"});
  rope.share_key = reader.Either({"partial_rotary_factor", "rotary_pct"});
  block.attention.rope = InternRope(*config, ReadRope(reader, rope).spec);
  block.norm = LayerNorm(reader, 1e-5);
  config->final_norm = block.norm;
  block.parallel = reader.Flag("use_parallel_residual", true);
  block.attention.qkv_bias = true;
  ReadAttentionBias(reader, &block);
  block.ffn.gated = false;
  block.ffn.up_bias = block.ffn.down_bias = true;
  block.ffn.activation = ReadActivation(reader, "hidden_act", "gelu");
  block.ffn.ffn_dim = reader.Positive("intermediate_size", 24576);
  reader.Ignore({"attention_probs_dropout_prob", "hidden_dropout_prob"});
  AddLayers(*config, block);
}

constexpr Family kFamilies[] = {
    {"gpt2", ReadGpt2, &kGpt2Names},
    {"openai-gpt", ReadGpt1, &kGpt1Names},
    {"opt", ReadOpt, &kOptNames},
    {"gpt_neox", ReadNeoX, &kNeoXNames},
};

}  // namespace

std::span<const Family> GptFamilies() { return kFamilies; }

}  // namespace linnet::formats
