#include "ops/online_softmax.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/guarded.h"

namespace linnet::testing {
namespace {

using ops::OnlineSoftmax;

constexpr float kMasked = -std::numeric_limits<float>::infinity();

TEST_SUITE("ops") {
  TEST_CASE("OnlineSoftmax: the published example gives 2.80, step by step") {
    // Scores 2, 3 | 5, 1 and values 1 to 4; the publication rounds its exponentials to two digits.
    const float first_scores[] = {2, 3}, first_values[] = {1, 2}, second_scores[] = {5, 1}, second_values[] = {3, 4};
    float out[1];
    OnlineSoftmax softmax(out);
    softmax.Add(first_scores, first_values);
    CHECK(softmax.max() == 3.0f);
    CHECK(softmax.sum() == doctest::Approx(std::exp(-1.0) + 1).epsilon(1e-6));
    CHECK(out[0] == doctest::Approx(std::exp(-1.0) + 2).epsilon(1e-6));
    softmax.Add(second_scores, second_values);
    CHECK(softmax.max() == 5.0f);
    CHECK(softmax.sum() == doctest::Approx(std::exp(-3.0) + std::exp(-2.0) + 1 + std::exp(-4.0)).epsilon(1e-6));
    REQUIRE(softmax.Finish().ok());
    const double weights[] = {std::exp(-3.0), std::exp(-2.0), 1, std::exp(-4.0)};
    const double exact = (weights[0] + 2 * weights[1] + 3 * weights[2] + 4 * weights[3]) /
                         (weights[0] + weights[1] + weights[2] + weights[3]);
    CHECK(out[0] == doctest::Approx(exact).epsilon(1e-6));
    CHECK(std::abs(out[0] - 2.80) < 0.025);
  }

  TEST_CASE("OnlineSoftmax: blocks of any size give the same result to rounding") {
    const size_t n = 100, width = 3;
    const std::vector<float> scores = RandomVector(n, 5, 4.0f), values = RandomVector(n * width, 6);
    double exact[width] = {}, sum = 0, magnitude = 0;
    for (size_t i = 0; i < n; ++i) {
      const double p = std::exp(double{scores[i]});
      sum += p;
      for (size_t d = 0; d < width; ++d) {
        exact[d] += p * values[i * width + d];
        magnitude += p * std::abs(values[i * width + d]);
      }
    }
    for (const size_t block : {size_t{1}, size_t{7}, size_t{64}, n}) {
      CAPTURE(block);
      float out[width];
      OnlineSoftmax softmax(out);
      for (size_t i = 0; i < n; i += block) {
        softmax.Add(std::span(scores).subspan(i, std::min(block, n - i)), values.data() + i * width);
      }
      REQUIRE(softmax.Finish().ok());
      // Each of n additions and rescalings rounds once in both sums.
      for (size_t d = 0; d < width; ++d) CHECK(std::abs(out[d] - exact[d] / sum) <= 4 * n * 0x1p-24 * magnitude / sum);
    }
  }

  TEST_CASE("OnlineSoftmax: scores of +-1e4 do not overflow") {
    const float scores[] = {-1e4f, 1e4f, 1e4f, -1e4f}, values[] = {7, 1, 3, 9};
    float out[1];
    OnlineSoftmax softmax(out);
    for (size_t i = 0; i < 4; ++i) softmax.Add(std::span(scores).subspan(i, 1), values + i);
    REQUIRE(softmax.Finish().ok());
    CHECK(out[0] == 2.0f);
  }

  TEST_CASE("OnlineSoftmax: masked values are not read, and a row that is masked whole is refused") {
    const float scores[] = {kMasked, 1, kMasked}, values[] = {std::nanf(""), 5, std::nanf("")};
    float out[1];
    OnlineSoftmax softmax(out);
    softmax.Add(std::span(scores).first(1), values);
    softmax.Add(std::span(scores).subspan(1), values + 1);
    REQUIRE(softmax.Finish().ok());
    CHECK(out[0] == 5.0f);
    OnlineSoftmax masked(out);
    masked.Add(std::span(scores).first(1), values);
    CHECK(masked.Finish().code() == StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace linnet::testing
