// Shared by the kernels: exp, sigmoid, tanh and erf of vectors that keep NaN. One copy per instruction set.
#if defined(LINNET_OPS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_OPS_MATH_INL_H_
#undef LINNET_OPS_MATH_INL_H_
#else
#define LINNET_OPS_MATH_INL_H_
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// e^x for every x: 0 below about -104, +inf above about 88.7, NaN stays. Highway's own answers NaN with 0 and is not
/// defined far above the range, hence the two selections. Within 2 ulp for normal results.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpAll(D d, V x) {
  const V y = hn::Exp(d, hn::Min(x, hn::Set(d, 104.0f)));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

/// 1 / (1 + e^-x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, ExpAll(d, hn::Neg(x))));
}

/// tanh with 4 ulp; NaN stays.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V TanhAll(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, x));
}

/// erf within 1.5e-7. Up to 1: x times a polynomial of x * x. From there: 1 - exp(-q), q a polynomial that follows
/// -ln(erfc), so that the small remainder keeps its relative accuracy. Both were fitted by Chebyshev interpolation,
/// in the variable that maps their interval onto [-1, 1]. From 4 on erf rounds to 1 in f32.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Erf(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V a = hn::Min(hn::Abs(x), hn::Set(d, 4.0f));
  const V u = hn::MulAdd(hn::Set(d, 2.0f), hn::Mul(a, a), hn::Neg(one));
  V p = hn::Set(d, 1.230605476e-06f);
  p = hn::MulAdd(p, u, hn::Set(d, -1.766906802e-05f));
  p = hn::MulAdd(p, u, hn::Set(d, 2.175135417e-04f));
  p = hn::MulAdd(p, u, hn::Set(d, -2.285419545e-03f));
  p = hn::MulAdd(p, u, hn::Set(d, 1.985249714e-02f));
  p = hn::MulAdd(p, u, hn::Set(d, -1.405360973e-01f));
  p = hn::MulAdd(p, u, hn::Set(d, 9.654687387e-01f));
  const V w = hn::Mul(hn::Sub(a, hn::Set(d, 2.5f)), hn::Set(d, 1.0f / 1.5f));
  V q = hn::Set(d, -4.195840009e-05f);
  q = hn::MulAdd(q, w, hn::Set(d, 2.274995040e-04f));
  q = hn::MulAdd(q, w, hn::Set(d, -8.803970816e-04f));
  q = hn::MulAdd(q, w, hn::Set(d, 3.190305413e-03f));
  q = hn::MulAdd(q, w, hn::Set(d, -1.096184922e-02f));
  q = hn::MulAdd(q, w, hn::Set(d, 3.664757804e-02f));
  q = hn::MulAdd(q, w, hn::Set(d, 2.123760833e+00f));
  q = hn::MulAdd(q, w, hn::Set(d, 8.029021011e+00f));
  q = hn::MulAdd(q, w, hn::Set(d, 7.806815273e+00f));
  const V far = hn::CopySign(hn::Sub(one, hn::Exp(d, hn::Neg(q))), x);
  const V y = hn::IfThenElse(hn::Le(a, one), hn::Mul(x, p), far);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LINNET_OPS_MATH_INL_H_
