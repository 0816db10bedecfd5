// Every function reads blocks where the file is mapped; a block may stand at any address, so that values wider than a
// byte are copied out. Compiled with -ffp-contract=off: a fused multiply-subtract would differ from ggml by an ulp.
#include "formats/gguf/dequantize.h"

#include <bit>
#include <cstring>

#include "core/base/float16.h"

namespace linnet::formats {
namespace {

constexpr size_t kBlock = 32;        // values of a simple block
constexpr size_t kSuperBlock = 256;  // values of a K-quant's super-block

// Half-precision fields stand as their two bytes, so that every struct has alignment 1 and the file's exact size.
struct Half {
  uint8_t bytes[2];
  float value() const { return F32FromF16(static_cast<uint16_t>(bytes[0] | (bytes[1] << 8))); }
};

struct BlockQ4_0 {
  Half d;
  uint8_t qs[16];
};
struct BlockQ4_1 {
  Half d, m;
  uint8_t qs[16];
};
struct BlockQ5_0 {
  Half d;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ5_1 {
  Half d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ8_0 {
  Half d;
  int8_t qs[32];
};
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t qs[64];
  Half d, dmin;
};
struct BlockQ3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  Half d;
};
struct BlockQ4_K {
  Half d, dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
struct BlockQ5_K {
  Half d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  Half d;
};
struct BlockQ8_K {
  uint8_t d[4];
  int8_t qs[256];
  uint8_t bsums[32];
};
struct BlockIQ4_NL {
  Half d;
  uint8_t qs[16];
};
struct BlockIQ4_XS {
  Half d;
  uint8_t scales_h[2];
  uint8_t scales_l[4];
  uint8_t qs[128];
};
struct BlockTQ1_0 {
  uint8_t qs[48];
  uint8_t qh[4];
  Half d;
};
struct BlockTQ2_0 {
  uint8_t qs[64];
  Half d;
};
struct BlockMXFP4 {
  uint8_t e;
  uint8_t qs[16];
};

static_assert(sizeof(BlockQ4_0) == 18);
static_assert(sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34);
static_assert(sizeof(BlockQ2_K) == 84);
static_assert(sizeof(BlockQ3_K) == 110);
static_assert(sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockQ8_K) == 292);
static_assert(sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockIQ4_XS) == 136);
static_assert(sizeof(BlockTQ1_0) == 54);
static_assert(sizeof(BlockTQ2_0) == 66);
static_assert(sizeof(BlockMXFP4) == 17);

// The 16 values of the non-linear 4-bit types.
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// E2M1 (OCP MX specification 1.0) times two, so that the halved scale makes them whole numbers.
constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

uint32_t LoadU32(const uint8_t* from) {
  uint32_t value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Runs Decode(block, out) over all blocks; a function object for each type, so that the call is inlined.
template <typename Block, size_t kValues, void (*Decode)(const Block&, float*)>
void DecodeAll(const std::byte* blocks, size_t n_blocks, float* out) {
  static_assert(alignof(Block) == 1);
  const Block* block = reinterpret_cast<const Block*>(blocks);
  for (size_t i = 0; i < n_blocks; ++i) Decode(block[i], out + i * kValues);
}

void DecodeF32(const std::byte* blocks, size_t n, float* out) { std::memcpy(out, blocks, n * sizeof(float)); }

void DecodeF64(const std::byte* blocks, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    double value;
    std::memcpy(&value, blocks + i * sizeof(value), sizeof(value));
    out[i] = static_cast<float>(value);
  }
}

template <float (*ToF32)(uint16_t)>
void Decode16(const std::byte* blocks, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, blocks + i * sizeof(bits), sizeof(bits));
    out[i] = ToF32(bits);
  }
}

void DecodeQ4_0(const BlockQ4_0& block, float* out) {
  const float d = block.d.value();
  for (size_t j = 0; j < kBlock / 2; ++j) {
    out[j] = static_cast<float>((block.qs[j] & 15) - 8) * d;
    out[j + kBlock / 2] = static_cast<float>((block.qs[j] >> 4) - 8) * d;
  }
}

void DecodeQ4_1(const BlockQ4_1& block, float* out) {
  const float d = block.d.value(), m = block.m.value();
  for (size_t j = 0; j < kBlock / 2; ++j) {
    out[j] = static_cast<float>(block.qs[j] & 15) * d + m;
    out[j + kBlock / 2] = static_cast<float>(block.qs[j] >> 4) * d + m;
  }
}

