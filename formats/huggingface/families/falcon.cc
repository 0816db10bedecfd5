// Falcon: multi-query or grouped fused q, k, v; parallel blocks with one norm or two. BLOOM, its ancestor: a norm
// behind the embedding, linear biases (ALiBi) instead of rotation.
#include "formats/huggingface/families/common.h"

namespace linnet::formats {
namespace {

constexpr const char* kBases[] = {"transformer.", ""};
constexpr WeightPattern kPatterns[] = {
    {TensorRole::kTokenEmbedding, PartKind::kAll, "{base}word_embeddings.weight"},
    {TensorRole::kFinalNormGain, PartKind::kAll, "{base}ln_f.weight"},
    {TensorRole::kFinalNormBias, PartKind::kAll, "{base}ln_f.bias"},
    {TensorRole::kHead, PartKind::kAll, "lm_head.weight"},
    {TensorRole::kAttentionNormGain, PartKind::kAll, "{base}h.{layer}.input_layernorm.weight"},
    {TensorRole::kAttentionNormGain, PartKind::kAll, "{base}h.{layer}.ln_attn.weight"},
    {TensorRole::kAttentionNormBias, PartKind::kAll, "{base}h.{layer}.input_layernorm.bias"},
    {TensorRole::kAttentionNormBias, PartKind::kAll, "{base}h.{layer}.ln_attn.bias"},
    {TensorRole::kFfnNormGain, PartKind::kAll, "{base}h.{layer}.post_attention_layernorm.weight"},
    {TensorRole::kFfnNormGain, PartKind::kAll, "{base}h.{layer}.ln_mlp.weight"},
    {TensorRole::kFfnNormBias, PartKind::kAll, "{base}h.{layer}.post_attention_layernorm.bias"},
    {TensorRole::kFfnNormBias, PartKind::kAll, "{base}h.{layer}.ln_mlp.bias"},
    {TensorRole::kQkv, PartKind::kQkvGrouped, "{base}h.{layer}.self_attention.query_key_value.weight"},
    {TensorRole::kQkvBias, PartKind::kQkvGrouped, "{base}h.{layer}.self_attention.query_key_value.bias"},
    {TensorRole::kAttentionOut, PartKind::kAll, "{base}h.{layer}.self_attention.dense.weight"},
    {TensorRole::kAttentionOutBias, PartKind::kAll, "{base}h.{layer}.self_attention.dense.bias"},
    {TensorRole::kFfnUp, PartKind::kAll, "{base}h.{layer}.mlp.dense_h_to_4h.weight"},
    {TensorRole::kFfnUpBias, PartKind::kAll, "{base}h.{layer}.mlp.dense_h_to_4h.bias"},
    {TensorRole::kFfnDown, PartKind::kAll, "{base}h.{layer}.mlp.dense_4h_to_h.weight"},
    {TensorRole::kFfnDownBias, PartKind::kAll, "{base}h.{layer}.mlp.dense_4h_to_h.bias"},
};
constexpr std::span<const WeightPattern> kTables[] = {kPatterns};
constexpr const char* kBuffers[] = {"*.rotary.inv_freq", "*.rotary_emb.inv_freq"};
constexpr WeightNames kNames = {kBases, kTables, kBuffers};

/// Key and value heads: as given in the new architecture, else one or as many as query heads.
void ReadKvHeads(ConfigReader& reader, bool new_architecture, AttentionSpec* attention) {
  const bool multi_query = reader.Flag("multi_query", true);
  const uint32_t given = reader.Positive(reader.Either({"num_kv_heads", "n_head_kv"}), attention->n_heads);
  attention->n_kv_heads = new_architecture ? given : multi_query ? 1 : attention->n_heads;
}

void ReadFalcon(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  const char* const model_dim = reader.Either({"hidden_size", "n_embed"});
  const char* const n_layers = reader.Either({"num_hidden_layers", "n_layer"});
  const char* const n_heads = reader.Either({"num_attention_heads", "n_head"});
  ReadSizes(reader, {65024, 4544, 32, 2048, true}, config, {model_dim, n_layers, "max_position_embeddings"});
  ReadHeads(reader, {71, 0, 0}, *config, &block.attention, {n_heads, nullptr, nullptr});
  const bool new_architecture = reader.Flag("new_decoder_architecture", false);
  ReadKvHeads(reader, new_architecture, &block.attention);

  RopeDefaults rope;
  rope.head_dim = block.attention.head_dim;
  rope.context_length = config->context_length;
  block.attention.rope = InternRope(*config, ReadRope(reader, rope).spec);
  // Falcon scales its linear biases together with the scores and rounds them to bf16, which the description cannot say.
  reader.Expect("alibi", {"false"});

  block.norm = LayerNorm(reader, 1e-5, "layer_norm_epsilon");
  config->final_norm = block.norm;
  const bool parallel = reader.Flag("parallel_attn", true);
  const uint32_t norms = reader.Size("num_ln_in_parallel_attn", new_architecture ? 2 : 1);
  if (new_architecture && !parallel) reader.Refuse("parallel_attn", "true, in the new decoder architecture");
  if (norms != 1 && !(norms == 2 && new_architecture)) reader.Refuse("num_ln_in_parallel_attn", "1, 2");
  block.parallel = parallel;
  block.parallel_shared_norm = parallel && norms == 1;

  const bool bias = reader.Flag("bias", false);
  block.attention.qkv_bias = block.attention.out_bias = bias;
  block.ffn.gated = false;
  block.ffn.up_bias = block.ffn.down_bias = bias;
  block.ffn.activation = ReadActivation(reader, "activation", "gelu");
  const uint32_t wide = config->model_dim <= kMaxDim ? 4 * config->model_dim : config->model_dim;
  block.ffn.ffn_dim = reader.Positive("ffn_hidden_size", wide);
  const double factor = static_cast<double>(block.ffn.ffn_dim) / config->model_dim;
  if (reader.Number("ff_factor", factor) != factor) reader.Refuse("ff_factor", "ffn_hidden_size / hidden_size");
  reader.Expect("apply_residual_connection_post_layernorm", {"false"});
  AddLayers(*config, block);
}

constexpr WeightPattern kBloomGlobals[] = {
    {TensorRole::kEmbeddingNormGain, PartKind::kAll, "{base}word_embeddings_layernorm.weight"},
    {TensorRole::kEmbeddingNormBias, PartKind::kAll, "{base}word_embeddings_layernorm.bias"},
};
constexpr std::span<const WeightPattern> kBloomTables[] = {kBloomGlobals, kPatterns};
constexpr WeightNames kBloomNames = {kBases, kBloomTables};

void ReadBloom(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  const char* const model_dim = reader.Either({"hidden_size", "n_embed"});
  const char* const n_layers = reader.Either({"num_hidden_layers", "n_layer"});
  const char* const n_heads = reader.Either({"num_attention_heads", "n_head"});
  // No arithmetic depends on the length; published files keep the trained one as seq_length.
  ReadSizes(reader, {250880, 64, 2, 2048, true}, config, {model_dim, n_layers, "seq_length"});
  ReadHeads(reader, {8, 0, 0}, *config, &block.attention, {n_heads, nullptr, nullptr});
  block.attention.alibi = true;
  block.norm = LayerNorm(reader, 1e-5, "layer_norm_epsilon");
  config->embedding_norm = config->final_norm = block.norm;
  block.attention.qkv_bias = block.attention.out_bias = true;
  block.ffn.gated = false;
  block.ffn.up_bias = block.ffn.down_bias = true;
  block.ffn.activation = Activation::kGeluTanh;
  const uint32_t wide = config->model_dim <= kMaxDim ? 4 * config->model_dim : config->model_dim;
  block.ffn.ffn_dim = reader.Positive("n_inner", wide);
  if (block.ffn.ffn_dim != wide) reader.Refuse("n_inner", "4 * hidden_size");
  reader.Expect("apply_residual_connection_post_layernorm", {"false"});
  // How training and transformers' own kernels round and fuse.
  reader.Ignore({"slow_but_exact", "attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion",
                 "offset_alibi", "skip_bias_add", "skip_bias_add_qkv"});
  AddLayers(*config, block);
}

constexpr Family kFamilies[] = {{"falcon", ReadFalcon, &kNames}, {"bloom", ReadBloom, &kBloomNames}};

}  // namespace

std::span<const Family> FalconFamilies() { return kFamilies; }

}  // namespace linnet::formats
