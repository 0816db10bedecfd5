// Gemma 1, 2 and 3 (text): gains as 1 + w, scaled embeddings, norms on both sides, windows, soft caps.
#include <cmath>

#include "formats/huggingface/families/common.h"

namespace linnet::formats {
namespace {

constexpr WeightNames kGemmaNames = {kModelBases, kLlamaTables, kRotaryBuffers};

constexpr WeightPattern kBothSidesNorms[] = {
    {TensorRole::kAttentionNormGain, PartKind::kAll, "{base}layers.{layer}.input_layernorm.weight"},
    {TensorRole::kAttentionPostNormGain, PartKind::kAll, "{base}layers.{layer}.post_attention_layernorm.weight"},
    {TensorRole::kFfnNormGain, PartKind::kAll, "{base}layers.{layer}.pre_feedforward_layernorm.weight"},
    {TensorRole::kFfnPostNormGain, PartKind::kAll, "{base}layers.{layer}.post_feedforward_layernorm.weight"},
};
constexpr std::span<const WeightPattern> kBothSidesTables[] = {kLlamaGlobals, kBothSidesNorms, kLlamaAttention,
                                                               kLlamaFfn};
constexpr WeightNames kGemma2Names = {kModelBases, kBothSidesTables, kRotaryBuffers};

// The text part of a model that also sees: its language model's names, before and after transformers 4.52.
constexpr const char* kVisionBases[] = {"language_model.model.", "model.language_model."};
constexpr WeightPattern kVisionGlobals[] = {
    {TensorRole::kHead, PartKind::kAll, "language_model.lm_head.weight"},
};
constexpr std::span<const WeightPattern> kVisionTables[] = {kVisionGlobals, kLlamaGlobals, kBothSidesNorms,
                                                            kLlamaAttention, kLlamaFfn};
constexpr const char* kVisionIgnored[] = {"vision_tower.*", "model.vision_tower.*", "multi_modal_projector.*",
                                          "model.multi_modal_projector.*", "*.rotary_emb.inv_freq"};
constexpr WeightNames kGemma3VisionNames = {kVisionBases, kVisionTables, kVisionIgnored};

/// What all three generations share. `activation_key` is the one that the generation reads; files may carry the other.
void ReadGemmaBlock(ConfigReader& reader, const ShapeDefaults& shape, const char* activation_key, ModelConfig* config,
                    BlockSpec* block) {
  ReadSizes(reader, shape.sizes, config);
  ReadHeads(reader, shape.heads, *config, &block->attention);
  config->embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config->model_dim)));
  block->norm = RmsNorm(reader, 1e-6);
  block->norm.gain_plus_one = true;
  config->final_norm = block->norm;
  ReadAttentionBias(reader, block);
  block->ffn.activation = ReadActivation(reader, activation_key, "gelu_pytorch_tanh");
  reader.Ignore({"hidden_act", "hidden_activation"});
  block->ffn.ffn_dim = reader.Positive("intermediate_size", shape.ffn_dim);
  reader.Expect("use_bidirectional_attention", {"false"});
}

RopeDefaults GemmaRope(const ModelConfig& config, const BlockSpec& block, double theta) {
  RopeDefaults rope;
  rope.head_dim = block.attention.head_dim;
  rope.context_length = config.context_length;
  rope.theta = theta;
  return rope;
}

void ReadGemma(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadGemmaBlock(reader, {{256000, 3072, 28, 8192, true}, {16, 16, 256}, 24576}, "hidden_act", config, &block);
  block.attention.rope = InternRope(*config, ReadRope(reader, GemmaRope(*config, block, 10000.0)).spec);
  AddLayers(*config, block);
}

/// A soft cap: absent, the family's default; null, off.
float ReadCap(ConfigReader& reader, const char* key, double fallback) {
  return static_cast<float>(reader.Number(key, reader.IsNull(key) ? 0.0 : fallback));
}

void ReadQueryScaleAndLogitCap(ConfigReader& reader, double logit_cap, ModelConfig* config, BlockSpec* block) {
  block->placement = NormPlacement::kBothSides;
  const double scalar = reader.Number("query_pre_attn_scalar", 256.0);
  if (!(scalar > 0.0)) reader.Invalid("query_pre_attn_scalar", "expected a number above 0");
  block->attention.score_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  config->logit_soft_cap = ReadCap(reader, "final_logit_softcapping", logit_cap);
}

