#include "ops/attention.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/base/checked.h"
#include "ops/attention_geometry.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/attention_kernels-inl.h"
#include "ops/attention_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One kv head of a layer's cache.
template <typename T>
struct CacheView {
  const T* keys;
  const T* values;
  const float* key_scales;  // null unless int8
  const float* value_scales;
  uint32_t capacity;
  size_t head_dim, value_dim;
  size_t value_stride;
  bool latent;

  size_t Slot(uint32_t pos) const { return pos % capacity; }
};

template <typename T>
CacheView<T> MakeCacheView(const AttentionArgs& args, uint32_t kv_head) {
  const KvLayout& layout = *args.layout;
  const KvShape& s = layout.shape;
  CacheView<T> view = {};
  const size_t slots = size_t{kv_head} * s.capacity;
  view.keys = reinterpret_cast<const T*>(args.cache + layout.keys_offset) + slots * s.head_dim;
  view.values = reinterpret_cast<const T*>(args.cache + layout.values_offset) + slots * s.value_dim;
  if (s.type == KvType::kInt8) {
    view.key_scales = reinterpret_cast<const float*>(args.cache + layout.key_scales_offset) + slots;
    view.value_scales = reinterpret_cast<const float*>(args.cache + layout.value_scales_offset) + slots;
  }
  view.capacity = s.capacity;
  view.head_dim = s.head_dim;
  view.value_dim = s.value_dim;
  view.value_stride = s.latent ? s.head_dim : s.value_dim;
  view.latent = s.latent;
  return view;
}

// The rows of a query tile. Positions never decrease from row to row, so that the rows that see any part of a split
// are adjacent.
template <typename T>
struct Tile {
  const AttentionArgs& args;
  CacheView<T> cache;
  ThreadScratch scratch;
  uint32_t n_rows;
  uint32_t pos[kAttentionTileRows];
  uint32_t lowest[kAttentionTileRows];  // visible position
  uint32_t head[kAttentionTileRows];
  SoftmaxState state[kAttentionTileRows];
};

// Rows begin to end of a tile over one split, with entries first to last of it visible to each.
struct ActiveRows {
  uint32_t split_pos;  // position of entry 0
  uint32_t begin, end;
  uint32_t first[kAttentionTileRows], last[kAttentionTileRows];
};

template <typename T>
void InitTile(Tile<T>& tile, const QueryTile& query) {
  const AttentionArgs& args = tile.args;
  const KvTag d;
  const size_t lanes = hn::Lanes(d), n = args.layout->shape.head_dim;
  const auto scale = hn::Set(d, args.options.score_scale);
  const uint32_t group = GroupSize(args);
  tile.n_rows = query.n_rows;
  for (uint32_t r = 0; r < query.n_rows; ++r) {
    const uint32_t token = (query.first_row + r) / group;
    tile.head[r] = query.kv_head * group + (query.first_row + r) % group;
    tile.pos[r] = args.first_pos + token;
    tile.lowest[r] = LowestVisible(tile.pos[r], args.options.window);
    const float* q = args.q + token * args.q_token_stride + tile.head[r] * args.q_head_stride;
    float* scaled = tile.scratch.q + r * tile.scratch.q_stride;
    size_t i = 0;
    for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(scale, hn::LoadU(d, q + i)), d, scaled + i);
    if (i < n) hn::StoreU(hn::Mul(scale, hn::LoadN(d, q + i, n - i)), d, scaled + i);
  }
}

template <typename T>
ActiveRows FindActiveRows(const Tile<T>& tile, uint32_t split) {
  ActiveRows rows = {};
  rows.split_pos = split * kAttentionSplit;
  const uint32_t split_last = rows.split_pos + kAttentionSplit - 1;
  rows.end = tile.n_rows;
  while (rows.begin < rows.end && tile.pos[rows.begin] < rows.split_pos) ++rows.begin;
  while (rows.end > rows.begin && tile.lowest[rows.end - 1] > split_last) --rows.end;
  for (uint32_t r = rows.begin; r < rows.end; ++r) {
    rows.first[r] = std::max(tile.lowest[r], rows.split_pos) - rows.split_pos;
    rows.last[r] = std::min(tile.pos[r], split_last) - rows.split_pos;
  }
  return rows;
}

