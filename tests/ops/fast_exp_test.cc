#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/ops/fast_exp_test.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/fast_exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {

// out[i] = ExpOfNonPositive(x[i]); n is a multiple of 16.
void ExpRow(const float* x, size_t n, float* out) {
  const hn::CappedTag<float, 16> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(ExpOfNonPositive(d, hn::LoadU(d, x + i)), d, out + i);
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "tests/support/targets.h"

namespace linnet::ops {
HWY_EXPORT(ExpRow);
// Where there is one instruction set only, dispatch is a plain call, which knows no qualified names.
void DispatchedExpRow(const float* x, size_t n, float* out) { HWY_DYNAMIC_DISPATCH(ExpRow)(x, n, out); }
}  // namespace linnet::ops

namespace linnet::testing {
namespace {

std::vector<float> Exp(std::vector<float> x) {
  x.resize((x.size() + 15) / 16 * 16);
  std::vector<float> out(x.size());
  ops::DispatchedExpRow(x.data(), x.size(), out.data());
  return out;
}

TEST_SUITE("ops") {
  TEST_CASE("ExpOfNonPositive: within 1.5 ulp over its whole range") {
    std::vector<float> x;
    for (int i = 0; i < 200000; ++i) x.push_back(-87.0f * static_cast<float>(i) / 200000);
    for (float tiny = 1.0f; tiny > 1e-10f; tiny *= 0.7f) x.push_back(-tiny);
    ForEachTarget([&] {
      const std::vector<float> found = Exp(x);
      double worst = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = std::exp(double{x[i]});
        const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
        worst = std::max(worst, std::abs(found[i] - exact) / ulp);
      }
      CHECK(worst < 1.5);
    });
  }

  TEST_CASE("ExpOfNonPositive: exact at 0, zero far below, NaN stays") {
    const float inf = std::numeric_limits<float>::infinity();
    ForEachTarget([&] {
      const std::vector<float> found = Exp({0.0f, -0.0f, -87.01f, -1e4f, -3e38f, -inf, std::nanf("")});
      CHECK(found[0] == 1.0f);
      CHECK(found[1] == 1.0f);
      for (size_t i = 2; i < 6; ++i) CHECK(found[i] == 0.0f);
      CHECK(std::isnan(found[6]));
    });
  }
}

}  // namespace
}  // namespace linnet::testing
#endif  // HWY_ONCE