// Value j of 32 whose low four bits are packed as in Q4_0 and whose fifth bit is bit j of `high`.
void DecodeQ5(const uint8_t* qs, uint32_t high, float* out) {
  for (uint32_t j = 0; j < kBlock / 2; ++j) {
    out[j] = static_cast<float>((qs[j] & 15) | (((high >> j) & 1) << 4));
    out[j + kBlock / 2] = static_cast<float>((qs[j] >> 4) | (((high >> (j + 16)) & 1) << 4));
  }
}

void DecodeQ5_0(const BlockQ5_0& block, float* out) {
  const float d = block.d.value();
  DecodeQ5(block.qs, LoadU32(block.qh), out);
  for (size_t j = 0; j < kBlock; ++j) out[j] = (out[j] - 16.0f) * d;
}

void DecodeQ5_1(const BlockQ5_1& block, float* out) {
  const float d = block.d.value(), m = block.m.value();
  DecodeQ5(block.qs, LoadU32(block.qh), out);
  for (size_t j = 0; j < kBlock; ++j) out[j] = out[j] * d + m;
}

void DecodeQ8_0(const BlockQ8_0& block, float* out) {
  const float d = block.d.value();
  for (size_t j = 0; j < kBlock; ++j) out[j] = static_cast<float>(block.qs[j]) * d;
}

// 16 groups of 16; a byte holds two bits of four values that are 32 apart.
void DecodeQ2_K(const BlockQ2_K& block, float* out) {
  const float d = block.d.value(), dmin = block.dmin.value();
  for (size_t group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(block.scales[group] & 15);
    const float minimum = dmin * static_cast<float>(block.scales[group] >> 4);
    const uint8_t* qs = block.qs + group / 8 * 32 + group % 2 * 16;
    const int shift = static_cast<int>(group % 8 / 2) * 2;
    for (size_t j = 0; j < 16; ++j) {
      out[group * 16 + j] = scale * static_cast<float>((qs[j] >> shift) & 3) - minimum;
    }
  }
}

// As Q2_K, with a third bit (inverted: 0 subtracts 4) and signed 6-bit scales whose bits stand apart.
void DecodeQ3_K(const BlockQ3_K& block, float* out) {
  const float d = block.d.value();
  for (size_t group = 0; group < 16; ++group) {
    const int low = group < 8 ? block.scales[group] & 15 : block.scales[group - 8] >> 4;
    const int high = (block.scales[8 + group % 4] >> (group / 4 * 2)) & 3;
    const float scale = d * static_cast<float>((low | (high << 4)) - 32);
    const uint8_t* qs = block.qs + group / 8 * 32 + group % 2 * 16;
    const uint8_t* hmask = block.hmask + group % 2 * 16;
    const int shift = static_cast<int>(group % 8 / 2) * 2;
    const int bit = static_cast<int>(group / 2);
    for (size_t j = 0; j < 16; ++j) {
      const int quant = ((qs[j] >> shift) & 3) - (((hmask[j] >> bit) & 1) != 0 ? 0 : 4);
      out[group * 16 + j] = scale * static_cast<float>(quant);
    }
  }
}

// The 6-bit scale and minimum of group j of 8, as Q4_K and Q5_K pack them into 12 bytes.
struct ScaleMin {
  float scale, minimum;
};
ScaleMin UnpackScaleMin(const uint8_t* packed, size_t j) {
  if (j < 4) return {static_cast<float>(packed[j] & 63), static_cast<float>(packed[j + 4] & 63)};
  return {static_cast<float>((packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4)),
          static_cast<float>((packed[j + 4] >> 4) | ((packed[j] >> 6) << 4))};
}

// 8 groups of 32; bytes hold a value of an even group low and of the next group high.
void DecodeQ4_K(const BlockQ4_K& block, float* out) {
  const float d = block.d.value(), dmin = block.dmin.value();
  for (size_t group = 0; group < 8; ++group) {
    const ScaleMin packed = UnpackScaleMin(block.scales, group);
    const float scale = d * packed.scale, minimum = dmin * packed.minimum;
    const uint8_t* qs = block.qs + group / 2 * 32;
    const int shift = group % 2 == 0 ? 0 : 4;
    for (size_t j = 0; j < 32; ++j) {
      out[group * 32 + j] = scale * static_cast<float>((qs[j] >> shift) & 15) - minimum;
    }
  }
}