void ReadGemma2(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadGemmaBlock(reader, {{256000, 2304, 26, 8192, true}, {8, 4, 256}, 9216}, "hidden_activation", config, &block);
  ReadQueryScaleAndLogitCap(reader, 30.0, config, &block);
  block.attention.logit_soft_cap = ReadCap(reader, "attn_logit_softcapping", 50.0);
  reader.Ignore({"sliding_window_size"});  // repeats sliding_window in the first files
  block.attention.rope = InternRope(*config, ReadRope(reader, GemmaRope(*config, block, 10000.0)).spec);
  const uint32_t window = reader.Size("sliding_window", 4096);
  const std::vector<bool> sliding =
      ReadSlidingLayers(reader, config->n_layers, [](uint32_t layer) { return layer % 2 == 0; });
  AddLayers(*config, block,
            [&](uint32_t layer, BlockSpec& own) { own.attention.window = sliding[layer] ? window : 0; });
}

/// The rope of global layers and the rope of window layers, in that order.
struct RopePair {
  int32_t global = -1, local = -1;
};

RopePair ReadGemma3Ropes(ConfigReader& reader, ModelConfig* config, const BlockSpec& block) {
  RopeDefaults global = GemmaRope(*config, block, 1000000.0), local = GemmaRope(*config, block, 10000.0);
  local.theta_key = "rope_local_base_freq";
  ConfigReader parameters = reader.Child("rope_parameters");
  const bool per_kind = parameters.Has("full_attention") || parameters.Has("sliding_attention");
  RopePair pair;
  if (!per_kind) {  // one set of parameters, for the global layers; the local ones have a theta and no scaling
    pair.global = InternRope(*config, ReadRope(reader, global).spec);
    RopeSpec plain;
    plain.theta = reader.Number(local.theta_key, local.theta);
    plain.rope_dim = local.head_dim;
    pair.local = InternRope(*config, plain);
    return pair;
  }
  // transformers 5 writes an empty set of parameters beside the two where layer_types has one kind only.
  parameters.Expect("rope_type", {"\"default\""});
  ConfigReader full = parameters.Child("full_attention"), sliding = parameters.Child("sliding_attention");
  pair.global = InternRope(*config, ReadRopeParameters(full, reader, global).spec);
  pair.local = InternRope(*config, ReadRopeParameters(sliding, reader, local).spec);
  full.Finish();
  sliding.Finish();
  parameters.Finish();
  return pair;
}

void ReadGemma3(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadGemmaBlock(reader, {{262208, 2304, 26, 131072, true}, {8, 4, 256}, 9216}, "hidden_activation", config, &block);
  ReadQueryScaleAndLogitCap(reader, 0.0, config, &block);
  reader.Ignore({"attn_logit_softcapping"});  // transformers' class holds it and never applies it
  AddHeadNorm(&block);
  const RopePair ropes = ReadGemma3Ropes(reader, config, block);
  const uint32_t window = reader.Size("sliding_window", 4096);
  const uint32_t pattern = reader.Positive(reader.Either({"sliding_window_pattern", "_sliding_window_pattern"}), 6);
  const std::vector<bool> sliding =
      ReadSlidingLayers(reader, config->n_layers, [=](uint32_t layer) { return (layer + 1) % pattern != 0; });
  AddLayers(*config, block, [&](uint32_t layer, BlockSpec& own) {
    own.attention.window = sliding[layer] ? window : 0;
    own.attention.rope = sliding[layer] ? ropes.local : ropes.global;
  });
}

/// The text part of a Gemma 3 that also sees. What it computes for text alone is the text model's.
void ReadGemma3Vision(ConfigReader& reader, ModelConfig* config) {
  ConfigReader text = reader.Child("text_config");
  text.Expect("model_type", {"\"gemma3_text\""});
  IgnoreKeysWithoutEffect(text);
  ReadGemma3(text, config);
  text.Finish();
  reader.Expect("tie_word_embeddings", {"true"});
  reader.Ignore({"vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index", "image_token_index",
                 "boi_token_id", "eoi_token_id", "image_token_id"});
}

constexpr Family kFamilies[] = {
    {"gemma", ReadGemma, &kGemmaNames},
    {"gemma2", ReadGemma2, &kGemma2Names},
    {"gemma3_text", ReadGemma3, &kGemma2Names},
    {"gemma3", ReadGemma3Vision, &kGemma3VisionNames},
};

}  // namespace

std::span<const Family> GemmaFamilies() { return kFamilies; }

}  // namespace linnet::formats
