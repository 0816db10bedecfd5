// Shared by the kernels: IEEE half precision to f32 and back, exact on every target. One copy per instruction set.
#if defined(LINNET_OPS_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_OPS_HALF_INL_H_
#undef LINNET_OPS_HALF_INL_H_
#else
#define LINNET_OPS_HALF_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

// Whether the CPU converts by itself (x86 from AVX2 on, where F16C is implied; 64-bit ARM). Highway's substitute
// elsewhere turns infinities and NaN into finite numbers.
#undef LINNET_OPS_NATIVE_HALF
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || (HWY_ARCH_ARM_A64 && HWY_TARGET != HWY_SCALAR)
#define LINNET_OPS_NATIVE_HALF 1
#else
#define LINNET_OPS_NATIVE_HALF 0
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The f32 values of f16 bits: as many as `d` has lanes.
template <class D>
HWY_INLINE hn::Vec<D> PromoteHalf(D d, hn::Vec<hn::Rebind<uint16_t, D>> bits) {
#if LINNET_OPS_NATIVE_HALF
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
#else
  const hn::Rebind<int32_t, D> di32;
  const auto wide = hn::PromoteTo(di32, bits);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(di32, 0x8000)));
  const auto magnitude = hn::And(wide, hn::Set(di32, 0x7FFF));
  const auto rebias = hn::Set(di32, (127 - 15) << 23);
  auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), rebias);
  const auto is_special = hn::Gt(magnitude, hn::Set(di32, 0x7BFF));  // infinity or NaN: the largest exponent in f32 too
  normal = hn::Add(normal, hn::IfThenElseZero(is_special, rebias));
  const auto subnormal = hn::BitCast(di32, hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, 0x1p-24f)));
  const auto is_subnormal = hn::Lt(magnitude, hn::Set(di32, 0x0400));
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_subnormal, subnormal, normal)));
#endif
}

/// The nearest f16 bits, ties to even, infinity from 65520 on, subnormals kept, NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> DemoteHalf(D d, hn::Vec<D> v) {
  const hn::Rebind<uint16_t, D> du16;
#if LINNET_OPS_NATIVE_HALF
  static_cast<void>(d);
  return hn::BitCast(du16, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
#else
  const hn::Rebind<int32_t, D> di32;
  const hn::Rebind<uint32_t, D> du32;
  const auto magnitude = hn::BitCast(di32, hn::Abs(v));
  // Half of the last kept place, less one where that place is even, is added before the bits below it are cut off.
  const auto last_place = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di32, 1));
  const auto shifted = hn::Sub(hn::Add(magnitude, last_place), hn::Set(di32, ((127 - 15) << 23) - 0xFFF));
  const auto normal = hn::Min(hn::ShiftRight<13>(shifted), hn::Set(di32, 0x7C00));
  const auto subnormal = hn::NearestInt(hn::Min(hn::Mul(hn::Abs(v), hn::Set(d, 0x1p24f)), hn::Set(d, 1024.0f)));
  const auto is_subnormal = hn::Lt(magnitude, hn::Set(di32, 0x38800000));  // below 2^-14
  const auto is_nan = hn::Gt(magnitude, hn::Set(di32, 0x7F800000));
  auto bits = hn::IfThenElse(is_subnormal, subnormal, normal);
  bits = hn::IfThenElse(is_nan, hn::Set(di32, 0x7E00), bits);
  const auto sign = hn::And(hn::ShiftRight<16>(hn::BitCast(du32, v)), hn::Set(du32, 0x8000u));
  return hn::TruncateTo(du16, hn::Or(hn::BitCast(du32, bits), sign));
#endif
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LINNET_OPS_HALF_INL_H_