// As Q4_K; the fifth bit of a value of group g is bit g of qh.
void DecodeQ5_K(const BlockQ5_K& block, float* out) {
  const float d = block.d.value(), dmin = block.dmin.value();
  for (size_t group = 0; group < 8; ++group) {
    const ScaleMin packed = UnpackScaleMin(block.scales, group);
    const float scale = d * packed.scale, minimum = dmin * packed.minimum;
    const uint8_t* qs = block.qs + group / 2 * 32;
    const int shift = group % 2 == 0 ? 0 : 4;
    for (size_t j = 0; j < 32; ++j) {
      const int quant = ((qs[j] >> shift) & 15) | (((block.qh[j] >> group) & 1) << 4);
      out[group * 32 + j] = scale * static_cast<float>(quant) - minimum;
    }
  }
}

// Two halves of 128; in a half, rows of 32 values take their low four bits from ql and two more from qh.
void DecodeQ6_K(const BlockQ6_K& block, float* out) {
  const float d = block.d.value();
  for (size_t row = 0; row < 8; ++row) {
    const size_t half = row / 4, quarter = row % 4;
    const uint8_t* ql = block.ql + half * 64 + quarter % 2 * 32;
    const uint8_t* qh = block.qh + half * 32;
    const int low_shift = quarter < 2 ? 0 : 4;
    const int high_shift = static_cast<int>(quarter) * 2;
    for (size_t j = 0; j < 32; ++j) {
      const int quant = (((ql[j] >> low_shift) & 15) | (((qh[j] >> high_shift) & 3) << 4)) - 32;
      const float scale = d * static_cast<float>(block.scales[row * 2 + j / 16]);
      out[row * 32 + j] = scale * static_cast<float>(quant);
    }
  }
}

void DecodeQ8_K(const BlockQ8_K& block, float* out) {
  const float d = std::bit_cast<float>(LoadU32(block.d));
  for (size_t j = 0; j < kSuperBlock; ++j) out[j] = d * static_cast<float>(block.qs[j]);
}

void DecodeTable(const int8_t (&values)[16], float d, const uint8_t* qs, float* out) {
  for (size_t j = 0; j < kBlock / 2; ++j) {
    out[j] = d * static_cast<float>(values[qs[j] & 15]);
    out[j + kBlock / 2] = d * static_cast<float>(values[qs[j] >> 4]);
  }
}

void DecodeIQ4_NL(const BlockIQ4_NL& block, float* out) { DecodeTable(kIq4Values, block.d.value(), block.qs, out); }

void DecodeIQ4_XS(const BlockIQ4_XS& block, float* out) {
  const float d = block.d.value();
  const int scales_h = block.scales_h[0] | (block.scales_h[1] << 8);
  for (size_t group = 0; group < 8; ++group) {
    const int low = (block.scales_l[group / 2] >> (group % 2 * 4)) & 15;
    const int high = (scales_h >> (group * 2)) & 3;
    const float scale = d * static_cast<float>((low | (high << 4)) - 32);
    DecodeTable(kIq4Values, scale, block.qs + group * 16, out + group * 32);
  }
}

