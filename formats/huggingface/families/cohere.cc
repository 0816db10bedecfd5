// Cohere's Command R models: parallel blocks behind one LayerNorm without bias, interleaved rotation, scaled logits.
#include "formats/huggingface/families/common.h"

namespace linnet::formats {
namespace {

constexpr WeightNames kNames = {kModelBases, kLlamaTables, kRotaryBuffers};

/// What both generations share; the caller adds the layers.
void ReadCommand(ConfigReader& reader, double rope_theta, const char* head_dim_key, ModelConfig* config,
                 BlockSpec* block) {
  ReadSizes(reader, {256000, 8192, 40, 8192, true}, config);
  ReadHeads(reader, {64, 0, 0}, *config, &block->attention,
            {"num_attention_heads", "num_key_value_heads", head_dim_key});
  RopeDefaults rope;
  rope.head_dim = block->attention.head_dim;
  rope.context_length = config->context_length;
  rope.theta = rope_theta;
  rope.layout = RopeLayout::kInterleaved;
  block->attention.rope = InternRope(*config, ReadRope(reader, rope).spec);
  block->norm = LayerNorm(reader, 1e-5);
  block->norm.has_bias = false;
  config->final_norm = block->norm;
  block->parallel = block->parallel_shared_norm = true;
  ReadAttentionBias(reader, block);
  block->ffn.activation = ReadActivation(reader, "hidden_act", "silu");
  block->ffn.ffn_dim = reader.Positive("intermediate_size", 22528);
  config->logit_scale = static_cast<float>(reader.Number("logit_scale", 0.0625));
  reader.Ignore({"model_max_length"});
}

void ReadCohere(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadCommand(reader, 500000.0, "head_dim", config, &block);
  if (reader.Flag("use_qk_norm", false)) {  // Command R+: a gain of every head's own
    block.attention.qk_norm = QkNorm::kPerHeadGain;
    block.attention.qk_norm_spec = block.norm;
  }
  AddLayers(*config, block);
}

void ReadCohere2(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadCommand(reader, 10000.0, nullptr, config, &block);
  ExpectDerivedHeadDim(reader, block.attention);
  const uint32_t window = reader.IsNull("sliding_window") ? 0 : reader.Size("sliding_window", 4096);
  const uint32_t pattern = reader.Positive("sliding_window_pattern", 4);
  const std::vector<bool> sliding =
      ReadSlidingLayers(reader, config->n_layers, [=](uint32_t layer) { return (layer + 1) % pattern != 0; });
  // Published files name the only arithmetic that transformers has.
  reader.Expect("use_qk_norm", {"false"});
  reader.Expect("rotary_pct", {"1", "1.0"});
  reader.Expect("position_embedding_type", {"\"rope_gptj\""});
  reader.Expect("order_of_interleaved_layers", {"\"local_attn_first\""});
  reader.Expect("use_gated_activation", {"true"});
  reader.Expect("use_parallel_block", {"true"});
  reader.Ignore({"layer_switch", "use_embedding_sharing", "use_parallel_embedding"});
  AddLayers(*config, block, [&](uint32_t layer, BlockSpec& own) {
    own.attention.window = sliding[layer] ? window : 0;
    if (own.attention.window == 0) own.attention.rope = -1;  // full layers see no positions
  });
}

constexpr Family kFamilies[] = {{"cohere", ReadCohere, &kNames}, {"cohere2", ReadCohere2, &kNames}};

}  // namespace

std::span<const Family> CohereFamilies() { return kFamilies; }

}  // namespace linnet::formats
