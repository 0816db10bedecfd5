#include "formats/quantize/quantize.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/formats/quantize/quantized.h"
#include "tests/support/guarded.h"
#include "tests/support/tiny_model.h"

namespace linnet::formats {
namespace {

using namespace linnet::testing;

double RelativeRms(const std::vector<float>& a, const std::vector<float>& reference) {
  double error = 0.0, sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (double{a[i]} - reference[i]) * (double{a[i]} - reference[i]);
    sum += double{reference[i]} * reference[i];
  }
  return std::sqrt(error / sum);
}

TEST_SUITE("formats") {
  TEST_CASE("QuantizeRows: f32 is kept bit for bit") {
    const std::vector<float> rows = RandomVector(3 * 37, 1);
    const Quantized result = Quantize(rows, 37, {DType::kF32, 0, 0});
    REQUIRE(result.status.ok());
    CHECK(DequantizeTensor(result.view) == rows);
    CHECK(result.sums.squared_error == 0.0);
  }

  TEST_CASE("QuantizeRows: 16-bit types round to nearest") {
    // p significant bits: half a step is 2^-p of the value's power of two, or half of the smallest subnormal.
    DType dtype = DType::kF16;
    double relative = std::ldexp(1.0, -11), absolute = std::ldexp(1.0, -25);
    SUBCASE("f16") {}
    SUBCASE("bf16") {
      dtype = DType::kBF16;
      relative = std::ldexp(1.0, -8);
      absolute = std::ldexp(1.0, -134);
    }
    std::vector<float> rows = RandomVector(5 * 101, 2, 3.0f);
    for (size_t i = 0; i < rows.size(); i += 7) rows[i] *= 1e-6f;
    const Quantized result = Quantize(rows, 101, {dtype, 0, 0});
    REQUIRE(result.status.ok());
    const std::vector<float> values = DequantizeTensor(result.view);
    for (size_t i = 0; i < rows.size(); ++i) {
      CAPTURE(rows[i]);
      CHECK(std::abs(double{values[i]} - rows[i]) <= std::max(relative * std::abs(double{rows[i]}), absolute));
    }
    CHECK(result.sums.RelativeRms() == doctest::Approx(RelativeRms(values, rows)).epsilon(1e-6));
  }

  TEST_CASE("QuantizeRows: q8 is within half a step of max / 127") {
    for (const size_t columns : {1u, 7u, 8u, 9u, 1024u, 1025u, 2500u}) {
      CAPTURE(columns);
      const std::vector<float> rows = RandomVector(4 * columns, columns);
      const Quantized result = Quantize(rows, columns, {DType::kQ8, 0, 0});
      REQUIRE(result.status.ok());
      const std::vector<float> values = DequantizeTensor(result.view);
      const auto* scales = reinterpret_cast<const float*>(result.scales.data());
      for (size_t i = 0; i < rows.size(); ++i) {
        const double step = scales[i / columns];
        // The quotient of at most 127 steps carries two f32 roundings of 2^-24 each.
        REQUIRE(std::abs(double{values[i]} - rows[i]) <= step * (0.5 + 127 * 3 * 0x1p-24));
      }
      CHECK(result.sums.RelativeRms() == doctest::Approx(RelativeRms(values, rows)).epsilon(1e-4));
    }
  }

  TEST_CASE("QuantizeRows: rows do not depend on the rows beside them") {
    const std::vector<float> rows = RandomVector(6 * 64, 5);
    for (const DType dtype : {DType::kF16, DType::kQ8, DType::kQ4}) {
      const QuantizeOptions options = {dtype, dtype == DType::kQ4 ? 32u : 0u, IsQuantized(dtype) ? 64u : 0u};
      const Quantized all = Quantize(rows, 64, options);
      for (size_t row = 0; row < 6; ++row) {
        const Quantized one = Quantize({rows.begin() + row * 64, rows.begin() + (row + 1) * 64}, 64, options);
        CHECK(std::equal(one.data.begin(), one.data.end(), all.data.begin() + row * one.data.size()));
        CHECK(std::equal(one.scales.begin(), one.scales.end(), all.scales.begin() + row * one.scales.size()));
      }
    }
  }

  TEST_CASE("QuantizeRows: q8 of zeros has a scale that XNNPACK takes") {
    const Quantized result = Quantize(std::vector<float>(64, 0.0f), 32, {DType::kQ8, 0, 0});
    REQUIRE(result.status.ok());
    CHECK(std::isnormal(reinterpret_cast<const float*>(result.scales.data())[1]));
    CHECK(DequantizeTensor(result.view) == std::vector<float>(64, 0.0f));
    CHECK(result.sums.RelativeRms() == 0.0);
  }

  TEST_CASE("QuantizeRows: refuses weights that the type cannot hold, and says which") {
    std::vector<float> rows = RandomVector(4 * 64, 6);
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
    DType dtype = DType::kF32;
    float value = kNan;
    std::string message = "a weight is not a finite number";
    SUBCASE("f32, NaN") {}
    SUBCASE("q4, infinity") { dtype = DType::kQ4, value = -kInfinity; }
    SUBCASE("f16, too large") { dtype = DType::kF16, value = 65520.0f, message = "a weight does not fit f16"; }
    SUBCASE("bf16, too large") { dtype = DType::kBF16, value = 3.4e38f, message = "a weight does not fit bf16"; }
    SUBCASE("q8, too large") { dtype = DType::kQ8, value = 1e13f, message = "a weight is too large to be quantized"; }
    rows[131] = value;
    const Quantized result = Quantize(rows, 64, {dtype, dtype == DType::kQ4 ? 32u : 0u, 0});
    CHECK(result.status.code() == StatusCode::kInvalidModel);
    CHECK(result.status.message() == message);
    CHECK(result.status.value() == 131);
  }

  TEST_CASE("QuantizeRows: the largest weights that a type holds are taken") {
    CHECK(Quantize({65519.0f, 1.0f}, 2, {DType::kF16, 0, 0}).status.ok());
    CHECK(Quantize({3.38e38f, 1.0f}, 2, {DType::kBF16, 0, 0}).status.ok());
    std::vector<float> rows(64, 0x1.fffffep39f);
    const Quantized result = Quantize(rows, 64, {DType::kQ4, 32, 64});
    REQUIRE(result.status.ok());
    CHECK(RelativeRms(DequantizeTensor(result.view), rows) < 0.2);
  }
}

}  // namespace
}  // namespace linnet::formats
