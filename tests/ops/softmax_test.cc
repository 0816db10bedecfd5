#include "ops/softmax.h"

#include <cmath>
#include <limits>

#include "tests/support/guarded.h"
#include "tests/support/ops_reference.h"
#include "tests/support/targets.h"

namespace linnet {
namespace {

using testing::Guarded;
using testing::kEps;
using testing::RandomVector;

double ReferenceLogSumExp(const float* x, size_t n) {
  double max = -std::numeric_limits<double>::infinity(), sum = 0.0;
  for (size_t i = 0; i < n; ++i) max = std::fmax(max, x[i]);
  for (size_t i = 0; i < n; ++i) sum += std::exp(x[i] - max);
  return max + std::log(sum);
}

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("Softmax: every target matches the f64 reference") {
    testing::ForEachTarget([] {
      for (const size_t width : testing::kWidths) {
        CAPTURE(width);
        const std::vector<float> logits = RandomVector(2 * width, width, 5.0f);
        Guarded<float> x(logits);
        ops::Softmax({x.data(), width}, 2, width);
        CHECK(x.GuardsIntact());
        for (size_t r = 0; r < 2; ++r) {
          const double log_sum = ReferenceLogSumExp(logits.data() + r * width, width);
          for (size_t i = r * width; i < (r + 1) * width; ++i) {
            const double expected = std::exp(logits[i] - log_sum);
            // exp: 2 ulp and the rounded difference from the maximum (at most 40); the sum: width roundings of 1.
            REQUIRE(std::fabs(x[i] - expected) <= kEps * expected * (44.0 + static_cast<double>(width)));
          }
        }
      }
    });
  }

  TEST_CASE("Softmax: masked values get exactly 0") {
    testing::ForEachTarget([] {
      const float inf = std::numeric_limits<float>::infinity();
      std::vector<float> x = {-inf, 2.0f, -inf, 2.0f, -inf};
      ops::Softmax({x.data(), 5}, 1, 5);
      CHECK(x == std::vector<float>{0.0f, 0.5f, 0.0f, 0.5f, 0.0f});
    });
  }

  TEST_CASE("LogSumExp and LogSoftmaxAt: within 1e-6 of f64, at vocabulary sizes too") {
    testing::ForEachTarget([] {
      for (const size_t n :
           {size_t{1}, size_t{2}, size_t{255}, size_t{256}, size_t{257}, size_t{49152}, size_t{100003}}) {
        CAPTURE(n);
        const std::vector<float> x = RandomVector(n, n, 4.0f);
        const double expected = ReferenceLogSumExp(x.data(), n);
        REQUIRE(std::fabs(ops::LogSumExp(x.data(), n) - expected) < 1e-6);
        REQUIRE(std::fabs(ops::LogSoftmaxAt(x.data(), n, n / 2) - (x[n / 2] - expected)) < 1e-6);
      }
    });
  }

  TEST_CASE("KlDivergence: 0 for equal logits whatever their offset, else the definition") {
    const std::vector<float> p = RandomVector(1000, 1, 3.0f), q = RandomVector(1000, 2, 3.0f);
    std::vector<float> shifted = p;
    for (float& value : shifted) value += 7.0f;
    CHECK(std::fabs(ops::KlDivergence(p.data(), shifted.data(), p.size())) < 1e-5);
    const double log_p = ReferenceLogSumExp(p.data(), p.size()), log_q = ReferenceLogSumExp(q.data(), q.size());
    double expected = 0.0;
    for (size_t i = 0; i < p.size(); ++i) expected += std::exp(p[i] - log_p) * ((p[i] - log_p) - (q[i] - log_q));
    CHECK(std::fabs(ops::KlDivergence(p.data(), q.data(), p.size()) - expected) < 3e-6);
    CHECK(expected > 1.0);
  }
}

}  // namespace linnet
