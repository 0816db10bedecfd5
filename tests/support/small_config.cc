#include "tests/support/small_config.h"

namespace linnet::testing {

ModelConfig SmallConfig() {
  ModelConfig config;
  config.family = "test";
  config.vocab_size = 300;
  config.model_dim = 64;
  config.n_layers = 2;
  config.context_length = 256;
  RopeSpec rope;
  rope.rope_dim = 16;
  config.ropes.push_back(rope);
  BlockSpec block;
  block.norm = {NormKind::kRmsNorm, 1e-5f, true, false, false};
  config.final_norm = block.norm;
  block.attention.n_heads = 4;
  block.attention.n_kv_heads = 2;
  block.attention.head_dim = block.attention.value_dim = 16;
  block.attention.score_scale = 0.25f;
  block.attention.rope = 0;
  block.ffn.ffn_dim = 96;
  config.layer_block.assign(2, InternBlock(config, block));
  return config;
}

ModelConfig SmallMixtureConfig() {
  ModelConfig config = SmallConfig();
  BlockSpec block = config.blocks[0];
  block.ffn.ffn_dim = 32;
  block.ffn.n_experts = 8;
  block.ffn.top_k = 3;
  block.ffn.n_groups = 4;
  block.ffn.top_groups = 2;
  block.ffn.shared_ffn_dim = 64;
  block.ffn.shared_gate = true;
  config.layer_block[1] = InternBlock(config, block);
  return config;
}

ModelConfig SmallLatentConfig() {
  ModelConfig config = SmallConfig();
  AttentionSpec& attention = config.blocks[0].attention;
  attention.kind = AttentionKind::kLatent;
  attention.n_kv_heads = 4;
  attention.head_dim = 32;
  attention.value_dim = 24;
  attention.q_lora_rank = 32;
  attention.kv_lora_rank = 48;
  attention.latent_norm = {NormKind::kRmsNorm, 1e-6f, true, false, false};
  return config;
}

}  // namespace linnet::testing
