// Llama and the families that differ from it by a few fields: Mistral, Qwen 2 and 3, SmolLM3, Granite, OLMo 2.
#include "formats/huggingface/families/common.h"

namespace linnet::formats {
namespace {

constexpr WeightNames kLlamaNames = {kModelBases, kLlamaTables, kRotaryBuffers};

void ReadLlama(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadLlamaLike(reader, {{{32000, 4096, 32, 2048}, {32, 0, 0}, 11008}, 1e-6}, config, &block);
  ReadAttentionBias(reader, &block);
  ReadMlpBias(reader, &block);
  // Left by conversions from other layouts; only the layout that transformers has is read.
  reader.Expect("rope_interleaved", {"false"});
  reader.Ignore({"is_llama_config", "max_sequence_length"});
  AddLayers(*config, block);
}

void ReadMistral(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadLlamaLike(reader, {{{32000, 4096, 32, 131072}, {32, 8, 0}, 14336}, 1e-6}, config, &block);
  block.attention.window = reader.IsNull("sliding_window") ? 0 : reader.Size("sliding_window", 4096);
  AddLayers(*config, block);
}

/// The window that use_sliding_window lets through, 0 where it does not.
uint32_t ReadSwitchedWindow(ConfigReader& reader, uint32_t fallback) {
  const bool used = reader.Flag("use_sliding_window", false);
  const uint32_t window = reader.IsNull("sliding_window") ? 0 : reader.Size("sliding_window", fallback);
  return used ? window : 0;
}

void AddQwenLayers(ConfigReader& reader, const BlockSpec& block, ModelConfig* config) {
  const uint32_t window = ReadSwitchedWindow(reader, 4096);
  const uint32_t first_sliding = reader.Size("max_window_layers", 28);
  const std::vector<bool> sliding =
      ReadSlidingLayers(reader, config->n_layers, [=](uint32_t layer) { return window > 0 && layer >= first_sliding; });
  reader.Expect("use_mrope", {"false"});
  AddLayers(*config, block,
            [&](uint32_t layer, BlockSpec& own) { own.attention.window = sliding[layer] ? window : 0; });
}

void ReadQwen2(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadLlamaLike(reader, {{{151936, 4096, 32, 32768}, {32, 32, 0}, 22016}, 1e-6}, config, &block);
  block.attention.qkv_bias = true;
  AddQwenLayers(reader, block, config);
}

void ReadQwen3(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadLlamaLike(reader, {{{151936, 4096, 32, 32768}, {32, 32, 128}, 22016}, 1e-6}, config, &block);
  ReadAttentionBias(reader, &block);
  AddHeadNorm(&block);
  AddQwenLayers(reader, block, config);
}

/// no_rope_layers[i] is 1 where layer i rotates; without it every no_rope_layer_interval-th layer does not.
std::vector<bool> ReadRotatingLayers(ConfigReader& reader, uint32_t n_layers) {
  const std::vector<uint32_t> flags = reader.Sizes("no_rope_layers", kMaxLayers);
  const uint32_t interval = reader.Positive("no_rope_layer_interval", 4);
  std::vector<bool> rotating(n_layers, true);
  if (reader.Has("no_rope_layers") && flags.size() < n_layers) {
    reader.Invalid("no_rope_layers", "expected a number a layer, found " + std::to_string(flags.size()));
    return rotating;
  }
  for (uint32_t layer = 0; layer < n_layers; ++layer) {
    rotating[layer] = flags.empty() ? (layer + 1) % interval != 0 : flags[layer] != 0;
  }
  return rotating;
}

void ReadSmolLm3(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadLlamaLike(reader, {{{128256, 2048, 36, 32768, true}, {16, 4, 0}, 11008}, 1e-6, 2000000.0}, config, &block);
  ReadAttentionBias(reader, &block);
  ReadMlpBias(reader, &block);
  const uint32_t window = ReadSwitchedWindow(reader, 0);
  const std::vector<bool> rotating = ReadRotatingLayers(reader, config->n_layers);
  const std::vector<bool> sliding =
      ReadSlidingLayers(reader, config->n_layers, [&](uint32_t layer) { return window > 0 && !rotating[layer]; });
  reader.Ignore({"max_window_layers"});
  AddLayers(*config, block, [&](uint32_t layer, BlockSpec& own) {
    own.attention.window = sliding[layer] ? window : 0;
    if (!rotating[layer]) own.attention.rope = -1;
  });
}

void ReadGranite(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadLlamaLike(reader, {{{32000, 4096, 32, 2048}, {32, 0, 0}, 11008}, 1e-6}, config, &block);
  ReadAttentionBias(reader, &block);
  ReadMlpBias(reader, &block);
  block.attention.score_scale = static_cast<float>(reader.Number("attention_multiplier", 1.0));
  block.branch_scale = static_cast<float>(reader.Number("residual_multiplier", 1.0));
  config->embedding_scale = static_cast<float>(reader.Number("embedding_multiplier", 1.0));
  config->logit_scale = static_cast<float>(1.0 / reader.Number("logits_scaling", 1.0));
  reader.Expect("position_embedding_type", {"\"rope\""});
  AddLayers(*config, block);
}

constexpr WeightPattern kOlmo2Norms[] = {
    {TensorRole::kAttentionNormGain, PartKind::kAll, "{base}layers.{layer}.post_attention_layernorm.weight"},
    {TensorRole::kFfnNormGain, PartKind::kAll, "{base}layers.{layer}.post_feedforward_layernorm.weight"},
};
constexpr std::span<const WeightPattern> kOlmo2Tables[] = {kLlamaGlobals, kOlmo2Norms, kLlamaAttention, kLlamaFfn};
constexpr WeightNames kOlmo2Names = {kModelBases, kOlmo2Tables, kRotaryBuffers};

void ReadOlmo2(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadLlamaLike(reader, {{{50304, 4096, 32, 2048}, {32, 0, 0}, 11008}, 1e-5}, config, &block);
  ReadAttentionBias(reader, &block);
  block.placement = NormPlacement::kSubLayerOutput;
  block.attention.qk_norm = QkNorm::kFullWidth;
  block.attention.qk_norm_spec = block.norm;
  AddLayers(*config, block);
}

constexpr Family kFamilies[] = {
    {"llama", ReadLlama, &kLlamaNames}, {"mistral", ReadMistral, &kLlamaNames}, {"qwen2", ReadQwen2, &kLlamaNames},
    {"qwen3", ReadQwen3, &kLlamaNames}, {"smollm3", ReadSmolLm3, &kLlamaNames}, {"granite", ReadGranite, &kLlamaNames},
    {"olmo2", ReadOlmo2, &kOlmo2Names},
};

}  // namespace

std::span<const Family> LlamaFamilies() { return kFamilies; }

}  // namespace linnet::formats
