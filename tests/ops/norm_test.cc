#include "ops/norm.h"

#include <cmath>

#include "tests/support/guarded.h"
#include "tests/support/ops_reference.h"
#include "tests/support/targets.h"

namespace linnet {
namespace {

using testing::Guarded;
using testing::kEps;
using testing::RandomVector;

constexpr size_t kRows = 3;
constexpr float kEpsilon = 1e-5f;

struct NormCase {
  bool layer_norm = false;
  bool gain = false;
  bool gain_per_row = false;
  bool plus_one = false;
  bool bias = false;
};

void CheckNorm(const NormCase& c, size_t width) {
  CAPTURE(width);
  const size_t stride = width + 5;
  const Guarded<float> x(RandomVector(kRows * stride, width, 3.0f));
  const Guarded<float> gain(RandomVector(kRows * width, width + 1)), bias(RandomVector(kRows * width, width + 2));
  Guarded<float> out(kRows * width);
  ops::NormParams params;
  params.eps = kEpsilon;
  params.gain = c.gain ? gain.data() : nullptr;
  params.bias = c.bias ? bias.data() : nullptr;
  params.gain_stride = c.gain_per_row ? width : 0;
  params.gain_plus_one = c.plus_one;
  const auto norm = c.layer_norm ? ops::LayerNorm : ops::RmsNorm;
  norm({x.data(), stride}, kRows, width, params, {out.data(), width});
  CHECK(out.GuardsIntact());
  for (size_t r = 0; r < kRows; ++r) {
    const float* row = x.data() + r * stride;
    const double mean = c.layer_norm ? testing::Mean(row, width) : 0.0;
    const double inverse = 1.0 / std::sqrt(testing::MeanSquare(row, width, mean) + kEpsilon);
    double largest = 0.0;
    for (size_t i = 0; i < width; ++i) largest = std::fmax(largest, std::fabs(static_cast<double>(row[i])));
    for (size_t i = 0; i < width; ++i) {
      const size_t p = params.gain_stride * r + i;
      const double factor = (c.gain ? static_cast<double>(gain[p]) : 1.0) + (c.plus_one ? 1.0 : 0.0);
      const double expected = (row[i] - mean) * inverse * factor + (c.bias ? static_cast<double>(bias[p]) : 0.0);
      // Sums of at most width roundings shift mean and deviation; the mean's shift is relative to the largest value
      // and grows by `inverse` (width 1 has no deviation but eps).
      const double tolerance = kEps * (static_cast<double>(width) + 8.0) *
                               (std::fabs(expected) + std::fabs(factor) * (1.0 + largest * inverse) + 1.0);
      REQUIRE(std::fabs(out[r * width + i] - expected) <= tolerance);
    }
  }
}

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("RmsNorm: every target matches the f64 reference") {
    testing::ForEachTarget([] {
      for (const size_t width : testing::kWidths) {
        CheckNorm({}, width);
        CheckNorm({.gain = true}, width);
        CheckNorm({.gain = true, .plus_one = true}, width);
        CheckNorm({.gain = true, .gain_per_row = true}, width);
      }
    });
  }

  TEST_CASE("LayerNorm: every target matches the f64 reference") {
    testing::ForEachTarget([] {
      for (const size_t width : testing::kWidths) {
        CheckNorm({.layer_norm = true}, width);
        CheckNorm({.layer_norm = true, .gain = true, .bias = true}, width);
        CheckNorm({.layer_norm = true, .gain = true, .gain_per_row = true, .bias = true}, width);
      }
    });
  }

  TEST_CASE("LayerNorm: a large mean does not cost the variance its digits") {
    testing::ForEachTarget([] {
      const std::vector<float> x = {10001.0f, 9999.0f, 10001.0f, 9999.0f};
      std::vector<float> out(4);
      ops::LayerNorm({x.data(), 4}, 1, 4, {.eps = 1e-6f}, {out.data(), 4});
      for (size_t i = 0; i < 4; ++i) CHECK(std::fabs(std::fabs(out[i]) - 1.0f) < 1e-5f);
    });
  }

  TEST_CASE("RmsNorm: in place and row by row give the same bits as all rows at once") {
    testing::ForEachTarget([] {
      constexpr size_t kWidth = 67;
      const std::vector<float> x = RandomVector(kRows * kWidth, 5), gain = RandomVector(kWidth, 6);
      const ops::NormParams params = {.eps = kEpsilon, .gain = gain.data()};
      std::vector<float> all(kRows * kWidth), single(kRows * kWidth), in_place = x;
      ops::RmsNorm({x.data(), kWidth}, kRows, kWidth, params, {all.data(), kWidth});
      for (size_t r = 0; r < kRows; ++r) {
        ops::RmsNorm({x.data() + r * kWidth, kWidth}, 1, kWidth, params, {single.data() + r * kWidth, kWidth});
      }
      ops::RmsNorm({in_place.data(), kWidth}, kRows, kWidth, params, {in_place.data(), kWidth});
      CHECK(all == single);
      CHECK(all == in_place);
    });
  }
}

}  // namespace linnet