// Scores of a block's entries begin to end, multiples of a vector.
template <typename T>
void ScoreBlock(const Tile<T>& tile, const ActiveRows& rows, size_t entry, size_t end) {
  const size_t head_dim = tile.cache.head_dim;
  const size_t slot = tile.cache.Slot(rows.split_pos + static_cast<uint32_t>(entry));
  Product<T> product = {};
  product.a = tile.scratch.q + rows.begin * tile.scratch.q_stride;
  product.a_stride = tile.scratch.q_stride;
  product.b = tile.cache.keys + slot / kKvBlock * kKvBlock * head_dim + slot % kKvBlock;
  product.b_stride = kKvBlock;
  product.depth = head_dim;
  product.c = tile.scratch.scores + rows.begin * kScoreStride + entry;
  product.c_stride = kScoreStride;
  Multiply(rows.end - rows.begin, end - entry, product);
}

template <typename T>
void ScoreLatentBlock(const Tile<T>& tile, const ActiveRows& rows, size_t entry, size_t end) {
  const size_t slot = tile.cache.Slot(rows.split_pos + static_cast<uint32_t>(entry));
  const T* keys = tile.cache.keys + slot * tile.cache.head_dim;
  for (size_t i = 0; entry + i < end; i += kDotPositions) {
    const RowDots<T> dots = {tile.scratch.q + rows.begin * tile.scratch.q_stride,
                             tile.scratch.q_stride,
                             keys + i * tile.cache.head_dim,
                             tile.cache.head_dim,
                             tile.cache.head_dim,
                             tile.scratch.scores + rows.begin * kScoreStride + entry + i,
                             kScoreStride};
    DotRows(rows.end - rows.begin, dots);
  }
}

// Scores of all active rows from the lowest to the highest entry that any of them sees. A block of positions never
// straddles a ring's end.
template <typename T>
void ScoreSplit(const Tile<T>& tile, const ActiveRows& rows) {
  const size_t step = tile.cache.latent ? kDotPositions : hn::Lanes(KvTag());
  const size_t end = (rows.last[rows.end - 1] / step + 1) * step;
  size_t entry = rows.first[rows.begin] / step * step;
  while (entry < end) {
    const size_t block_end = std::min(end, (entry / kKvBlock + 1) * kKvBlock);
    if (tile.cache.latent) {
      ScoreLatentBlock(tile, rows, entry, block_end);
    } else {
      ScoreBlock(tile, rows, entry, block_end);
    }
    entry = block_end;
  }
}

// Multiplies a row's visible entries by their positions' scales of an int8 cache.
template <typename T>
void ApplyScales(const CacheView<T>& cache, const float* scales, const VisibleScores& row, uint32_t split_pos) {
  for (uint32_t block = row.first / kKvBlock * kKvBlock; block <= row.last; block += kKvBlock) {
    const VisibleScores part = {row.scores + block, std::max(row.first, block) - block,
                                std::min(row.last - block, kKvBlock - 1)};
    ScaleScores(part, scales + cache.Slot(split_pos + block));
  }
}

template <typename T>
void SoftmaxSplit(const Tile<T>& tile, const ActiveRows& rows, SoftmaxState* states) {
  const AttentionOptions& options = tile.args.options;
  for (uint32_t r = rows.begin; r < rows.end; ++r) {
    const VisibleScores row = {tile.scratch.scores + r * kScoreStride, rows.first[r], rows.last[r]};
    if constexpr (hwy::IsSame<T, int8_t>()) ApplyScales(tile.cache, tile.cache.key_scales, row, rows.split_pos);
    if (options.logit_soft_cap > 0.0f) CapScores(row, options.logit_soft_cap);
    if (options.alibi_slopes != nullptr) {
      AddAlibi(row, options.alibi_slopes[tile.head[r]],
               static_cast<int32_t>(rows.split_pos) - static_cast<int32_t>(tile.pos[r]));
    }
    states[r] = SoftmaxOfRow(row);
    if constexpr (hwy::IsSame<T, int8_t>()) ApplyScales(tile.cache, tile.cache.value_scales, row, rows.split_pos);
  }
}

struct OutputRows {
  float* data;  // of the tile's row 0
  size_t stride;
};

// out[begin to end] += probabilities of entries `entry` to `end_entry` times their values.
template <typename T>
void AddValues(const Tile<T>& tile, const ActiveRows& rows, uint32_t begin, uint32_t end, size_t entry,
               size_t end_entry, OutputRows out) {
  while (entry < end_entry) {
    // A block of values is read for all rows while it is in L1.
    const size_t block_end = std::min(end_entry, (entry / kKvBlock + 1) * kKvBlock);
    Product<T> product = {};
    product.a = tile.scratch.scores + begin * kScoreStride + entry;
    product.a_stride = kScoreStride;
    product.b =
        tile.cache.values + tile.cache.Slot(rows.split_pos + static_cast<uint32_t>(entry)) * tile.cache.value_stride;
    product.b_stride = tile.cache.value_stride;
    product.depth = block_end - entry;
    product.c = out.data + begin * out.stride;
    product.c_stride = out.stride;
    product.accumulate = true;
    Multiply(end - begin, tile.cache.value_dim, product);
    entry = block_end;
  }
}

