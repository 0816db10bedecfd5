#include "ops/dense.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/dense.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE float DotProduct(const float* a, const float* b, size_t n) {
  const F32Tag d;
  const size_t lanes = hn::Lanes(d);
  F32Vec sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, a + i + lanes), hn::LoadU(d, b + i + lanes), sum1);
    sum2 = hn::MulAdd(hn::LoadU(d, a + i + 2 * lanes), hn::LoadU(d, b + i + 2 * lanes), sum2);
    sum3 = hn::MulAdd(hn::LoadU(d, a + i + 3 * lanes), hn::LoadU(d, b + i + 3 * lanes), sum3);
  }
  for (; i + lanes <= n; i += lanes) sum0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum0);
  if (i < n) sum1 = hn::MulAdd(hn::LoadN(d, a + i, n - i), hn::LoadN(d, b + i, n - i), sum1);
  return hn::ReduceSum(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
}

void DenseImpl(ConstRows x, size_t n_rows, const DenseWeights& weights, Rows out) {
  for (size_t r = 0; r < n_rows; ++r) {
    for (size_t n = 0; n < weights.n_outputs; ++n) {
      const float dot = DotProduct(x.row(r), weights.weights + n * weights.width, weights.width);
      out.row(r)[n] = weights.bias == nullptr ? dot : dot + weights.bias[n];
    }
  }
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {

HWY_EXPORT(DenseImpl);

void Dense(ConstRows x, size_t n_rows, const DenseWeights& weights, Rows out) {
  HWY_DYNAMIC_DISPATCH(DenseImpl)(x, n_rows, weights, out);
}

}  // namespace linnet::ops
#endif
