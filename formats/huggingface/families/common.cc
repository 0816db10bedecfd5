#include "formats/huggingface/families/common.h"

namespace linnet::formats {

void ReadLlamaLike(ConfigReader& reader, const LlamaLike& family, ModelConfig* config, BlockSpec* block) {
  ReadSizes(reader, family.shape.sizes, config);
  ReadHeads(reader, family.shape.heads, *config, &block->attention);
  RopeDefaults rope;
  rope.head_dim = block->attention.head_dim;
  rope.context_length = config->context_length;
  rope.theta = family.rope_theta;
  block->attention.rope = InternRope(*config, ReadRope(reader, rope).spec);
  block->norm = RmsNorm(reader, family.rms_norm_eps);
  block->ffn.activation = ReadActivation(reader, "hidden_act", "silu");
  block->ffn.ffn_dim = reader.Positive("intermediate_size", family.shape.ffn_dim);
  config->final_norm = block->norm;
}

void ReadAttentionBias(ConfigReader& reader, BlockSpec* block) {
  block->attention.qkv_bias = block->attention.out_bias = reader.Flag("attention_bias", block->attention.qkv_bias);
}

void ReadMlpBias(ConfigReader& reader, BlockSpec* block) {
  block->ffn.up_bias = block->ffn.down_bias = reader.Flag("mlp_bias", false);
}

void ExpectDerivedHeadDim(ConfigReader& reader, const AttentionSpec& attention) {
  if (reader.Positive("head_dim", attention.head_dim) != attention.head_dim) {
    reader.Refuse("head_dim", "hidden_size / num_attention_heads");
  }
}

void AddHeadNorm(BlockSpec* block) {
  block->attention.qk_norm = QkNorm::kPerHead;
  block->attention.qk_norm_spec = block->norm;
}

}  // namespace linnet::formats
