// Shared by the kernels that rotate: the block Walsh-Hadamard transform of one row. One copy per instruction set.
#if defined(LINNET_OPS_WALSH_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_OPS_WALSH_HADAMARD_INL_H_
#undef LINNET_OPS_WALSH_HADAMARD_INL_H_
#else
#define LINNET_OPS_WALSH_HADAMARD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that four permutations are enough whatever the vector width.
using WhtTag = hn::CappedTag<float, 16>;
using WhtVec = hn::Vec<WhtTag>;

/// The sign bit in the lanes whose number has the bit `stride`, for WhtStageInVector.
HWY_INLINE WhtVec WhtSigns(WhtTag d, int32_t stride) {
  const hn::RebindToSigned<WhtTag> di;
  const auto bit = hn::Set(di, stride);
  const auto is_odd = hn::RebindMask(d, hn::Eq(hn::And(hn::Iota(di, 0), bit), bit));
  return hn::IfThenElseZero(is_odd, hn::Set(d, -0.0f));
}

/// For every lane the one whose number differs in the bit `stride`.
HWY_INLINE auto WhtPartners(WhtTag d, int32_t stride) {
  const hn::RebindToSigned<WhtTag> di;
  const int32_t within = static_cast<int32_t>(hn::Lanes(d)) - 1;  // strides beyond the vector are not used
  return hn::IndicesFromVec(d, hn::Xor(hn::Iota(di, 0), hn::Set(di, stride & within)));
}

/// One stage inside a vector: two partners become their sum (in the lane with the bit clear) and their difference. The
/// lane with the bit set is negated and added to its partner: partner - own, as the stage across vectors computes it.
template <class Indices>
HWY_INLINE WhtVec WhtStageInVector(WhtVec v, Indices partners, WhtVec signs) {
  return hn::Add(hn::TableLookupLanes(v, partners), hn::Xor(v, signs));
}

/// All stages below `limit` (at most the lanes), from x to out.
HWY_INLINE void WhtInVectors(const float* x, size_t width, size_t limit, WhtVec factor, float* out) {
  const WhtTag d;
  const size_t lanes = hn::Lanes(d);
  const auto partners1 = WhtPartners(d, 1), partners2 = WhtPartners(d, 2);
  const auto partners4 = WhtPartners(d, 4), partners8 = WhtPartners(d, 8);
  const WhtVec signs1 = WhtSigns(d, 1), signs2 = WhtSigns(d, 2), signs4 = WhtSigns(d, 4), signs8 = WhtSigns(d, 8);
  for (size_t i = 0; i < width; i += lanes) {
    // A partial vector only occurs where a block is narrower than a vector: the zeros beyond the end form blocks of
    // their own.
    const size_t count = HWY_MIN(lanes, width - i);
    WhtVec v = count == lanes ? hn::LoadU(d, x + i) : hn::LoadN(d, x + i, count);
    if (limit > 1) v = WhtStageInVector(v, partners1, signs1);
    if (limit > 2) v = WhtStageInVector(v, partners2, signs2);
    if (limit > 4) v = WhtStageInVector(v, partners4, signs4);
    if (limit > 8) v = WhtStageInVector(v, partners8, signs8);
    v = hn::Mul(v, factor);
    if (count == lanes) {
      hn::StoreU(v, d, out + i);
    } else {
      hn::StoreN(v, d, out + i, count);
    }
  }
}

/// The stages `stride` and 2 * `stride` (at least a vector) in one pass over memory: half the loads and stores.
HWY_INLINE void WhtRadix4(float* x, size_t width, size_t stride, WhtVec factor) {
  const WhtTag d;
  const size_t lanes = hn::Lanes(d);
  for (size_t begin = 0; begin < width; begin += 4 * stride) {
    for (size_t i = begin; i < begin + stride; i += lanes) {
      const WhtVec a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + stride);
      const WhtVec c = hn::LoadU(d, x + i + 2 * stride), e = hn::LoadU(d, x + i + 3 * stride);
      const WhtVec ab_sum = hn::Add(a, b), ab_diff = hn::Sub(a, b);
      const WhtVec ce_sum = hn::Add(c, e), ce_diff = hn::Sub(c, e);
      hn::StoreU(hn::Mul(hn::Add(ab_sum, ce_sum), factor), d, x + i);
      hn::StoreU(hn::Mul(hn::Add(ab_diff, ce_diff), factor), d, x + i + stride);
      hn::StoreU(hn::Mul(hn::Sub(ab_sum, ce_sum), factor), d, x + i + 2 * stride);
      hn::StoreU(hn::Mul(hn::Sub(ab_diff, ce_diff), factor), d, x + i + 3 * stride);
    }
  }
}

HWY_INLINE void WhtRadix2(float* x, size_t width, size_t stride, WhtVec factor) {
  const WhtTag d;
  const size_t lanes = hn::Lanes(d);
  for (size_t begin = 0; begin < width; begin += 2 * stride) {
    for (size_t i = begin; i < begin + stride; i += lanes) {
      const WhtVec a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + stride);
      hn::StoreU(hn::Mul(hn::Add(a, b), factor), d, x + i);
      hn::StoreU(hn::Mul(hn::Sub(a, b), factor), d, x + i + stride);
    }
  }
}

/// out = x * H * scale for every block of the row; out may be x. Stages go from stride 1 up to block / 2; only the last
/// pass multiplies by `scale`, the others by 1 (exact), so every target rounds the same way.
HWY_INLINE void WalshHadamardRow(const float* x, size_t width, size_t block, float scale, float* out) {
  const WhtTag d;
  const WhtVec one = hn::Set(d, 1.0f), last = hn::Set(d, scale);
  const size_t lanes = hn::Lanes(d);
  WhtInVectors(x, width, HWY_MIN(block, lanes), block <= lanes ? last : one, out);
  size_t stride = lanes;
  for (; 4 * stride <= block; stride *= 4) WhtRadix4(out, width, stride, 4 * stride == block ? last : one);
  if (2 * stride <= block) WhtRadix2(out, width, stride, last);
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LINNET_OPS_WALSH_HADAMARD_INL_H_
