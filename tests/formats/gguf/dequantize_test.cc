#include "formats/gguf/dequantize.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/base/float16.h"

TEST_SUITE_BEGIN("formats/gguf");

namespace linnet::formats {
namespace {

constexpr size_t kBlocks = 64;

// Where a block's half-precision fields stand; the other bytes may have any value.
struct Layout {
  uint32_t type;
  std::vector<size_t> half_offsets;
  uint64_t hash;  // FNV-1a over the f32 bits of 64 pseudo-random blocks as the gguf 0.19 Python package converts them
};

const std::vector<Layout>& Layouts() {
  static const std::vector<Layout> layouts = {
      {kGgmlQ4_0, {0}, 0x12d17296ccb75a6full},    {kGgmlQ4_1, {0, 2}, 0xf26c215347e6085dull},
      {kGgmlQ5_0, {0}, 0xda7839890c4b28cdull},    {kGgmlQ5_1, {0, 2}, 0x5ee4514898462ef5ull},
      {kGgmlQ8_0, {0}, 0xaf421f96be864febull},    {kGgmlQ2_K, {80, 82}, 0xb1e5939afd11da51ull},
      {kGgmlQ3_K, {108}, 0xc5300e8d779e860full},  {kGgmlQ4_K, {0, 2}, 0x514e388e6fbef5b9ull},
      {kGgmlQ5_K, {0, 2}, 0x999992ceb3c34c80ull}, {kGgmlQ6_K, {208}, 0x476bab3c9bddb134ull},
      {kGgmlIQ4_NL, {0}, 0x6d07e241a009aa68ull},  {kGgmlIQ4_XS, {0}, 0x1fffb789d42f79e6ull},
      {kGgmlTQ1_0, {52}, 0x18e87fb2f18c4dc6ull},  {kGgmlTQ2_0, {64}, 0xe8d0078d4eff0729ull},
      {kGgmlMXFP4, {}, 0x172926ff04d1b11eull},
  };
  return layouts;
}

// Blocks of bytes from a linear congruential generator, with scales made finite.
std::vector<uint8_t> MakeBlocks(const Layout& layout, const GgmlType& type) {
  std::vector<uint8_t> bytes;
  uint32_t state = 12345;
  for (size_t block = 0; block < kBlocks; ++block) {
    const size_t begin = bytes.size();
    for (size_t i = 0; i < type.block_bytes; ++i) {
      state = state * 1664525u + 1013904223u;
      bytes.push_back(static_cast<uint8_t>(state >> 24));
    }
    for (const size_t offset : layout.half_offsets) {
      uint8_t* half = &bytes[begin + offset];
      const uint32_t bits = ((half[0] | (half[1] << 8)) & 0x8bffu) | 0x2400u;
      half[0] = static_cast<uint8_t>(bits & 255);
      half[1] = static_cast<uint8_t>(bits >> 8);
    }
  }
  return bytes;
}

uint64_t Hash(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const float value : values) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ ((bits >> shift) & 255)) * 0x100000001b3ull;
  }
  return hash;
}

// A block's value read straight from the format's definition, in f64: quant, scale and minimum of value i.
struct Exact {
  double scale, quant, minimum;
};

double HalfAt(const uint8_t* block, size_t offset) {
  return F32FromF16(static_cast<uint16_t>(block[offset] | (block[offset + 1] << 8)));
}

// Bits [begin, begin + count) of the six-bit scale j of a K-quant, spelled out from the table in ggml's documentation.
void KScale(const uint8_t* s, size_t j, int& scale, int& minimum) {
  if (j < 4) {
    scale = s[j] % 64;
    minimum = s[4 + j] % 64;
  } else {
    scale = s[4 + j] % 16 + s[j - 4] / 64 * 16;
    minimum = s[4 + j] / 16 + s[j] / 64 * 16;
  }
}

Exact ReadSimple(uint32_t type, const uint8_t* b, size_t i) {
  const size_t byte = i % 16;
  const auto nibble = [&](size_t offset) { return i < 16 ? b[offset + byte] % 16 : b[offset + byte] / 16; };
  const auto fifth = [&](size_t offset) { return (b[offset + i / 8] >> (i % 8)) % 2 * 16; };
  static const int kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  static const double kE2M1[16] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6};
  switch (type) {
    case kGgmlQ4_0:
      return {HalfAt(b, 0), nibble(2) - 8.0, 0};
    case kGgmlQ4_1:
      return {HalfAt(b, 0), nibble(4) + 0.0, -HalfAt(b, 2)};
    case kGgmlQ5_0:
      return {HalfAt(b, 0), nibble(6) + fifth(2) - 16.0, 0};
    case kGgmlQ5_1:
      return {HalfAt(b, 0), nibble(8) + fifth(4) + 0.0, -HalfAt(b, 2)};
    case kGgmlQ8_0:
      return {HalfAt(b, 0), static_cast<double>(static_cast<int8_t>(b[2 + i])), 0};
    case kGgmlIQ4_NL:
      return {HalfAt(b, 0), static_cast<double>(kIq4[nibble(2)]), 0};
    default:
      return {std::ldexp(1.0, b[0] - 127), kE2M1[nibble(1)], 0};  // MXFP4
  }
}

