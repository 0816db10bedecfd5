#include "ops/kv_cache.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/checked.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kv_cache.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using StoreTag = hn::CappedTag<float, 16>;
constexpr size_t kMaxLanes = 16;

// Elements of `out` are `stride` apart: 1 for values and latents, kKvBlock for interleaved keys.
template <typename T>
struct Target {
  T* out;
  size_t stride;
};

// convert(vector, pointer to whole vector of T) for each vector of the row; the last, partial one is filled with zeros.
template <typename T, class Convert>
HWY_INLINE void StoreConverted(const float* row, size_t n, Target<T> target, const Convert& convert) {
  const StoreTag d;
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN T buffer[kMaxLanes];
  for (size_t i = 0; i < n; i += lanes) {
    const size_t count = std::min(lanes, n - i);
    convert(count == lanes ? hn::LoadU(d, row + i) : hn::LoadN(d, row + i, count), buffer);
    for (size_t j = 0; j < count; ++j) target.out[(i + j) * target.stride] = buffer[j];
  }
}

// Each overload writes one row of n elements; only int8 has a scale.
HWY_INLINE void StoreRow(const float* row, size_t n, Target<float> target, float*) {
  for (size_t i = 0; i < n; ++i) target.out[i * target.stride] = row[i];
}

HWY_INLINE void StoreRow(const float* row, size_t n, Target<uint16_t> target, float*) {
  const StoreTag d;
  const hn::Rebind<uint16_t, StoreTag> d16;
  const auto largest = hn::Set(d, 65504.0f);
  StoreConverted(row, n, target, [&](auto x, uint16_t* half) HWY_ATTR {
    const auto clamped = hn::Max(hn::Min(x, largest), hn::Neg(largest));
    hn::StoreU(DemoteHalf(d, hn::IfThenElse(hn::IsNaN(x), x, clamped)), d16, half);
  });
}

HWY_INLINE void StoreRow(const float* row, size_t n, Target<int8_t> target, float* scale) {
  const StoreTag d;
  const hn::Rebind<int8_t, StoreTag> d8;
  const size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(d);
  for (size_t i = 0; i < n; i += lanes) {
    largest = hn::Max(largest, hn::Abs(hn::LoadN(d, row + i, std::min(lanes, n - i))));
  }
  const float max = hn::ReduceMax(d, largest);
  const bool zero = max < 1e-30f;  // its inverse would overflow; in a softmax it is nothing
  *scale = zero ? 0.0f : max / 127.0f;
  const auto inverse = hn::Set(d, zero ? 0.0f : 127.0f / max);
  StoreConverted(row, n, target, [&](auto x, int8_t* quantized) HWY_ATTR {
    hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(hn::Mul(x, inverse))), d8, quantized);
  });
}

template <typename T>
struct StoreTask {
  const KvStoreArgs& args;
  uint32_t head;
  uint32_t first_token, end_token;  // within one block of positions

  T* At(uint64_t offset, size_t element) const { return reinterpret_cast<T*>(args.cache + offset) + element; }
  float* Scale(uint64_t offset, size_t slot) const { return reinterpret_cast<float*>(args.cache + offset) + slot; }

  void Run() const {
    const KvLayout& layout = *args.layout;
    const KvShape& s = layout.shape;
    for (uint32_t t = first_token; t < end_token; ++t) {
      const size_t slot = (args.first_pos + t) % s.capacity, head_slot = size_t{head} * s.capacity + slot;
      const float* k = args.k + t * args.k_token_stride + size_t{head} * s.head_dim;
      float* key_scale = Scale(layout.key_scales_offset, head_slot);
      if (s.latent) {
        StoreRow(k, s.head_dim, Target<T>{At(layout.keys_offset, slot * s.head_dim), 1}, key_scale);
        continue;
      }
      const size_t key = (head_slot - slot % kKvBlock) * s.head_dim + slot % kKvBlock;
      StoreRow(k, s.head_dim, Target<T>{At(layout.keys_offset, key), kKvBlock}, key_scale);
      const float* v = args.v + t * args.v_token_stride + size_t{head} * s.value_dim;
      StoreRow(v, s.value_dim, Target<T>{At(layout.values_offset, head_slot * s.value_dim), 1},
               Scale(layout.value_scales_offset, head_slot));
    }
  }
};

