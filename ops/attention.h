// Public header. Causal attention over a KV cache, for prefill and decode, cut into tasks for a thread pool.
#ifndef LINNET_OPS_ATTENTION_H_
#define LINNET_OPS_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "ops/kv_cache.h"

namespace linnet::ops {

/// Cached positions are attended to in splits at absolute multiples of this. A split's softmax is computed on its
/// own, and the splits are merged in ascending order: so the bits depend neither on chunks nor on threads, and a
/// single token over a long context is parallel beyond its kv heads. 256: the scores of a query tile stay in L1.
constexpr uint32_t kAttentionSplit = 256;

/// Query rows (tokens times query heads of one kv head) that one task serves with one pass over keys and values.
constexpr uint32_t kAttentionTileRows = 24;

struct AttentionOptions {
  float score_scale = 1.0f;             // score = score_scale * q.k
  float logit_soft_cap = 0.0f;          // c > 0: score = c * tanh(score / c), before bias and mask; 0: none
  uint32_t window = 0;                  // position i sees j with i - window < j <= i; 0: every j <= i
  const float* sinks = nullptr;         // [n_heads]: a logit that joins the softmax's denominator only; or null
  const float* alibi_slopes = nullptr;  // [n_heads]: slope * (j - i) is added to the score (arXiv:2108.12409); or null
};

/// softmax(mask(score)) * V for n_tokens queries at first_pos, first_pos + 1, ... over what the cache holds up to each.
/// Query head h reads kv head h / (n_heads / n_kv_heads); latent: every head reads the one latent, q is the absorbed
/// query [kv_lora_rank + rope_dim] and the output the weighted latent [kv_lora_rank] of each head.
/// The keys and values of all n_tokens positions have been stored. Without a window first_pos + n_tokens <= capacity;
/// with one, capacity >= min(window + n_tokens - 1, first_pos + n_tokens) (KvCapacity gives it).
/// Aliasing: out overlaps neither q nor the cache.
/// Numerics: f32 sums; dot products over head_dim in a fixed order per instruction set. The bits of a row depend on its
/// q, its position and the positions that it sees, on nothing else: not on n_tokens, tasks, threads, capacity, or on
/// what lies in slots that it does not see.
struct AttentionArgs {
  const KvLayout* layout = nullptr;
  const std::byte* cache = nullptr;  // the layer's start
  uint32_t n_heads = 0;              // a multiple of the layout's n_kv_heads
  uint32_t first_pos = 0;
  uint32_t n_tokens = 0;     // >= 1
  const float* q = nullptr;  // [n_tokens][n_heads][head_dim], strides in floats
  size_t q_token_stride = 0;
  size_t q_head_stride = 0;  // head_dim where heads are adjacent
  float* out = nullptr;      // [n_tokens][n_heads][value_dim], strides in floats
  size_t out_token_stride = 0;
  size_t out_head_stride = 0;  // value_dim where heads are adjacent
  AttentionOptions options;
};

/// Scratch of one thread, aligned to 64 bytes; its content need not survive from task to task.
uint64_t AttentionThreadScratchBytes(const KvLayout& layout);
/// Partial results, shared by all threads, aligned to 64 bytes, written by the tasks and read by the merge tasks.
/// Enough for any first_pos and n_tokens (only single tokens use it).
uint64_t AttentionPartialBytes(const KvLayout& layout, uint32_t n_heads);

/// Independent tasks of the first stage, each run once on any thread, costly ones first. n_tokens > 1: one per kv head
/// and query tile. n_tokens = 1: one per kv head, query tile and split.
size_t AttentionTaskCount(const AttentionArgs& args);
void RunAttentionTask(const AttentionArgs& args, size_t task, std::byte* thread_scratch, std::byte* partials);

/// The second stage, after every task of the first has finished: 0 where the first has written the output already,
/// else one task per few query heads.
size_t AttentionMergeTaskCount(const AttentionArgs& args);
void RunAttentionMergeTask(const AttentionArgs& args, size_t task, const std::byte* partials);

/// FLOPs (2 per multiply-add of q.k and p.v over the visible positions) and bytes of cache that a call reads once per
/// kv head: for profiles and rooflines.
struct AttentionCost {
  uint64_t flops = 0;
  uint64_t cache_bytes = 0;
};
AttentionCost ComputeAttentionCost(const AttentionArgs& args);

}  // namespace linnet::ops

#endif  // LINNET_OPS_ATTENTION_H_
