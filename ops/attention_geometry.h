// Internal. Which rows, positions and bytes a task of attention works on; shared by all instruction sets.
#ifndef LINNET_OPS_ATTENTION_GEOMETRY_H_
#define LINNET_OPS_ATTENTION_GEOMETRY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/base/checked.h"
#include "ops/attention.h"

namespace linnet::ops {

// Rows of scratch hold whole vectors of up to 16 f32.
constexpr size_t PadToVector(size_t n) { return AlignUp(n, 16); }

// A row of scores: 16 more than a split, so that rows do not start in the same few cache sets.
constexpr size_t kScoreStride = kAttentionSplit + 16;

// Query heads that one merge task finishes: few values each.
constexpr uint32_t kMergeHeads = 8;

inline uint32_t LowestVisible(uint32_t pos, uint32_t window) {
  return window != 0 && pos >= window ? pos - window + 1 : 0;
}

inline uint32_t GroupSize(const AttentionArgs& args) { return args.n_heads / args.layout->shape.n_kv_heads; }

// Most splits that one position sees: of a window that is not aligned, two are partial.
inline uint64_t MaxSplits(const KvLayout& layout) {
  return (layout.shape.capacity + uint64_t{2} * kAttentionSplit - 2) / kAttentionSplit;
}

struct SplitRange {
  uint32_t first, last;  // inclusive
  uint32_t count() const { return last - first + 1; }
};
inline SplitRange SplitsOf(uint32_t pos, uint32_t window) {
  return {LowestVisible(pos, window) / kAttentionSplit, pos / kAttentionSplit};
}

// Splits as tasks of their own: for a single token, which has no other parallelism than its kv heads.
inline bool IsSplitParallel(const AttentionArgs& args) {
  return args.n_tokens == 1 && SplitsOf(args.first_pos, args.options.window).count() > 1;
}

// Rows of a kv head are numbered token by token: row = token * group + (query head within the group).
struct QueryTile {
  uint32_t kv_head;
  uint32_t first_row;
  uint32_t n_rows;  // <= kAttentionTileRows
};

inline uint32_t TilesPerKvHead(const AttentionArgs& args) {
  return static_cast<uint32_t>(CeilDiv(uint64_t{args.n_tokens} * GroupSize(args), kAttentionTileRows));
}

inline QueryTile MakeQueryTile(const AttentionArgs& args, uint32_t kv_head, uint32_t tile) {
  const uint32_t rows = args.n_tokens * GroupSize(args);
  const uint32_t first = tile * kAttentionTileRows;
  return {kv_head, first, std::min(kAttentionTileRows, rows - first)};
}

// A thread's scratch: [kAttentionTileRows] rows each.
struct ThreadScratch {
  size_t q_stride, value_stride;  // floats
  float* q;                       // scaled queries
  float* scores;                  // of one split, then probabilities; stride kScoreStride
  float* merged;                  // output of the splits so far
  float* split;                   // output of this split

  static uint64_t Floats(const KvShape& shape) {
    return kAttentionTileRows *
           (PadToVector(shape.head_dim) + kScoreStride + uint64_t{2} * PadToVector(shape.value_dim));
  }
  ThreadScratch(const KvShape& shape, std::byte* bytes)
      : q_stride(PadToVector(shape.head_dim)), value_stride(PadToVector(shape.value_dim)) {
    q = reinterpret_cast<float*>(bytes);
    scores = q + kAttentionTileRows * q_stride;
    merged = scores + kAttentionTileRows * kScoreStride;
    split = merged + kAttentionTileRows * value_stride;
  }
};

// A softmax over some positions: out = sum of exp(score - max) * value is kept beside it.
struct SoftmaxState {
  float max;
  float sum;  // of exp(score - max)
};

// Results of single splits for one token: outputs [n_heads][MaxSplits][padded value_dim], then the states.
struct PartialResults {
  size_t head_stride, split_stride;  // of outputs, in floats
  uint64_t max_splits;
  float* outputs;
  SoftmaxState* states;  // [n_heads][MaxSplits]

  PartialResults(const KvLayout& layout, uint32_t n_heads, std::byte* bytes)
      : split_stride(PadToVector(layout.shape.value_dim)), max_splits(MaxSplits(layout)) {
    head_stride = static_cast<size_t>(max_splits) * split_stride;
    outputs = reinterpret_cast<float*>(bytes);
    states = reinterpret_cast<SoftmaxState*>(outputs + n_heads * head_stride);
  }
  float* output(uint32_t head, uint32_t split) const { return outputs + head * head_stride + split * split_stride; }
  SoftmaxState& state(uint32_t head, uint32_t split) const { return states[head * max_splits + split]; }
};

}  // namespace linnet::ops

#endif  // LINNET_OPS_ATTENTION_GEOMETRY_H_
