// Public header. What a description costs: parameters, arithmetic and KV cache, without any weights.
#ifndef LINNET_CORE_COUNT_H_
#define LINNET_CORE_COUNT_H_

#include <cstdint>
#include <vector>

#include "core/base/model_config.h"
#include "core/base/status.h"
#include "core/plan.h"
#include "ops/kv_cache.h"

namespace linnet {

struct CountOptions {
  uint32_t context_tokens = 0;            // 0: the model's context length
  uint32_t chunk_tokens = kDefaultChunk;  // for KvCount::planned_bytes only
  ops::KvType kv_type = ops::KvType::kF16;
};

/// Learned values. A tied output matrix is counted once, as the embedding.
struct ParameterCount {
  uint64_t total = 0;  // without selection_bias
  uint64_t token_embedding = 0;
  uint64_t output_matrix = 0;  // 0 where tied
  uint64_t position_table = 0;
  uint64_t non_embedding = 0;   // total - token_embedding - output_matrix - position_table
  uint64_t routed_experts = 0;  // all of them
  uint64_t active = 0;          // for one token: total - the routed experts that it does not choose
  uint64_t active_non_embedding = 0;
  uint64_t active_without_input_embedding = 0;  // a tied table stays: it is the output matrix
  uint64_t selection_bias = 0;  // of sigmoid routers (DeepSeek-V3): stored, but no gradient ever reaches it
};

/// One kind of block. Parameters: all norm gains and biases, QK-norm's and the latents' included, are `norms`.
/// FLOPs of one token: matrix products at two a multiply-add; the attention's part grows with the context.
struct BlockCount {
  uint32_t n_layers = 0;  // that are of this kind
  uint64_t attention = 0, ffn = 0, norms = 0;
  uint64_t attention_product_flops = 0;  // projections
  uint64_t attention_context_flops = 0;  // scores and weighted values of the context's last token
  uint64_t ffn_flops = 0;
};

/// Forward FLOPs of one token, two a multiply-add. Norms, softmax, rotation and activations are not counted: they are
/// under a hundredth of a model of common size.
struct FlopCount {
  uint64_t rule = 0;      // 2 N + 2 L n d: N active_non_embedding, L layers, n context, d model_dim (arXiv:2001.08361)
  uint64_t products = 0;  // every matrix product that a token goes through, the output matrix included
  uint64_t attention_last = 0;  // scores and weighted values of the context's last token, as they are computed here
                                // (latent attention in its absorbed form)
  double attention_mean = 0.0;  // the same, mean over the context's tokens: what the rule's second term stands for
  uint64_t last = 0;            // products + attention_last
  double mean = 0.0;            // products + attention_mean
};

/// A KV cache of the model's layers and windows under one kind of attention.
struct KvCount {
  bool exists = false;  // false: this model's heads have no such grouping
  bool is_own = false;  // the model's own kind
  AttentionKind kind = AttentionKind::kGrouped;
  uint32_t n_kv_heads = 0;     // of the first layer; kGrouped
  uint32_t latent_width = 0;   // kv_lora_rank + rope_dim of the first layer; kLatent
  uint64_t token_bytes = 0;    // one more position in every layer, as long as no window is full
  uint64_t context_bytes = 0;  // the whole context; a window layer keeps its window only
  uint64_t planned_bytes = 0;  // what a session takes for it: positions in whole blocks, and room for a chunk in rings
};

struct ModelCount {
  uint32_t context_tokens = 0;
  ParameterCount parameters;
  std::vector<BlockCount> blocks;  // as ModelConfig::blocks
  FlopCount flops;
  KvCount kv;  // the model as it is
  // The same heads under other kinds. GQA: the model's own groups, else the most kv heads up to 8 that divide the
  // heads. MLA: the model's own latent, else four heads wide plus half a head for the rotated key (arXiv:2405.04434).
  KvCount mha, gqa, mqa, mla;
};

/// `config` is validated. Errors: kInvalidArgument (a context beyond kMaxContext), kUnsupported where a count does not
/// fit 64 bits.
Result<ModelCount> CountModel(const ModelConfig& config, const CountOptions& options);

}  // namespace linnet

#endif  // LINNET_CORE_COUNT_H_
