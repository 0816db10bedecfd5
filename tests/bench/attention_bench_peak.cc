// The most multiply-adds per second that one core does from registers, for attention_bench.
#include <chrono>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/attention_bench_peak.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains of multiply-adds: more than latency times throughput of any core so far. Returns FLOPs done.
double MultiplyAdds(size_t steps, float* out) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, out[0]), b = hn::Set(d, out[1]);
  // Every chain starts from a value of its own: equal ones would be computed once.
  const auto start = [&](float factor) HWY_ATTR { return hn::Mul(a, hn::Set(d, factor)); };
  auto c0 = start(1), c1 = start(2), c2 = start(3), c3 = start(4), c4 = start(5), c5 = start(6);
  auto c6 = start(7), c7 = start(8), c8 = start(9), c9 = start(10), c10 = start(11), c11 = start(12);
  for (size_t i = 0; i < steps; ++i) {
    c0 = hn::MulAdd(a, b, c0), c1 = hn::MulAdd(a, b, c1), c2 = hn::MulAdd(a, b, c2), c3 = hn::MulAdd(a, b, c3);
    c4 = hn::MulAdd(a, b, c4), c5 = hn::MulAdd(a, b, c5), c6 = hn::MulAdd(a, b, c6), c7 = hn::MulAdd(a, b, c7);
    c8 = hn::MulAdd(a, b, c8), c9 = hn::MulAdd(a, b, c9), c10 = hn::MulAdd(a, b, c10), c11 = hn::MulAdd(a, b, c11);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)), hn::Add(hn::Add(c4, c5), hn::Add(c6, c7)));
  out[2] = hn::ReduceSum(d, hn::Add(sum, hn::Add(hn::Add(c8, c9), hn::Add(c10, c11))));
  return 2.0 * 12 * static_cast<double>(steps * hn::Lanes(d));
}

const char* NameOfTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(MultiplyAdds);
HWY_EXPORT(NameOfTarget);

const char* PeakTarget() { return HWY_DYNAMIC_DISPATCH(NameOfTarget)(); }

double PeakFlops() {
  using Clock = std::chrono::steady_clock;
  float values[3] = {1e-3f, 1e-3f, 0};
  double best = 0;
  for (int run = 0; run < 20; ++run) {
    const auto start = Clock::now();
    const double flops = HWY_DYNAMIC_DISPATCH(MultiplyAdds)(1 << 18, values);
    const double rate = flops / std::chrono::duration<double>(Clock::now() - start).count();
    if (rate > best) best = rate;
  }
  volatile float keep = values[2];
  static_cast<void>(keep);
  return best;
}

}  // namespace linnet
#endif  // HWY_ONCE
