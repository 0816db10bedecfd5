// Shared by the kernels: loops over a row with a partial last vector. One copy per instruction set.
// The guard toggles, so that each pass of foreach_target.h includes this file anew.
#if defined(LINNET_OPS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_OPS_SIMD_INL_H_
#undef LINNET_OPS_SIMD_INL_H_
#else
#define LINNET_OPS_SIMD_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32Tag = hn::ScalableTag<float>;
using F32Vec = hn::Vec<F32Tag>;

/// out[i] = function(x[i]); out may be x. The last, partial vector is filled up with zeros.
template <class Function>
HWY_INLINE void MapRow(const float* x, size_t n, float* out, const Function& function) {
  const F32Tag d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(function(hn::LoadU(d, x + i)), d, out + i);
  if (i < n) hn::StoreN(function(hn::LoadN(d, x + i, n - i)), d, out + i, n - i);
}

/// out[i] = function(a[i], b[i]); out may be a or b.
template <class Function>
HWY_INLINE void MapRows(const float* a, const float* b, size_t n, float* out, const Function& function) {
  const F32Tag d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(function(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  }
  if (i < n) {
    const size_t rest = n - i;
    hn::StoreN(function(hn::LoadN(d, a + i, rest), hn::LoadN(d, b + i, rest)), d, out + i, rest);
  }
}

/// Sum over a row of `load(i, count)`, the vector to add for elements i to i + count. Four accumulators hide the
/// latency of an addition and shorten the chains in which rounding errors add up. The lanes from `count` on are zeros.
template <class Load>
HWY_INLINE float SumOverRow(size_t n, const Load& load) {
  const F32Tag d;
  const size_t lanes = hn::Lanes(d);
  F32Vec sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sum0 = hn::Add(sum0, load(i, lanes));
    sum1 = hn::Add(sum1, load(i + lanes, lanes));
    sum2 = hn::Add(sum2, load(i + 2 * lanes, lanes));
    sum3 = hn::Add(sum3, load(i + 3 * lanes, lanes));
  }
  for (; i + lanes <= n; i += lanes) sum0 = hn::Add(sum0, load(i, lanes));
  if (i < n) sum1 = hn::Add(sum1, load(i, n - i));
  return hn::ReduceSum(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LINNET_OPS_SIMD_INL_H_