// AddValues over those entries within [from, to) that each row sees; rows of one token see the same.
template <typename T>
void AddValuesPerToken(const Tile<T>& tile, const ActiveRows& rows, size_t from, size_t to, OutputRows out) {
  for (uint32_t begin = rows.begin, end; begin < rows.end; begin = end) {
    for (end = begin + 1; end < rows.end && tile.pos[end] == tile.pos[begin];) ++end;
    AddValues(tile, rows, begin, end, std::max<size_t>(rows.first[begin], from),
              std::min<size_t>(rows.last[begin] + size_t{1}, to), out);
  }
}

// out = probabilities * values, every row over exactly the entries that it sees, in ascending order: a masked value is
// never multiplied, so that neither its infinities nor the sign of its zeros leak. Entries that all rows see go
// through the dense kernel.
template <typename T>
void WeighValues(const Tile<T>& tile, const ActiveRows& rows, OutputRows out) {
  const size_t padded_bytes = PadToVector(tile.cache.value_dim) * sizeof(float);
  for (uint32_t r = rows.begin; r < rows.end; ++r) std::memset(out.data + r * out.stride, 0, padded_bytes);
  const size_t common_first = rows.first[rows.end - 1], common_end = rows.last[rows.begin] + size_t{1};
  if (common_first >= common_end) return AddValuesPerToken(tile, rows, 0, kAttentionSplit, out);
  AddValuesPerToken(tile, rows, 0, common_first, out);
  AddValues(tile, rows, rows.begin, rows.end, common_first, common_end, out);
  AddValuesPerToken(tile, rows, common_end, kAttentionSplit, out);
}

template <typename T>
void RunSplit(const Tile<T>& tile, const ActiveRows& rows, SoftmaxState* states, OutputRows out) {
  ScoreSplit(tile, rows);
  SoftmaxSplit(tile, rows, states);
  WeighValues(tile, rows, out);
}

// All splits of a query tile, merged as they come.
template <typename T>
void RunTile(Tile<T>& tile) {
  const OutputRows merged = {tile.scratch.merged, tile.scratch.value_stride};
  const OutputRows separate = {tile.scratch.split, tile.scratch.value_stride};
  const size_t value_dim = tile.cache.value_dim;
  const uint32_t last_split = tile.pos[tile.n_rows - 1] / kAttentionSplit;
  for (uint32_t split = tile.lowest[0] / kAttentionSplit; split <= last_split; ++split) {
    const ActiveRows rows = FindActiveRows(tile, split);
    if (rows.begin == rows.end) continue;
    if (tile.lowest[rows.begin] >= rows.split_pos) {  // the first split of every active row
      RunSplit(tile, rows, tile.state, merged);
      continue;
    }
    SoftmaxState states[kAttentionTileRows];
    RunSplit(tile, rows, states, separate);
    for (uint32_t r = rows.begin; r < rows.end; ++r) {
      float* total = merged.data + r * merged.stride;
      const float* part = separate.data + r * separate.stride;
      if (tile.lowest[r] >= rows.split_pos) {
        tile.state[r] = states[r];
        std::memcpy(total, part, value_dim * sizeof(float));
      } else {
        MergeSplit(tile.state[r], total, states[r], part, value_dim);
      }
    }
  }
  const AttentionArgs& args = tile.args;
  for (uint32_t r = 0; r < tile.n_rows; ++r) {
    const float* sink = args.options.sinks != nullptr ? args.options.sinks + tile.head[r] : nullptr;
    const size_t token = tile.pos[r] - args.first_pos;
    float* out = args.out + token * args.out_token_stride + tile.head[r] * args.out_head_stride;
    FinishRow(tile.state[r], merged.data + r * merged.stride, sink, out, value_dim);
  }
}

template <typename T>
void RunTaskOfType(const AttentionArgs& args, size_t task, std::byte* thread_scratch, std::byte* partials) {
  const uint32_t tiles = TilesPerKvHead(args);
  const bool split_parallel = IsSplitParallel(args);
  const SplitRange splits = SplitsOf(args.first_pos, args.options.window);
  const size_t tile_task = split_parallel ? task / splits.count() : task;
  const auto kv_head = static_cast<uint32_t>(tile_task / tiles);
  // Later tiles see more positions: they are handed out first, so that the last tasks to finish are small.
  const auto tile_index = static_cast<uint32_t>(tiles - 1 - tile_task % tiles);
  const ThreadScratch scratch(args.layout->shape, thread_scratch);
  Tile<T> tile = {args, MakeCacheView<T>(args, kv_head), scratch, 0, {}, {}, {}, {}};
  InitTile(tile, MakeQueryTile(args, kv_head, tile_index));
  if (!split_parallel) return RunTile(tile);
  const PartialResults results(*args.layout, args.n_heads, partials);
  const auto index = static_cast<uint32_t>(task % splits.count());
  RunSplit(tile, FindActiveRows(tile, splits.first + index), tile.state,
           {results.output(tile.head[0], index), results.head_stride});
  for (uint32_t r = 0; r < tile.n_rows; ++r) results.state(tile.head[r], index) = tile.state[r];
}

