#include "ops/q4_product.h"

#include <cstring>

#include "core/base/check.h"

// Two forms: vpdpbusd where the CPU has it, which other kernels of this library do not want (README.md) and this file
// asks for, and vpmaddubsw from AVX2 on. Below, and on other architectures, XNNPACK multiplies.
#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/q4_product.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLanes = HWY_TARGET == HWY_AVX3_DL ? 16 : 8;  // outputs of one vector; a strip is two or four
constexpr size_t kVector = kLanes * sizeof(uint32_t);          // bytes
constexpr size_t kRowTile =
    4;  // rows at once, by two vectors of outputs: more accumulators would not fit the registers
constexpr uint8_t kSignBit = 0x80;  // an int8 with this bit flipped is the same number plus 128, unsigned

using F32 = hn::FixedTag<float, kLanes>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using U8 = hn::Repartition<uint8_t, F32>;
using I8 = hn::Repartition<int8_t, F32>;

/// Four activations from x on, as unsigned bytes, in every lane.
HWY_INLINE hn::Vec<U8> FourActivations(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof(four));
  return hn::Xor(hn::BitCast(U8(), hn::Set(I32(), four)), hn::Set(U8(), kSignBit));
}

/// The scales as they are stored: sixteenths.
HWY_INLINE hn::Vec<F32> ScalesAt(const uint8_t* bf16) {
  const hn::Rebind<uint16_t, F32> du16;
  const auto bits = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(bf16));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
}

