#include "ops/sampling.h"

#include <cmath>
#include <limits>

#include "tests/support/guarded.h"
#include "tests/support/ops_reference.h"
#include "tests/support/targets.h"

namespace linnet {
namespace {

using testing::Guarded;
using testing::kEps;

constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("ScanLogits: the lowest index of the greatest value, wherever it is") {
    testing::ForEachTarget([] {
      for (const size_t n : testing::kWidths) {
        for (size_t at = 0; at < n; ++at) {
          Guarded<float> logits(std::vector<float>(n, -5.0f));
          logits[at] = -1.0f;
          logits[n - 1] = -1.0f;
          const ops::LogitScan scan = ops::ScanLogits({logits.data(), n});
          REQUIRE(scan.all_valid);
          REQUIRE(scan.argmax == at);
          REQUIRE(scan.max == -1.0f);
        }
      }
    });
  }

  TEST_CASE("ScanLogits: NaN and +inf are found anywhere, -inf is allowed") {
    testing::ForEachTarget([] {
      for (const size_t n : testing::kWidths) {
        for (const float bad : {std::nanf(""), kInf}) {
          for (const size_t at : {size_t{0}, n / 2, n - 1}) {
            std::vector<float> logits(n, 1.0f);
            logits[at] = bad;
            REQUIRE(!ops::ScanLogits(logits).all_valid);
          }
        }
        const ops::LogitScan masked = ops::ScanLogits(std::vector<float>(n, -kInf));
        REQUIRE((masked.all_valid && masked.argmax == 0 && masked.max == -kInf));
      }
    });
  }

  TEST_CASE("ExpOfLogits: values and sum match f64") {
    testing::ForEachTarget([] {
      for (const size_t n : testing::kWidths) {
        const std::vector<float> logits = testing::RandomVector(n, n, 4.0f);
        Guarded<float> x(logits);
        const double sum = ops::ExpOfLogits({x.data(), n}, 20.0f, 1.25f);
        CHECK(x.GuardsIntact());
        double expected_sum = 0.0;
        for (size_t i = 0; i < n; ++i) {
          const double argument = (logits[i] - 20.0) * 1.25;
          expected_sum += std::exp(argument);
          // The argument's two roundings become relative errors of the result.
          REQUIRE(std::fabs(x[i] - std::exp(argument)) <= kEps * (2.0 + std::fabs(argument)) * std::exp(argument));
        }
        REQUIRE(std::fabs(sum - expected_sum) <= kEps * 60.0 * expected_sum);
      }
    });
  }
}

}  // namespace linnet
