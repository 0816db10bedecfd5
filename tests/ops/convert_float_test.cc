#include "ops/convert_float.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/support/guarded.h"
#include "tests/support/ops_reference.h"
#include "tests/support/targets.h"

namespace linnet {
namespace {

using testing::Guarded;

constexpr size_t kAll16 = 65536;

std::vector<uint16_t> AllBits() {
  std::vector<uint16_t> bits(kAll16);
  std::iota(bits.begin(), bits.end(), uint16_t{0});
  return bits;
}

float BF16Value(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("F16ToF32: every value on every target, and back") {
    const std::vector<uint16_t> bits = AllBits();
    testing::ForEachTarget([&] {
      Guarded<float> values(kAll16);
      ops::F16ToF32(bits.data(), kAll16, values.data());
      Guarded<uint16_t> back(kAll16);
      ops::F32ToF16(values.data(), kAll16, back.data());
      CHECK(values.GuardsIntact());
      CHECK(back.GuardsIntact());
      for (size_t i = 0; i < kAll16; ++i) {
        CAPTURE(i);
        const double expected = testing::ReferenceF16(bits[i]);
        if (std::isnan(expected)) {
          REQUIRE(std::isnan(values[i]));
          REQUIRE(std::isnan(testing::ReferenceF16(back[i])));
        } else {
          REQUIRE(values[i] == expected);
          REQUIRE(back[i] == bits[i]);
        }
      }
    });
  }

  TEST_CASE("F32ToF16: to nearest, ties to even, between every pair of neighbours") {
    std::vector<float> x;
    std::vector<uint16_t> expected;
    for (uint16_t low = 0; low < 0x7C00; ++low) {
      const uint16_t high = static_cast<uint16_t>(low + 1);
      const double a = testing::ReferenceF16(low);
      const double b = high == 0x7C00 ? 65536.0 : testing::ReferenceF16(high);
      const float middle = static_cast<float>((a + b) / 2);  // exact: one more bit than f16 has
      for (const float value : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e9f)}) {
        x.push_back(value);
        expected.push_back(value < middle ? low : value > middle ? high : (low % 2 == 0 ? low : high));
      }
    }
    x.push_back(-1e9f);
    expected.push_back(0xFC00);
    testing::ForEachTarget([&] {
      std::vector<uint16_t> out(x.size());
      ops::F32ToF16(x.data(), x.size(), out.data());
      for (size_t i = 0; i < x.size(); ++i) {
        CAPTURE(x[i]);
        REQUIRE(out[i] == expected[i]);
      }
    });
  }

  TEST_CASE("BF16: every value there and back, ties to even, NaN stays NaN") {
    const std::vector<uint16_t> bits = AllBits();
    testing::ForEachTarget([&] {
      Guarded<float> values(kAll16);
      ops::BF16ToF32(bits.data(), kAll16, values.data());
      CHECK(values.GuardsIntact());
      Guarded<uint16_t> back(kAll16);
      ops::F32ToBF16(values.data(), kAll16, back.data());
      CHECK(back.GuardsIntact());
      for (size_t i = 0; i < kAll16; ++i) {
        CAPTURE(i);
        REQUIRE(std::bit_cast<uint32_t>(values[i]) == static_cast<uint32_t>(bits[i]) << 16);
        if (std::isnan(values[i])) {
          REQUIRE(std::isnan(BF16Value(back[i])));
        } else {
          REQUIRE(back[i] == bits[i]);
        }
      }
      const uint32_t between[] = {0x3F808000u, 0x3F818000u, 0x3F807FFFu, 0x3F808001u,
                                  0x7F7FFFFFu, 0x00008001u, 0x7F800001u};
      std::vector<float> x;
      for (const uint32_t value : between) x.push_back(std::bit_cast<float>(value));
      Guarded<uint16_t> rounded(x.size());
      ops::F32ToBF16(x.data(), x.size(), rounded.data());
      CHECK(rounded.GuardsIntact());
      const uint16_t expected[] = {0x3F80, 0x3F82, 0x3F80, 0x3F81, 0x7F80, 0x0001};
      for (size_t i = 0; i < std::size(expected); ++i) CHECK(rounded[i] == expected[i]);
      CHECK(std::isnan(BF16Value(rounded[6])));
    });
  }

  TEST_CASE("Conversions: partial vectors write nothing beyond the end") {
    testing::ForEachTarget([] {
      for (const size_t n : testing::kWidths) {
        const std::vector<float> x = testing::RandomVector(n, n);
        Guarded<uint16_t> half(n), brain(n);
        Guarded<float> from_half(n), from_brain(n);
        ops::F32ToF16(x.data(), n, half.data());
        ops::F32ToBF16(x.data(), n, brain.data());
        ops::F16ToF32(half.data(), n, from_half.data());
        ops::BF16ToF32(brain.data(), n, from_brain.data());
        CHECK((half.GuardsIntact() && brain.GuardsIntact() && from_half.GuardsIntact() && from_brain.GuardsIntact()));
        for (size_t i = 0; i < n; ++i) {
          REQUIRE(std::fabs(from_half[i] - x[i]) <= std::fabs(x[i]) * 0x1p-11f + 0x1p-25f);
          REQUIRE(std::fabs(from_brain[i] - x[i]) <= std::fabs(x[i]) * 0x1p-8f);
        }
      }
    });
  }
}

}  // namespace linnet