#if HWY_TARGET == HWY_AVX3_DL
/// Rows [row, row + kRows) of one strip. Each vector of weights is unpacked once for all rows; per block there are
/// kRows * 2 independent chains of block_size / 4 products, which is what covers their latency.
template <size_t kRows>
HWY_INLINE void StripTile(const Q4ProductArgs& args, const uint8_t* w, size_t row, size_t first_output) {
  const F32 d;
  const I32 di32;
  const auto high_nibbles = hn::Set(U8(), uint8_t{0xf0});
  const size_t k = args.shape.k, block = args.shape.block_size;
  const int8_t* x = args.x + row * k;
  hn::Vec<F32> sums[kRows][2];
  const auto minus_sum0 = hn::LoadU(d, reinterpret_cast<const float*>(w));
  const auto minus_sum1 = hn::LoadU(d, reinterpret_cast<const float*>(w) + kLanes);
  w += 2 * kVector;
  HWY_UNROLL(4)
  for (size_t r = 0; r < kRows; ++r) {
    const auto offset = hn::Set(d, static_cast<float>(args.rows[row + r].zero_point + 128));
    sums[r][0] = hn::Mul(minus_sum0, offset);
    sums[r][1] = hn::Mul(minus_sum1, offset);
  }
  for (size_t begin = 0; begin < k; begin += block) {
    hn::Vec<I32> acc[kRows][2];
    HWY_UNROLL(4)
    for (size_t r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = hn::Zero(di32);
    for (size_t i = begin; i < begin + block; i += 8, w += 2 * kVector) {
      const auto nibbles0 = hn::LoadU(U8(), w), nibbles1 = hn::LoadU(U8(), w + kVector);
      const auto low = [&](hn::Vec<U8> nibbles) HWY_ATTR {
        const auto shifted = hn::ShiftLeft<4>(hn::BitCast(U32(), nibbles));
        return hn::BitCast(I8(), hn::And(hn::BitCast(U8(), shifted), high_nibbles));
      };
      const auto low0 = low(nibbles0), low1 = low(nibbles1);
      const auto high0 = hn::BitCast(I8(), hn::And(nibbles0, high_nibbles));
      const auto high1 = hn::BitCast(I8(), hn::And(nibbles1, high_nibbles));
      HWY_UNROLL(4)
      for (size_t r = 0; r < kRows; ++r) {
        const auto a = FourActivations(x + r * k + i);
        acc[r][0] = hn::SumOfMulQuadAccumulate(di32, a, low0, acc[r][0]);
        acc[r][1] = hn::SumOfMulQuadAccumulate(di32, a, low1, acc[r][1]);
      }
      HWY_UNROLL(4)
      for (size_t r = 0; r < kRows; ++r) {
        const auto a = FourActivations(x + r * k + i + 4);
        acc[r][0] = hn::SumOfMulQuadAccumulate(di32, a, high0, acc[r][0]);
        acc[r][1] = hn::SumOfMulQuadAccumulate(di32, a, high1, acc[r][1]);
      }
    }
    const auto scale0 = ScalesAt(w), scale1 = ScalesAt(w + kVector / 2);
    w += kVector;
    HWY_UNROLL(4)
    for (size_t r = 0; r < kRows; ++r) {
      sums[r][0] = hn::MulAdd(hn::ConvertTo(d, acc[r][0]), scale0, sums[r][0]);
      sums[r][1] = hn::MulAdd(hn::ConvertTo(d, acc[r][1]), scale1, sums[r][1]);
    }
  }
  const size_t n = HWY_MIN(args.shape.n - first_output, 2 * kLanes);
  const auto bias0 = hn::LoadU(d, reinterpret_cast<const float*>(w));
  const auto bias1 = hn::LoadU(d, reinterpret_cast<const float*>(w) + kLanes);
  HWY_UNROLL(4)
  for (size_t r = 0; r < kRows; ++r) {
    const auto scale = hn::Set(d, args.rows[row + r].scale);
    float* out = args.out + (row + r) * args.shape.n + first_output;
    hn::StoreN(hn::MulAdd(sums[r][0], scale, bias0), d, out, n);
    if (n > kLanes) hn::StoreN(hn::MulAdd(sums[r][1], scale, bias1), d, out + kLanes, n - kLanes);
  }
}

#else  // AVX2, and AVX-512 without VNNI

using I16 = hn::Repartition<int16_t, F32>;

constexpr size_t kSubBlock = 32;  // weights whose products fit 16 bits: 8 pairs of 255 * 8 * 2 are 32640

/// The low nibble of every byte as a number from -8 to 7.
HWY_INLINE hn::Vec<I8> SignedNibbles(hn::Vec<U8> nibbles) {
  alignas(16) static constexpr int8_t kValues[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
  const auto table = hn::LoadDup128(I8(), kValues);
  return hn::TableLookupBytes(table, hn::BitCast(I8(), hn::And(nibbles, hn::Set(U8(), uint8_t{15}))));
}

/// 32 weights of 16 outputs, from w on, times kRows rows: sums in 16 bits, then one widening addition into `acc`.
template <size_t kRows>
HWY_INLINE void SubBlock(const uint8_t* w, const int8_t* x, size_t k, hn::Vec<I32> (&acc)[kRows][2]) {
  const I16 di16;
  hn::Vec<I16> narrow[kRows][2];
  HWY_UNROLL(4)
  for (size_t r = 0; r < kRows; ++r) narrow[r][0] = narrow[r][1] = hn::Zero(di16);
  for (size_t i = 0; i < kSubBlock; i += 8, w += kQ4StripOutputs * sizeof(uint32_t)) {
    const auto nibbles0 = hn::LoadU(U8(), w), nibbles1 = hn::LoadU(U8(), w + kVector);
    const auto low0 = SignedNibbles(nibbles0), low1 = SignedNibbles(nibbles1);
    HWY_UNROLL(4)
    for (size_t r = 0; r < kRows; ++r) {
      const auto a = FourActivations(x + r * k + i);
      narrow[r][0] = hn::Add(narrow[r][0], hn::SatWidenMulPairwiseAdd(di16, a, low0));
      narrow[r][1] = hn::Add(narrow[r][1], hn::SatWidenMulPairwiseAdd(di16, a, low1));
    }
    const auto shifted = [](hn::Vec<U8> v)
                             HWY_ATTR { return hn::BitCast(U8(), hn::ShiftRight<4>(hn::BitCast(U32(), v))); };
    const auto high0 = SignedNibbles(shifted(nibbles0)), high1 = SignedNibbles(shifted(nibbles1));
    HWY_UNROLL(4)
    for (size_t r = 0; r < kRows; ++r) {
      const auto a = FourActivations(x + r * k + i + 4);
      narrow[r][0] = hn::Add(narrow[r][0], hn::SatWidenMulPairwiseAdd(di16, a, high0));
      narrow[r][1] = hn::Add(narrow[r][1], hn::SatWidenMulPairwiseAdd(di16, a, high1));
    }
  }
  const auto one = hn::Set(di16, int16_t{1});
  HWY_UNROLL(4)
  for (size_t r = 0; r < kRows; ++r) {
    acc[r][0] = hn::Add(acc[r][0], hn::WidenMulPairwiseAdd(I32(), narrow[r][0], one));
    acc[r][1] = hn::Add(acc[r][1], hn::WidenMulPairwiseAdd(I32(), narrow[r][1], one));
  }
}

/// Rows [row, row + kRows) of the 16 outputs of a strip from `half` on.
template <size_t kRows>
HWY_INLINE void HalfTile(const Q4ProductArgs& args, const uint8_t* strip, size_t half, size_t row,
                         size_t first_output) {
  const F32 d;
  const size_t k = args.shape.k, block = args.shape.block_size;
  const int8_t* x = args.x + row * k;
  const float* floats = reinterpret_cast<const float*>(strip) + half;
  hn::Vec<F32> sums[kRows][2];
  HWY_UNROLL(4)
  for (size_t r = 0; r < kRows; ++r) {
    const auto offset = hn::Set(d, static_cast<float>(args.rows[row + r].zero_point + 128));
    sums[r][0] = hn::Mul(hn::LoadU(d, floats), offset);
    sums[r][1] = hn::Mul(hn::LoadU(d, floats + kLanes), offset);
  }
  const uint8_t* w = strip + kQ4StripOutputs * sizeof(float);
  for (size_t begin = 0; begin < k; begin += block) {
    hn::Vec<I32> acc[kRows][2];
    HWY_UNROLL(4)
    for (size_t r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = hn::Zero(I32());
    for (size_t i = begin; i < begin + block; i += kSubBlock, w += kQ4StripOutputs * kSubBlock / 2) {
      SubBlock<kRows>(w + half * sizeof(uint32_t), x + i, k, acc);
    }
    const auto sixteen = hn::Set(d, 16.0f);  // the weights here are q, not 16 q
    const auto scale0 = hn::Mul(ScalesAt(w + half * sizeof(uint16_t)), sixteen);
    const auto scale1 = hn::Mul(ScalesAt(w + (half + kLanes) * sizeof(uint16_t)), sixteen);
    w += kQ4StripOutputs * sizeof(uint16_t);
    HWY_UNROLL(4)
    for (size_t r = 0; r < kRows; ++r) {
      sums[r][0] = hn::MulAdd(hn::ConvertTo(d, acc[r][0]), scale0, sums[r][0]);
      sums[r][1] = hn::MulAdd(hn::ConvertTo(d, acc[r][1]), scale1, sums[r][1]);
    }
  }
  if (first_output + half >= args.shape.n) return;
  const size_t n = args.shape.n - first_output - half;
  const float* bias = reinterpret_cast<const float*>(w) + half;
  HWY_UNROLL(4)
  for (size_t r = 0; r < kRows; ++r) {
    const auto scale = hn::Set(d, args.rows[row + r].scale);
    float* out = args.out + (row + r) * args.shape.n + first_output + half;
    hn::StoreN(hn::MulAdd(sums[r][0], scale, hn::LoadU(d, bias)), d, out, HWY_MIN(n, kLanes));
    if (n > kLanes) {
      hn::StoreN(hn::MulAdd(sums[r][1], scale, hn::LoadU(d, bias + kLanes)), d, out + kLanes,
                 HWY_MIN(n - kLanes, kLanes));
    }
  }
}

template <size_t kRows>
HWY_INLINE void StripTile(const Q4ProductArgs& args, const uint8_t* strip, size_t row, size_t first_output) {
  for (size_t half = 0; half < kQ4StripOutputs; half += 2 * kLanes) {
    HalfTile<kRows>(args, strip, half, row, first_output);
  }
}

#endif

void Q4ProductImpl(const Q4ProductArgs& args, size_t first_strip, size_t n_strips) {
  const auto* packed = reinterpret_cast<const uint8_t*>(args.packed);
  const size_t strip_bytes = Q4StripBytes(args.shape);
  // A strip's weights stay in the first cache, or the second, while all rows pass by.
  for (size_t strip = first_strip; strip < first_strip + n_strips; ++strip) {
    const uint8_t* w = packed + strip * strip_bytes;
    const size_t first_output = strip * kQ4StripOutputs;
    size_t row = 0;
    for (; row + kRowTile <= args.n_rows; row += kRowTile) StripTile<kRowTile>(args, w, row, first_output);
    const size_t rest = args.n_rows - row;
    if (rest == 3) StripTile<3>(args, w, row, first_output);
    if (rest == 2) StripTile<2>(args, w, row, first_output);
    if (rest == 1) StripTile<1>(args, w, row, first_output);
  }
}

#else
void Q4ProductImpl(const Q4ProductArgs&, size_t, size_t) {}
#endif
}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {

HWY_EXPORT(Q4ProductImpl);

bool HasQ4Product() { return (hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL)) != 0; }

Q4Tile ChosenQ4Tile() {
  const int64_t targets = hwy::SupportedTargets();
  if ((targets & HWY_AVX3_DL) != 0) return {"q4_product_4x32__avx3_dl", "q4_product_1x32__avx3_dl", 4, 32};
  if ((targets & HWY_AVX3) != 0) return {"q4_product_4x16__avx3", "q4_product_1x16__avx3", 4, 16};
  return {"q4_product_4x16__avx2", "q4_product_1x16__avx2", 4, 16};
}

void Q4ProductStrips(const Q4ProductArgs& args, size_t first_strip, size_t n_strips) {
  LINNET_DCHECK(HasQ4Product());
  HWY_DYNAMIC_DISPATCH(Q4ProductImpl)(args, first_strip, n_strips);
}

}  // namespace linnet::ops
#endif
