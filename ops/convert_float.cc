#include "ops/convert_float.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/convert_float.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/half-inl.h"
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using U16Tag = hn::Rebind<uint16_t, F32Tag>;
using U32Tag = hn::Rebind<uint32_t, F32Tag>;

/// Rounds f32 bits to bf16 by adding half of the last kept place, ties to even. Not the CPU's own conversion, which
/// flushes subnormals on some. NaN keeps its upper half with the quiet bit set, so that it cannot round to infinity.
HWY_INLINE hn::Vec<U16Tag> ToBF16(F32Vec v) {
  const U32Tag du32;
  const auto bits = hn::BitCast(du32, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto last_place = hn::And(upper, hn::Set(du32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(last_place, hn::Set(du32, 0x7FFFu))));
  const auto is_nan = hn::RebindMask(du32, hn::IsNaN(v));
  const auto quiet = hn::Or(upper, hn::Set(du32, 0x40u));
  return hn::TruncateTo(U16Tag(), hn::IfThenElse(is_nan, quiet, rounded));
}

void F32ToBF16Impl(const float* x, size_t n, uint16_t* out) {
  const F32Tag d;
  const U16Tag du16;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(ToBF16(hn::LoadU(d, x + i)), du16, out + i);
  if (i < n) hn::StoreN(ToBF16(hn::LoadN(d, x + i, n - i)), du16, out + i, n - i);
}

HWY_INLINE F32Vec FromBF16(hn::Vec<U16Tag> v) {
  return hn::BitCast(F32Tag(), hn::ShiftLeft<16>(hn::PromoteTo(U32Tag(), v)));
}

void BF16ToF32Impl(const uint16_t* x, size_t n, float* out) {
  const F32Tag d;
  const U16Tag du16;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(FromBF16(hn::LoadU(du16, x + i)), d, out + i);
  if (i < n) hn::StoreN(FromBF16(hn::LoadN(du16, x + i, n - i)), d, out + i, n - i);
}

void F32ToF16Impl(const float* x, size_t n, uint16_t* out) {
  const F32Tag d;
  const U16Tag du16;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(DemoteHalf(d, hn::LoadU(d, x + i)), du16, out + i);
  if (i < n) hn::StoreN(DemoteHalf(d, hn::LoadN(d, x + i, n - i)), du16, out + i, n - i);
}

void F16ToF32Impl(const uint16_t* x, size_t n, float* out) {
  const F32Tag d;
  const U16Tag du16;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(PromoteHalf(d, hn::LoadU(du16, x + i)), d, out + i);
  if (i < n) hn::StoreN(PromoteHalf(d, hn::LoadN(du16, x + i, n - i)), d, out + i, n - i);
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {

HWY_EXPORT(F32ToBF16Impl);
HWY_EXPORT(BF16ToF32Impl);
HWY_EXPORT(F32ToF16Impl);
HWY_EXPORT(F16ToF32Impl);

void F32ToBF16(const float* x, size_t n, uint16_t* out) { HWY_DYNAMIC_DISPATCH(F32ToBF16Impl)(x, n, out); }

void BF16ToF32(const uint16_t* x, size_t n, float* out) { HWY_DYNAMIC_DISPATCH(BF16ToF32Impl)(x, n, out); }

void F32ToF16(const float* x, size_t n, uint16_t* out) { HWY_DYNAMIC_DISPATCH(F32ToF16Impl)(x, n, out); }

void F16ToF32(const uint16_t* x, size_t n, float* out) { HWY_DYNAMIC_DISPATCH(F16ToF32Impl)(x, n, out); }

}  // namespace linnet::ops
#endif
