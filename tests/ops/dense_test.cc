#include "ops/dense.h"

#include <cmath>

#include "tests/support/guarded.h"
#include "tests/support/ops_reference.h"
#include "tests/support/targets.h"

namespace linnet {

using testing::Guarded;
using testing::kEps;
using testing::RandomVector;

TEST_SUITE("ops") {
  TEST_CASE("Dense: every target matches the f64 reference") {
    testing::ForEachTarget([] {
      constexpr size_t kRows = 2, kOutputs = 3;
      for (const size_t width : testing::kWidths) {
        CAPTURE(width);
        const Guarded<float> x(RandomVector(kRows * width, width)), weights(RandomVector(kOutputs * width, width + 1));
        const std::vector<float> bias = {1.0f, -2.0f, 0.5f};
        Guarded<float> out(kRows * kOutputs), plain(kRows * kOutputs);
        ops::Dense({x.data(), width}, kRows, {weights.data(), bias.data(), kOutputs, width}, {out.data(), kOutputs});
        ops::Dense({x.data(), width}, kRows, {weights.data(), nullptr, kOutputs, width}, {plain.data(), kOutputs});
        CHECK((out.GuardsIntact() && plain.GuardsIntact()));
        for (size_t r = 0; r < kRows; ++r) {
          for (size_t n = 0; n < kOutputs; ++n) {
            double dot = 0.0, magnitude = std::fabs(static_cast<double>(bias[n]));
            for (size_t k = 0; k < width; ++k) {
              const double product = static_cast<double>(x[r * width + k]) * weights[n * width + k];
              dot += product;
              magnitude += std::fabs(product);
            }
            const double tolerance = kEps * (static_cast<double>(width) + 1.0) * magnitude;
            REQUIRE(std::fabs(plain[r * kOutputs + n] - dot) <= tolerance);
            REQUIRE(std::fabs(out[r * kOutputs + n] - (dot + bias[n])) <= tolerance);
          }
        }
      }
    });
  }
}

}  // namespace linnet
