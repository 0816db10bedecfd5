#include "ops/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/softmax.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/math-inl.h"
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE float MaxOfRow(const float* x, size_t n) {
  const F32Tag d;
  const size_t lanes = hn::Lanes(d);
  const F32Vec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  F32Vec max = lowest;
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) max = hn::Max(max, hn::LoadU(d, x + i));
  if (i < n) max = hn::Max(max, hn::LoadNOr(lowest, d, x + i, n - i));
  return hn::ReduceMax(d, max);
}

void SoftmaxImpl(Rows x, size_t n_rows, size_t width) {
  const F32Tag d;
  for (size_t r = 0; r < n_rows; ++r) {
    float* row = x.row(r);
    const F32Vec max = hn::Set(d, MaxOfRow(row, width));
    const float sum = SumOverRow(width, [&](size_t i, size_t count) HWY_ATTR {
      if (count == hn::Lanes(d)) {
        const F32Vec e = ExpAll(d, hn::Sub(hn::LoadU(d, row + i), max));
        hn::StoreU(e, d, row + i);
        return e;
      }
      const F32Vec e = ExpAll(d, hn::Sub(hn::LoadN(d, row + i, count), max));
      hn::StoreN(e, d, row + i, count);
      return hn::IfThenElseZero(hn::FirstN(d, count), e);
    });
    const F32Vec inverse = hn::Set(d, 1.0f / sum);
    MapRow(row, width, row, [&](F32Vec v) HWY_ATTR { return hn::Mul(v, inverse); });
  }
}

float MaxImpl(const float* x, size_t n) { return MaxOfRow(x, n); }

/// Sum of exp(x - max): f32 within a run, f64 over the runs.
double SumOfExpImpl(const float* x, size_t n, float max) {
  constexpr size_t kRun = 256;
  const F32Tag d;
  const F32Vec shift = hn::Set(d, max);
  double total = 0.0;
  for (size_t begin = 0; begin < n; begin += kRun) {
    const float* run = x + begin;
    total += SumOverRow(HWY_MIN(kRun, n - begin), [&](size_t i, size_t count) HWY_ATTR {
      if (count == hn::Lanes(d)) return ExpAll(d, hn::Sub(hn::LoadU(d, run + i), shift));
      return hn::IfThenElseZero(hn::FirstN(d, count), ExpAll(d, hn::Sub(hn::LoadN(d, run + i, count), shift)));
    });
  }
  return total;
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {

HWY_EXPORT(SoftmaxImpl);
HWY_EXPORT(MaxImpl);
HWY_EXPORT(SumOfExpImpl);

void Softmax(Rows x, size_t n_rows, size_t width) {
  LINNET_DCHECK(width > 0);
  HWY_DYNAMIC_DISPATCH(SoftmaxImpl)(x, n_rows, width);
}

double LogSumExp(const float* x, size_t n) {
  LINNET_DCHECK(n > 0);
  const float max = HWY_DYNAMIC_DISPATCH(MaxImpl)(x, n);
  return static_cast<double>(max) + std::log(HWY_DYNAMIC_DISPATCH(SumOfExpImpl)(x, n, max));
}

double LogSoftmaxAt(const float* x, size_t n, size_t index) {
  LINNET_DCHECK(index < n);
  return static_cast<double>(x[index]) - LogSumExp(x, n);
}

double KlDivergence(const float* p_logits, const float* q_logits, size_t n) {
  const double log_sum_p = LogSumExp(p_logits, n), log_sum_q = LogSumExp(q_logits, n);
  double divergence = 0.0;
  for (size_t i = 0; i < n; ++i) {
    const double log_p = static_cast<double>(p_logits[i]) - log_sum_p;
    const double p = std::exp(log_p);
    if (p > 0.0) divergence += p * (log_p - (static_cast<double>(q_logits[i]) - log_sum_q));
  }
  return divergence;
}

}  // namespace linnet::ops
#endif