// Tokens of task: those of one block of kKvBlock absolute positions.
template <typename T>
void RunStoreOfType(const KvStoreArgs& args, uint32_t head, uint32_t first_token, uint32_t end_token) {
  StoreTask<T>{args, head, first_token, end_token}.Run();
}

void RunStoreImpl(const KvStoreArgs& args, uint32_t head, uint32_t first_token, uint32_t end_token) {
  switch (args.layout->shape.type) {
    case KvType::kF32:
      return RunStoreOfType<float>(args, head, first_token, end_token);
    case KvType::kF16:
      return RunStoreOfType<uint16_t>(args, head, first_token, end_token);
    case KvType::kInt8:
      return RunStoreOfType<int8_t>(args, head, first_token, end_token);
  }
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {

HWY_EXPORT(RunStoreImpl);

namespace {

uint32_t BlocksOf(const KvStoreArgs& args) {
  return (args.first_pos + args.n_tokens - 1) / kKvBlock - args.first_pos / kKvBlock + 1;
}

uint64_t ElementBytes(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 4;
    case KvType::kF16:
      return 2;
    case KvType::kInt8:
      return 1;
  }
  return 0;
}

}  // namespace

const char* KvTypeName(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kF16:
      return "f16";
    case KvType::kInt8:
      return "int8";
  }
  return "?";
}

uint32_t KvCapacity(uint32_t window, uint32_t context, uint32_t chunk) {
  const uint64_t ring = uint64_t{window} + chunk - 1;
  const uint64_t positions = window == 0 ? context : std::min<uint64_t>(context, ring);
  return static_cast<uint32_t>(AlignUp(positions, kKvBlock));
}

KvLayout MakeKvLayout(const KvShape& shape) {
  KvLayout layout;
  layout.shape = shape;
  const uint64_t slots = uint64_t{shape.n_kv_heads} * shape.capacity;
  const uint64_t element_bytes = ElementBytes(shape.type);
  const uint64_t scale_bytes = shape.type == KvType::kInt8 ? slots * sizeof(float) : 0;
  const uint64_t key_bytes = slots * shape.head_dim * element_bytes;
  const uint64_t value_bytes = shape.latent ? 0 : slots * shape.value_dim * element_bytes;
  layout.keys_offset = 0;
  layout.values_offset = shape.latent ? 0 : key_bytes;
  layout.key_scales_offset = key_bytes + value_bytes;
  layout.value_scales_offset = layout.key_scales_offset + (shape.latent ? 0 : scale_bytes);
  layout.bytes = layout.value_scales_offset + scale_bytes;
  return layout;
}

size_t KvStoreTaskCount(const KvStoreArgs& args) { return size_t{args.layout->shape.n_kv_heads} * BlocksOf(args); }

void RunKvStoreTask(const KvStoreArgs& args, size_t task) {
  LINNET_DCHECK(task < KvStoreTaskCount(args));
  const uint32_t blocks = BlocksOf(args);
  const auto head = static_cast<uint32_t>(task / blocks);
  const uint64_t block = args.first_pos / kKvBlock + task % blocks;
  const uint64_t begin = std::max<uint64_t>(block * kKvBlock, args.first_pos);
  const uint64_t end = std::min<uint64_t>((block + 1) * kKvBlock, uint64_t{args.first_pos} + args.n_tokens);
  HWY_DYNAMIC_DISPATCH(RunStoreImpl)
  (args, head, static_cast<uint32_t>(begin - args.first_pos), static_cast<uint32_t>(end - args.first_pos));
}

void StoreKv(const KvStoreArgs& args) {
  const size_t tasks = KvStoreTaskCount(args);
  for (size_t task = 0; task < tasks; ++task) RunKvStoreTask(args, task);
}

}  // namespace linnet::ops
#endif  // HWY_ONCE
