#include "ops/elementwise.h"

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

/// Runs `kernel(x, y, width, stride)` over guarded rows and compares with `reference(x, y, row, column)`.
template <typename Kernel, typename Reference>
void CheckRows(const Kernel& kernel, const Reference& reference, double tolerance) {
  testing::ForEachTarget([&] {
    for (const size_t width : testing::kWidths) {
      CAPTURE(width);
      const size_t stride = width + 2;
      const std::vector<float> before = RandomVector(kRows * stride, width, 2.0f);
      Guarded<float> x(before);
      const Guarded<float> y(RandomVector(kRows * stride, width + 1, 2.0f));
      kernel(ops::Rows(x.data(), stride), ops::ConstRows{y.data(), stride}, width);
      CHECK(x.GuardsIntact());
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t i = 0; i < stride; ++i) {
          const size_t at = r * stride + i;
          if (i >= width) {
            REQUIRE(x[at] == before[at]);
            continue;
          }
          const double expected = reference(before[at], y.data(), r, i, stride);
          REQUIRE(std::fabs(x[at] - expected) <= tolerance);
        }
      }
    }
  });
}

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("AddBias: adds one row to every row") {
    CheckRows([](ops::Rows x, ops::ConstRows y, size_t width) { ops::AddBias(x, kRows, width, y.data); },
              [](double x, const float* y, size_t, size_t i, size_t) { return x + y[i]; }, 16.0 * kEps);
  }

  TEST_CASE("Accumulate: adds rows") {
    CheckRows([](ops::Rows x, ops::ConstRows y, size_t width) { ops::Accumulate(y, kRows, width, x); },
              [](double x, const float* y, size_t r, size_t i, size_t stride) { return x + y[r * stride + i]; },
              16.0 * kEps);
  }

  TEST_CASE("ResidualAdd: scales both sides") {
    CheckRows(
        [](ops::Rows x, ops::ConstRows y, size_t width) {
          ops::ResidualAdd({0.5f, 0.22f}, y, kRows, width, x);
        },
        [](double x, const float* y, size_t r, size_t i, size_t stride) {
          return 0.5 * x + static_cast<double>(0.22f) * y[r * stride + i];
        },
        16.0 * kEps);
  }

  TEST_CASE("ScaleRows: multiplies") {
    CheckRows([](ops::Rows x, ops::ConstRows, size_t width) { ops::ScaleRows(x, kRows, width, 3.0f); },
              [](double x, const float*, size_t, size_t, size_t) { return 3.0 * x; }, 32.0 * kEps);
  }

  TEST_CASE("SoftCap: c * tanh(x / c)") {
    CheckRows([](ops::Rows x, ops::ConstRows, size_t width) { ops::SoftCap(x, kRows, width, 1.5f); },
              [](double x, const float*, size_t, size_t, size_t) { return 1.5 * std::tanh(x / 1.5); }, 12.0 * kEps);
  }

  TEST_CASE("SigmoidGate: one gate a row") {
    CheckRows([](ops::Rows x, ops::ConstRows y, size_t width) { ops::SigmoidGate(x, kRows, width, y.data); },
              [](double x, const float* y, size_t r, size_t, size_t) { return x * testing::ReferenceSigmoid(y[r]); },
              48.0 * kEps);
  }

  TEST_CASE("AddWeightedRows: row ids scatter, equal ids add up in order") {
    testing::ForEachTarget([] {
      constexpr size_t kWidth = 37;
      const std::vector<float> x = RandomVector(3 * kWidth, 1);
      const float weights[] = {0.25f, 2.0f, -1.0f};
      const uint32_t row_ids[] = {1, 0, 1};
      Guarded<float> out(2 * kWidth);
      ops::AddWeightedRows({{x.data(), kWidth}, weights, row_ids}, 3, kWidth, {out.data(), kWidth});
      CHECK(out.GuardsIntact());
      for (size_t i = 0; i < kWidth; ++i) {
        REQUIRE(std::fabs(out[i] - 2.0 * x[kWidth + i]) <= 8.0 * kEps);
        REQUIRE(std::fabs(out[kWidth + i] - (0.25 * x[i] - 1.0 * x[2 * kWidth + i])) <= 8.0 * kEps);
      }
      std::vector<float> same(3 * kWidth, 0.0f);
      ops::AddWeightedRows({{x.data(), kWidth}, weights, nullptr}, 3, kWidth, {same.data(), kWidth});
      CHECK(same[2 * kWidth] == -x[2 * kWidth]);
    });
  }

  TEST_CASE("GatherRows: copies the chosen rows") {
    const std::vector<float> x = {1, 2, 0, 3, 4, 0, 5, 6, 0};
    const uint32_t row_ids[] = {2, 0};
    Guarded<float> out(4);
    ops::GatherRows({x.data(), 3}, row_ids, 2, 2, {out.data(), 2});
    CHECK(out.GuardsIntact());
    CHECK(std::vector<float>(out.data(), out.data() + 4) == std::vector<float>{5, 6, 1, 2});
  }
}

}  // namespace linnet
