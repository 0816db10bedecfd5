// The exponential of softmax, for arguments that are not positive. One copy per instruction set.
#if defined(LINNET_OPS_FAST_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_OPS_FAST_EXP_INL_H_
#undef LINNET_OPS_FAST_EXP_INL_H_
#else
#define LINNET_OPS_FAST_EXP_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// e^x for x <= 0: exactly 1 at 0, exactly 0 below -87 (e^-87 is the last power above the smallest normal number,
/// times 1.4) and at -inf; NaN stays. Within 1.5 ulp elsewhere. 13 instructions against about 20 of Highway's general
/// Exp: softmax takes one per score, beside head_dim + value_dim multiply-adds.
/// x = n ln2 + r, |r| <= ln2 / 2; e^r = 1 + r + r^2 P(r), P of degree 4 fitted for the least relative error (3.7e-9).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOfNonPositive(D d, V x) {
  const hn::RebindToSigned<D> di;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum.
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V n = hn::Sub(shifted, magic);
  // ln2 in two parts: the first has 10 bits, so that its product with n (7 bits) is exact even without fused
  // multiply-add.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::MulAdd(hn::Set(d, 0.00138145348f), r, hn::Set(d, 0.00836874545f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0416683927f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.166665211f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.49999994f));
  const V y = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, 1.0f));
  // Times 2^n by the exponent bits; the shift drops all but n's low bits.
  const auto bits = hn::Add(hn::BitCast(di, y), hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::BitCast(d, bits));
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