Exact ReadSuper(uint32_t type, const uint8_t* b, size_t i) {
  int scale = 0, minimum = 0;
  static const int kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  const size_t lane = i % 32, in_half = i % 128;
  switch (type) {
    case kGgmlQ2_K: {
      const int quant = (b[16 + i / 128 * 32 + lane] >> (in_half / 32 * 2)) % 4;
      return {HalfAt(b, 80) * (b[i / 16] % 16), quant + 0.0, HalfAt(b, 82) * (b[i / 16] / 16)};
    }
    case kGgmlQ3_K: {
      const size_t group = i / 16;
      const int low = group < 8 ? b[96 + group] % 16 : b[96 + group - 8] / 16;
      const int high = (b[104 + group % 4] >> (group / 4 * 2)) % 4;
      const int quant = (b[32 + i / 128 * 32 + lane] >> (in_half / 32 * 2)) % 4 - (b[lane] >> (i / 32)) % 2 * -4 - 4;
      return {HalfAt(b, 108) * (low + 16 * high - 32), quant + 0.0, 0};
    }
    case kGgmlQ4_K: {
      KScale(b + 4, i / 32, scale, minimum);
      const int byte = b[16 + i / 64 * 32 + lane];
      return {HalfAt(b, 0) * scale, (i % 64 < 32 ? byte % 16 : byte / 16) + 0.0, HalfAt(b, 2) * minimum};
    }
    case kGgmlQ5_K: {
      KScale(b + 4, i / 32, scale, minimum);
      const int byte = b[48 + i / 64 * 32 + lane];
      const int high = (b[16 + lane] >> (i / 32)) % 2;
      return {HalfAt(b, 0) * scale, (i % 64 < 32 ? byte % 16 : byte / 16) + 16.0 * high, HalfAt(b, 2) * minimum};
    }
    case kGgmlQ6_K: {
      const int byte = b[i / 128 * 64 + in_half % 64];
      const int high = (b[128 + i / 128 * 32 + lane] >> (in_half / 32 * 2)) % 4;
      const int quant = (in_half < 64 ? byte % 16 : byte / 16) + 16 * high - 32;
      return {HalfAt(b, 208) * static_cast<int8_t>(b[192 + i / 16]), quant + 0.0, 0};
    }
    case kGgmlIQ4_XS: {
      const size_t group = i / 32;
      const int low = group % 2 == 0 ? b[4 + group / 2] % 16 : b[4 + group / 2] / 16;
      const int high = ((b[2] | (b[3] << 8)) >> (2 * group)) % 4;
      const int byte = b[8 + group * 16 + lane % 16];
      return {HalfAt(b, 0) * (low + 16 * high - 32), kIq4[lane < 16 ? byte % 16 : byte / 16] + 0.0, 0};
    }
    case kGgmlTQ2_0:
      return {HalfAt(b, 64), (b[i / 128 * 32 + lane] >> (in_half / 32 * 2)) % 4 - 1.0, 0};
    default: {  // TQ1_0: digit n of a byte is the n-th ternary digit of byte * 243 / 256, rounded up, from the top
      const size_t row = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
      const int byte = i < 160 ? b[i % 32] : i < 240 ? b[32 + (i - 160) % 16] : b[48 + (i - 240) % 4];
      int shifted = byte;
      for (size_t n = 0; n < row; ++n) shifted = shifted * 3 % 256;
      return {HalfAt(b, 52), shifted * 3 / 256 - 1.0, 0};
    }
  }
}

TEST_CASE("Dequantize: every type equals the Python package's conversion bit for bit") {
  for (const Layout& layout : Layouts()) {
    const GgmlType& type = *FindGgmlType(layout.type);
    CAPTURE(std::string(type.name));
    const std::vector<uint8_t> blocks = MakeBlocks(layout, type);
    std::vector<float> values(kBlocks * type.block_size);
    type.dequantize(reinterpret_cast<const std::byte*>(blocks.data()), kBlocks, values.data());
    CHECK(Hash(values) == layout.hash);
  }
}

