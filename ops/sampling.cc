#include "ops/sampling.h"

#include <limits>

#include "core/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sampling.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/math-inl.h"
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

LogitScan ScanLogitsImpl(const float* logits, size_t n) {
  const F32Tag d;
  const size_t lanes = hn::Lanes(d);
  const F32Vec infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const F32Vec lowest = hn::Neg(infinity);
  F32Vec max = lowest;
  auto valid = hn::Eq(lowest, lowest);
  for (size_t i = 0; i < n; i += lanes) {
    const F32Vec v = i + lanes <= n ? hn::LoadU(d, logits + i) : hn::LoadNOr(lowest, d, logits + i, n - i);
    valid = hn::And(valid, hn::Lt(v, infinity));  // false for NaN too
    max = hn::Max(max, v);
  }
  LogitScan scan;
  scan.all_valid = hn::AllTrue(d, valid);
  if (!scan.all_valid) return scan;
  scan.max = hn::ReduceMax(d, max);
  const F32Vec target = hn::Set(d, scan.max);
  for (size_t i = 0; i < n; i += lanes) {
    const F32Vec v = i + lanes <= n ? hn::LoadU(d, logits + i) : hn::LoadNOr(lowest, d, logits + i, n - i);
    const intptr_t lane = hn::FindFirstTrue(d, hn::Eq(v, target));
    if (lane >= 0) {
      scan.argmax = i + static_cast<size_t>(lane);
      break;
    }
  }
  return scan;
}

double ExpOfLogitsImpl(float* x, size_t n, float max, float inverse_temperature) {
  constexpr size_t kRun = 256;  // f32 within a run, f64 over the runs
  const F32Tag d;
  const F32Vec shift = hn::Set(d, max), factor = hn::Set(d, inverse_temperature);
  double total = 0.0;
  for (size_t begin = 0; begin < n; begin += kRun) {
    float* run = x + begin;
    total += SumOverRow(HWY_MIN(kRun, n - begin), [&](size_t i, size_t count) HWY_ATTR {
      if (count == hn::Lanes(d)) {
        const F32Vec e = ExpAll(d, hn::Mul(hn::Sub(hn::LoadU(d, run + i), shift), factor));
        hn::StoreU(e, d, run + i);
        return e;
      }
      const F32Vec e = ExpAll(d, hn::Mul(hn::Sub(hn::LoadN(d, run + i, count), shift), factor));
      hn::StoreN(e, d, run + i, count);
      return hn::IfThenElseZero(hn::FirstN(d, count), e);
    });
  }
  return total;
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {

HWY_EXPORT(ScanLogitsImpl);
HWY_EXPORT(ExpOfLogitsImpl);

LogitScan ScanLogits(std::span<const float> logits) {
  LINNET_DCHECK(!logits.empty());
  return HWY_DYNAMIC_DISPATCH(ScanLogitsImpl)(logits.data(), logits.size());
}

double ExpOfLogits(std::span<float> x, float max, float inverse_temperature) {
  return HWY_DYNAMIC_DISPATCH(ExpOfLogitsImpl)(x.data(), x.size(), max, inverse_temperature);
}

}  // namespace linnet::ops
#endif
