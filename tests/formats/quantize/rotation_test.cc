#include <doctest/doctest.h>

#include <cmath>

#include "formats/quantize/quantize.h"
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
  TEST_CASE("QuantizeRows: rotated weights come back near the source") {
    constexpr size_t kColumns = 192;  // three blocks of 64
    std::vector<float> rows = RandomVector(32 * kColumns, 4);
    DType dtype = DType::kQ8;
    uint32_t block_size = 0;
    // Of normal weights: a uniform error of max / 127 = 3.3 / 127 at most, and 0.095 for 4 bits (README.md), with a
    // margin.
    double bound = 3.3 / 127 / std::sqrt(12.0) * 1.5;
    SUBCASE("q8") {}
    SUBCASE("q4") { dtype = DType::kQ4, block_size = 32, bound = 0.095; }
    const Quantized rotated = Quantize(rows, kColumns, {dtype, block_size, 64});
    REQUIRE(rotated.status.ok());
    const double error = RelativeRms(DequantizeTensor(rotated.view), rows);
    CHECK(error < bound);
    CHECK(error > bound / 10);  // quantized at all
    CHECK(rotated.sums.RelativeRms() == doctest::Approx(error).epsilon(1e-3));
  }

  TEST_CASE("QuantizeRows: the rotation spreads outliers") {
    constexpr size_t kColumns = 256;
    std::vector<float> rows = RandomVector(16 * kColumns, 8);
    for (size_t i = 7; i < rows.size(); i += 61) rows[i] *= 20.0f;
    const auto error = [&rows](uint32_t rotation_block) {
      const Quantized result = Quantize(rows, kColumns, {DType::kQ8, 0, rotation_block});
      return RelativeRms(DequantizeTensor(result.view), rows);
    };
    CHECK(error(256) < 0.75 * error(0));
  }
}

}  // namespace
}  // namespace linnet::formats
