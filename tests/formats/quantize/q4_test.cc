#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/float16.h"
#include "formats/quantize/quantize.h"
#include "tests/formats/quantize/quantized.h"
#include "tests/support/guarded.h"
#include "tests/support/tiny_model.h"

namespace linnet::formats {
namespace {

using namespace linnet::testing;

const uint16_t* Scales(const Quantized& result) { return reinterpret_cast<const uint16_t*>(result.scales.data()); }

// The squared error of a block under `scale`, in f64.
double BlockError(const float* w, size_t n, double scale) {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) {
    const double q = std::min(7.0, std::max(-8.0, std::nearbyint(w[i] / scale)));
    sum += (q * scale - w[i]) * (q * scale - w[i]);
  }
  return sum;
}

TEST_SUITE("formats") {
  TEST_CASE("QuantizeRows: q4 stores even k in the low nibble as q + 8") {
    std::vector<float> rows(32, 0.0f);
    rows[0] = -8.0f;  // fixes the scale to 1
    rows[1] = 7.0f;
    rows[2] = 1.0f;
    rows[31] = -3.0f;
    const Quantized result = Quantize(rows, 32, {DType::kQ4, 32, 0});
    REQUIRE(result.status.ok());
    CHECK(F32FromBF16(Scales(result)[0]) == 1.0f);
    CHECK(result.data[0] == std::byte{0xf0});
    CHECK(result.data[1] == std::byte{0x89});
    CHECK(result.data[15] == std::byte{0x58});
  }

  TEST_CASE("QuantizeRows: q4 keeps weights that are on a 4-bit grid already") {
    Random random(3);
    for (const float scale : {0.5f, 0.0078125f, 1.5f, 0.01171875f}) {  // bf16 holds them
      for (const float end : {-8.0f, 7.0f, -7.0f}) {
        std::vector<float> rows(64);
        for (float& w : rows) w = scale * std::floor(random.Uniform(-6.0f, 7.0f));
        rows[11] = rows[40] = scale * end;
        const Quantized result = Quantize(rows, 64, {DType::kQ4, 32, 0});
        CAPTURE(scale);
        CAPTURE(end);
        CHECK(DequantizeTensor(result.view) == rows);
        CHECK(result.sums.squared_error == 0.0);
      }
    }
  }

  TEST_CASE("QuantizeRows: q4 chooses a scale within 1 % of an exhaustive search over both signs") {
    for (const uint32_t block_size : {32u, 64u, 128u}) {
      CAPTURE(block_size);
      const size_t n_blocks = 64;
      const std::vector<float> rows = RandomVector(n_blocks * block_size, block_size);
      const Quantized result = Quantize(rows, block_size, {DType::kQ4, block_size, 0});
      REQUIRE(result.status.ok());
      double chosen = 0.0, best = 0.0;
      for (size_t block = 0; block < n_blocks; ++block) {
        const float* w = &rows[block * block_size];
        double magnitude = 0.0, least = 1e30;
        for (size_t i = 0; i < block_size; ++i) magnitude = std::max(magnitude, std::abs(double{w[i]}));
        for (double divisor = 5.0; divisor < 14.0; divisor += 0.02) {
          least = std::min(least, BlockError(w, block_size, magnitude / divisor));
          least = std::min(least, BlockError(w, block_size, -magnitude / divisor));
        }
        best += least;
        chosen += BlockError(w, block_size, F32FromBF16(Scales(result)[block]));
      }
      CHECK(chosen <= 1.01 * best);
      CHECK(result.sums.squared_error == doctest::Approx(chosen).epsilon(1e-4));
    }
  }

  TEST_CASE("QuantizeRows: q4 stays within half a step, or clips the largest") {
    const std::vector<float> rows = RandomVector(8 * 256, 9);
    const Quantized result = Quantize(rows, 256, {DType::kQ4, 64, 0});
    const std::vector<float> values = DequantizeTensor(result.view);
    for (size_t i = 0; i < rows.size(); ++i) {
      const double scale = F32FromBF16(Scales(result)[i / 64]), step = std::abs(scale);
      const double steps = rows[i] / scale;
      const double overflow = std::max({0.0, steps - 7.0, -8.0 - steps});
      REQUIRE(std::abs(double{values[i]} - rows[i]) <= step * (std::max(0.5, overflow) + 8 * 3 * 0x1p-24));
      REQUIRE(overflow <= 3.5);  // max / 10.5 would be the largest scale cut that a candidate or its refinement makes
    }
  }

  TEST_CASE("QuantizeRows: q4 scales are normal numbers, also divided by 16") {
    std::vector<float> rows(5 * 32, 0.0f);
    for (size_t i = 0; i < 32; ++i) {
      rows[32 + i] = 1e-38f * static_cast<float>(i % 3);  // below every scale
      rows[64 + i] = i == 5 ? -4.0f : 0.0f;               // one weight alone
      rows[96 + i] = 1e-25f * static_cast<float>(i % 5);  // squares below f32's range
      rows[128 + i] = 0.75f;                              // all the same
    }
    const Quantized result = Quantize(rows, 32, {DType::kQ4, 32, 0});
    REQUIRE(result.status.ok());
    for (size_t block = 0; block < 5; ++block) {
      const float scale = F32FromBF16(Scales(result)[block]);
      CAPTURE(block);
      CHECK(std::isnormal(scale / 16.0f));
    }
    const std::vector<float> values = DequantizeTensor(result.view);
    CHECK(values[0] == 0.0f);
    CHECK(result.data[0] == std::byte{0x88});
    CHECK(values[64 + 5] == doctest::Approx(-4.0f).epsilon(0.005));
    CHECK(values[64 + 6] == 0.0f);
    CHECK(values[96 + 4] == doctest::Approx(4e-25f).epsilon(0.1));
    CHECK(values[128] == doctest::Approx(0.75f).epsilon(0.005));
  }
}

}  // namespace
}  // namespace linnet::formats
