#include "ops/quantize_activations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quantize_activations.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/simd-inl.h"
#include "ops/walsh_hadamard-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct RowRange {
  float min;  // at most 0
  float max;  // at least 0
  bool finite;
};

/// The row's range with 0. A product with 0 is 0 unless the factor is infinite or NaN, so one sum finds those. Four
/// accumulators of each, since every one of them waits for its own last result.
HWY_INLINE RowRange FindRange(const float* x, size_t n) {
  const F32Tag d;
  const size_t lanes = hn::Lanes(d);
  const F32Vec zero = hn::Zero(d);
  F32Vec min0 = zero, min1 = zero, min2 = zero, min3 = zero;
  F32Vec max0 = zero, max1 = zero, max2 = zero, max3 = zero;
  F32Vec check0 = zero, check1 = zero, check2 = zero, check3 = zero;
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const F32Vec a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    const F32Vec c = hn::LoadU(d, x + i + 2 * lanes), e = hn::LoadU(d, x + i + 3 * lanes);
    min0 = hn::Min(min0, a);
    min1 = hn::Min(min1, b);
    min2 = hn::Min(min2, c);
    min3 = hn::Min(min3, e);
    max0 = hn::Max(max0, a);
    max1 = hn::Max(max1, b);
    max2 = hn::Max(max2, c);
    max3 = hn::Max(max3, e);
    check0 = hn::MulAdd(a, zero, check0);
    check1 = hn::MulAdd(b, zero, check1);
    check2 = hn::MulAdd(c, zero, check2);
    check3 = hn::MulAdd(e, zero, check3);
  }
  for (; i < n; i += lanes) {
    const F32Vec a = hn::LoadN(d, x + i, HWY_MIN(lanes, n - i));
    min0 = hn::Min(min0, a);
    max0 = hn::Max(max0, a);
    check0 = hn::MulAdd(a, zero, check0);
  }
  const float check = hn::ReduceSum(d, hn::Add(hn::Add(check0, check1), hn::Add(check2, check3)));
  return {hn::ReduceMin(d, hn::Min(hn::Min(min0, min1), hn::Min(min2, min3))),
          hn::ReduceMax(d, hn::Max(hn::Max(max0, max1), hn::Max(max2, max3))), check == 0.0f};
}

/// q = round(x * inverse_scale) + zero_point, saturated: the limits are applied before the conversion, where they are
/// exact. Adding 1.5 * 2^23 rounds to nearest even and leaves the integer in the low bits of the sum, of which the last
/// eight are q: cheaper than a conversion to int32 with its treatment of overflow, and a saturating narrowing.
HWY_INLINE void QuantizeRow(const float* x, size_t n, float inverse_scale, int32_t zero_point, int8_t* out) {
  const F32Tag d;
  const hn::Rebind<uint32_t, F32Tag> du32;
  const hn::Rebind<uint8_t, F32Tag> du8;
  const size_t lanes = hn::Lanes(d);
  const F32Vec factor = hn::Set(d, inverse_scale), magic = hn::Set(d, 12582912.0f);
  const F32Vec low = hn::Set(d, static_cast<float>(-128 - zero_point));
  const F32Vec high = hn::Set(d, static_cast<float>(127 - zero_point));
  const auto offset = hn::Set(du32, static_cast<uint32_t>(zero_point));
  const auto quantize = [&](F32Vec v) HWY_ATTR {
    const F32Vec limited = hn::Min(hn::Max(hn::Mul(v, factor), low), high);
    return hn::TruncateTo(du8, hn::Add(hn::BitCast(du32, hn::Add(limited, magic)), offset));
  };
  uint8_t* bytes = reinterpret_cast<uint8_t*>(out);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(quantize(hn::LoadU(d, x + i)), du8, bytes + i);
  if (i < n) hn::StoreN(quantize(hn::LoadN(d, x + i, n - i)), du8, bytes + i, n - i);
}

/// Scale and zero point of a range, with the roundings of XNNPACK's conversion: the zero point comes from the end of
/// the range whose error is the smaller one. `scale` is what XNNPACK stores: 1 / (255 / (max - min)). A range so narrow
/// that 255 / range overflows counts as zeros.
HWY_INLINE RowQuantization ParamsForRange(const RowRange& range) {
  constexpr float kMin = -128.0f, kMax = 127.0f;
  const float inverse = range.min == range.max ? 1.0f : (kMax - kMin) / (range.max - range.min);
  if (!std::isfinite(inverse)) return {0, 1.0f};
  const float scaled_min = range.min * inverse, scaled_max = range.max * inverse;
  const float error_sum = (kMin + scaled_min) + (kMax + scaled_max);
  const float zero_point = std::clamp(error_sum > 0.0f ? kMin - scaled_min : kMax - scaled_max, kMin, kMax);
  return {static_cast<int32_t>(std::nearbyint(zero_point)), 1.0f / inverse};
}

void QuantizeRowsImpl(const QuantizeShape& shape, ConstRows x, float* scratch, const QuantizedRows& out) {
  const float rotation_scale =
      shape.rotation_block == 0 ? 1.0f : 1.0f / std::sqrt(static_cast<float>(shape.rotation_block));
  for (size_t r = 0; r < shape.n_rows; ++r) {
    const float* row = x.row(r);
    if (shape.rotation_block != 0) {
      WalshHadamardRow(row, shape.width, shape.rotation_block, rotation_scale, scratch);
      row = scratch;
    }
    const RowRange range = FindRange(row, shape.width);
    if (range.finite) {
      out.params[r] = ParamsForRange(range);
      QuantizeRow(row, shape.width, 1.0f / out.params[r].scale, out.params[r].zero_point, out.values.row(r));
    } else {
      out.params[r] = {0, std::numeric_limits<float>::quiet_NaN()};
      std::fill_n(out.values.row(r), shape.width, static_cast<int8_t>(0));
    }
  }
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {

HWY_EXPORT(QuantizeRowsImpl);

void QuantizeRows(const QuantizeShape& shape, ConstRows x, std::span<float> scratch, const QuantizedRows& out) {
  LINNET_DCHECK(shape.rotation_block == 0 || scratch.size() >= shape.width);
  HWY_DYNAMIC_DISPATCH(QuantizeRowsImpl)(shape, x, scratch.data(), out);
}

}  // namespace linnet::ops
#endif