void RunTaskImpl(const AttentionArgs& args, size_t task, std::byte* thread_scratch, std::byte* partials) {
  switch (args.layout->shape.type) {
    case KvType::kF32:
      return RunTaskOfType<float>(args, task, thread_scratch, partials);
    case KvType::kF16:
      return RunTaskOfType<uint16_t>(args, task, thread_scratch, partials);
    case KvType::kInt8:
      return RunTaskOfType<int8_t>(args, task, thread_scratch, partials);
  }
}

void RunMergeTaskImpl(const AttentionArgs& args, size_t task, std::byte* partials) {
  const PartialResults results(*args.layout, args.n_heads, partials);
  const uint32_t n_splits = SplitsOf(args.first_pos, args.options.window).count();
  const size_t value_dim = args.layout->shape.value_dim;
  const auto begin = static_cast<uint32_t>(task * kMergeHeads);
  for (uint32_t head = begin; head < std::min(args.n_heads, begin + kMergeHeads); ++head) {
    float* out = args.out + head * args.out_head_stride;
    SoftmaxState state = results.state(head, 0);
    std::memcpy(out, results.output(head, 0), value_dim * sizeof(float));
    for (uint32_t split = 1; split < n_splits; ++split) {
      MergeSplit(state, out, results.state(head, split), results.output(head, split), value_dim);
    }
    FinishRow(state, out, args.options.sinks != nullptr ? args.options.sinks + head : nullptr, out, value_dim);
  }
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {

HWY_EXPORT(RunTaskImpl);
HWY_EXPORT(RunMergeTaskImpl);

uint64_t AttentionThreadScratchBytes(const KvLayout& layout) {
  return ThreadScratch::Floats(layout.shape) * sizeof(float);
}

uint64_t AttentionPartialBytes(const KvLayout& layout, uint32_t n_heads) {
  const uint64_t split_bytes = PadToVector(layout.shape.value_dim) * sizeof(float) + sizeof(SoftmaxState);
  return AlignUp(n_heads * MaxSplits(layout) * split_bytes, 64);
}

size_t AttentionTaskCount(const AttentionArgs& args) {
  const size_t tiles = size_t{args.layout->shape.n_kv_heads} * TilesPerKvHead(args);
  return IsSplitParallel(args) ? tiles * SplitsOf(args.first_pos, args.options.window).count() : tiles;
}

void RunAttentionTask(const AttentionArgs& args, size_t task, std::byte* thread_scratch, std::byte* partials) {
  LINNET_DCHECK(args.n_tokens >= 1 && args.n_heads % args.layout->shape.n_kv_heads == 0);
  LINNET_DCHECK(task < AttentionTaskCount(args));
  HWY_DYNAMIC_DISPATCH(RunTaskImpl)(args, task, thread_scratch, partials);
}

size_t AttentionMergeTaskCount(const AttentionArgs& args) {
  return IsSplitParallel(args) ? CeilDiv(args.n_heads, kMergeHeads) : 0;
}

void RunAttentionMergeTask(const AttentionArgs& args, size_t task, const std::byte* partials) {
  LINNET_DCHECK(task < AttentionMergeTaskCount(args));
  HWY_DYNAMIC_DISPATCH(RunMergeTaskImpl)(args, task, const_cast<std::byte*>(partials));
}

AttentionCost ComputeAttentionCost(const AttentionArgs& args) {
  const KvShape& s = args.layout->shape;
  uint64_t visible = 0;
  for (uint32_t t = 0; t < args.n_tokens; ++t) {
    const uint32_t pos = args.first_pos + t;
    visible += pos - LowestVisible(pos, args.options.window) + 1;
  }
  const uint64_t span = args.first_pos + uint64_t{args.n_tokens} - LowestVisible(args.first_pos, args.options.window);
  const uint64_t slot_bytes = args.layout->bytes / s.capacity;
  return {2 * visible * args.n_heads * (uint64_t{s.head_dim} + s.value_dim), span * slot_bytes};
}

}  // namespace linnet::ops
#endif  // HWY_ONCE