// 2^(e - 128), half of the E8M0 scale since the table's values are doubled; the two smallest are subnormal.
float HalfOfE8M0(uint8_t e) {
  const uint32_t exponent = e;
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

void DecodeMXFP4(const BlockMXFP4& block, float* out) { DecodeTable(kMxfp4Values, HalfOfE8M0(block.e), block.qs, out); }

// Five ternary digits a byte, scaled so that multiplying by powers of three brings each to the top of the byte.
float TernaryDigit(uint8_t packed, uint32_t power) {
  const uint32_t shifted = (packed * power) & 255u;
  return static_cast<float>(static_cast<int>((shifted * 3) >> 8) - 1);
}

void DecodeTQ1_0(const BlockTQ1_0& block, float* out) {
  static constexpr uint32_t kPowers[5] = {1, 3, 9, 27, 81};
  const float d = block.d.value();
  for (const uint32_t power : kPowers) {
    for (size_t j = 0; j < 32; ++j) *out++ = TernaryDigit(block.qs[j], power) * d;
  }
  for (const uint32_t power : kPowers) {
    for (size_t j = 32; j < 48; ++j) *out++ = TernaryDigit(block.qs[j], power) * d;
  }
  for (size_t digit = 0; digit < 4; ++digit) {
    for (size_t j = 0; j < 4; ++j) *out++ = TernaryDigit(block.qh[j], kPowers[digit]) * d;
  }
}

void DecodeTQ2_0(const BlockTQ2_0& block, float* out) {
  const float d = block.d.value();
  for (size_t row = 0; row < 8; ++row) {
    const uint8_t* qs = block.qs + row / 4 * 32;
    const int shift = static_cast<int>(row % 4) * 2;
    for (size_t j = 0; j < 32; ++j) out[row * 32 + j] = static_cast<float>(((qs[j] >> shift) & 3) - 1) * d;
  }
}

#define LINNET_GGML_TYPE(number, type, values) \
  { number, #type, values, sizeof(Block##type), DecodeAll<Block##type, values, Decode##type> }

constexpr GgmlType kTypes[] = {
    {kGgmlF32, "F32", 1, 4, DecodeF32},
    {kGgmlF16, "F16", 1, 2, Decode16<F32FromF16>},
    LINNET_GGML_TYPE(kGgmlQ4_0, Q4_0, 32),
    LINNET_GGML_TYPE(kGgmlQ4_1, Q4_1, 32),
    LINNET_GGML_TYPE(kGgmlQ5_0, Q5_0, 32),
    LINNET_GGML_TYPE(kGgmlQ5_1, Q5_1, 32),
    LINNET_GGML_TYPE(kGgmlQ8_0, Q8_0, 32),
    LINNET_GGML_TYPE(kGgmlQ2_K, Q2_K, 256),
    LINNET_GGML_TYPE(kGgmlQ3_K, Q3_K, 256),
    LINNET_GGML_TYPE(kGgmlQ4_K, Q4_K, 256),
    LINNET_GGML_TYPE(kGgmlQ5_K, Q5_K, 256),
    LINNET_GGML_TYPE(kGgmlQ6_K, Q6_K, 256),
    LINNET_GGML_TYPE(kGgmlQ8_K, Q8_K, 256),
    LINNET_GGML_TYPE(kGgmlIQ4_NL, IQ4_NL, 32),
    LINNET_GGML_TYPE(kGgmlIQ4_XS, IQ4_XS, 256),
    {kGgmlF64, "F64", 1, 8, DecodeF64},
    {kGgmlBF16, "BF16", 1, 2, Decode16<F32FromBF16>},
    LINNET_GGML_TYPE(kGgmlTQ1_0, TQ1_0, 256),
    LINNET_GGML_TYPE(kGgmlTQ2_0, TQ2_0, 256),
    LINNET_GGML_TYPE(kGgmlMXFP4, MXFP4, 32),
    // Known by name and size, so that a file which uses one is refused by that name.
    {9, "Q8_1", 32, 36, nullptr},
    {16, "IQ2_XXS", 256, 66, nullptr},
    {17, "IQ2_XS", 256, 74, nullptr},
    {18, "IQ3_XXS", 256, 98, nullptr},
    {19, "IQ1_S", 256, 50, nullptr},
    {21, "IQ3_S", 256, 110, nullptr},
    {22, "IQ2_S", 256, 82, nullptr},
    {24, "I8", 1, 1, nullptr},
    {25, "I16", 1, 2, nullptr},
    {26, "I32", 1, 4, nullptr},
    {27, "I64", 1, 8, nullptr},
    {29, "IQ1_M", 256, 56, nullptr},
    {40, "NVFP4", 64, 36, nullptr},
};

#undef LINNET_GGML_TYPE

}  // namespace

const GgmlType* FindGgmlType(uint32_t number) {
  for (const GgmlType& type : kTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

void ReadQ4_0Grid(const std::byte* blocks, size_t n_blocks, uint8_t* levels, float* scales) {
  static_assert(kQ4_0Block == kBlock);
  const auto* block = reinterpret_cast<const BlockQ4_0*>(blocks);
  for (size_t b = 0; b < n_blocks; ++b, levels += kBlock / 2) {
    scales[b] = block[b].d.value();
    // The file's bytes hold values i and i + 16; ours hold values 2 i and 2 i + 1.
    const auto level = [&](size_t i) {
      return i < kBlock / 2 ? block[b].qs[i] & 15 : block[b].qs[i - kBlock / 2] >> 4;
    };
    for (size_t i = 0; i < kBlock; i += 2) levels[i / 2] = static_cast<uint8_t>(level(i) | level(i + 1) << 4);
  }
}

}  // namespace linnet::formats