TEST_CASE("Dequantize: every type agrees with an f64 reading of its layout") {
  for (const Layout& layout : Layouts()) {
    const GgmlType& type = *FindGgmlType(layout.type);
    CAPTURE(std::string(type.name));
    const std::vector<uint8_t> blocks = MakeBlocks(layout, type);
    std::vector<float> values(kBlocks * type.block_size);
    type.dequantize(reinterpret_cast<const std::byte*>(blocks.data()), kBlocks, values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      CAPTURE(i);
      const uint8_t* block = blocks.data() + i / type.block_size * type.block_bytes;
      const Exact exact =
          type.block_size == 32 ? ReadSimple(type.number, block, i % 32) : ReadSuper(type.number, block, i % 256);
      const double product = exact.scale * exact.quant, expected = product - exact.minimum;
      if (std::fabs(expected) > std::numeric_limits<float>::max()) {
        CHECK(std::isinf(values[i]));
        continue;
      }
      // Scale, product and difference each round once in f32; MXFP4's smallest scales are exact subnormals.
      const double bound = 0x1p-24 * (3.0 * std::fabs(product) + 2.0 * std::fabs(exact.minimum)) + 0x1p-149;
      REQUIRE(std::fabs(values[i] - expected) <= bound);
    }
  }
}

TEST_CASE("Dequantize: reads blocks at any address") {
  const Layout& layout = Layouts()[7];  // Q4_K
  const GgmlType& type = *FindGgmlType(layout.type);
  std::vector<uint8_t> blocks = MakeBlocks(layout, type);
  std::vector<float> aligned(kBlocks * type.block_size), shifted(aligned.size());
  type.dequantize(reinterpret_cast<const std::byte*>(blocks.data()), kBlocks, aligned.data());
  blocks.insert(blocks.begin(), 1);
  type.dequantize(reinterpret_cast<const std::byte*>(blocks.data() + 1), kBlocks, shifted.data());
  CHECK(std::memcmp(aligned.data(), shifted.data(), aligned.size() * sizeof(float)) == 0);
}

TEST_CASE("Dequantize: plain types, with their special values") {
  const auto decode = [](uint32_t number, const void* data, size_t n) {
    std::vector<float> out(n);
    FindGgmlType(number)->dequantize(static_cast<const std::byte*>(data), n, out.data());
    return out;
  };
  const float floats[] = {1.5f, -0.0f, std::numeric_limits<float>::infinity(), 0x1p-149f};
  CHECK(std::memcmp(decode(kGgmlF32, floats, 4).data(), floats, sizeof(floats)) == 0);
  const double doubles[] = {1.0 + 0x1p-30, -2.5, 0x1p-200, 1e300};
  CHECK(decode(kGgmlF64, doubles, 3) == std::vector<float>{1.0f, -2.5f, 0.0f});
  CHECK(std::isinf(decode(kGgmlF64, doubles + 3, 1)[0]));
  const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x8000};
  const std::vector<float> from_half = decode(kGgmlF16, halves, 6);
  CHECK(from_half[0] == 1.0f);
  CHECK(from_half[1] == -2.0f);
  CHECK(from_half[2] == 0x1p-24f);
  CHECK(from_half[3] == 65504.0f);
  CHECK(std::isinf(from_half[4]));
  CHECK(std::signbit(from_half[5]));
  const uint16_t brains[] = {0x3f80, 0xc020};
  CHECK(decode(kGgmlBF16, brains, 2) == std::vector<float>{1.0f, -2.5f});
}

TEST_CASE("Dequantize: Q8_K") {
  std::vector<uint8_t> block(292);
  const float scale = 0.125f;
  std::memcpy(block.data(), &scale, 4);
  for (size_t i = 0; i < 256; ++i) block[4 + i] = static_cast<uint8_t>(i - 128);
  std::vector<float> out(256);
  FindGgmlType(kGgmlQ8_K)->dequantize(reinterpret_cast<const std::byte*>(block.data()), 1, out.data());
  for (size_t i = 0; i < 256; ++i) CHECK(out[i] == 0.125f * (static_cast<float>(i) - 128.0f));
}

TEST_CASE("FindGgmlType: bits per weight, types without a conversion, unknown numbers") {
  CHECK(FindGgmlType(kGgmlQ4_K)->bits_per_weight() == 4.5);
  CHECK(FindGgmlType(kGgmlQ6_K)->bits_per_weight() == 6.5625);
  REQUIRE(FindGgmlType(16) != nullptr);
  CHECK(std::string(FindGgmlType(16)->name) == "IQ2_XXS");
  CHECK(FindGgmlType(16)->dequantize == nullptr);
  CHECK(FindGgmlType(5) == nullptr);
  CHECK(FindGgmlType(12345) == nullptr);
}

}  // namespace
}  // namespace linnet::formats

TEST_SUITE_END();
