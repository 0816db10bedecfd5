#include "ops/embedding.h"

#include <cmath>
#include <cstring>

#include "core/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/embedding.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/half-inl.h"
#include "ops/simd-inl.h"
#include "ops/walsh_hadamard-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE void DequantizeF16(const uint16_t* row, size_t n, float* out) {
  const F32Tag d;
  const hn::Rebind<uint16_t, F32Tag> du16;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < n; i += lanes) {
    const size_t count = HWY_MIN(lanes, n - i);
    hn::StoreN(PromoteHalf(d, hn::LoadN(du16, row + i, count)), d, out + i, count);
  }
}

HWY_INLINE void DequantizeBF16(const uint16_t* row, size_t n, float* out) {
  const F32Tag d;
  const hn::Rebind<uint16_t, F32Tag> du16;
  const hn::Rebind<uint32_t, F32Tag> du32;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < n; i += lanes) {
    const size_t count = HWY_MIN(lanes, n - i);
    const auto bits = hn::PromoteTo(du32, hn::LoadN(du16, row + i, count));
    hn::StoreN(hn::BitCast(d, hn::ShiftLeft<16>(bits)), d, out + i, count);
  }
}

HWY_INLINE void DequantizeQ8(const int8_t* row, size_t n, float scale, float* out) {
  const F32Tag d;
  const hn::Rebind<int8_t, F32Tag> di8;
  const hn::Rebind<int32_t, F32Tag> di32;
  const size_t lanes = hn::Lanes(d);
  const F32Vec factor = hn::Set(d, scale);
  for (size_t i = 0; i < n; i += lanes) {
    const size_t count = HWY_MIN(lanes, n - i);
    const auto values = hn::PromoteTo(di32, hn::LoadN(di8, row + i, count));
    hn::StoreN(hn::Mul(hn::ConvertTo(d, values), factor), d, out + i, count);
  }
}

HWY_INLINE float ScaleFromBF16(const uint16_t* scale) {
  const uint32_t bits = static_cast<uint32_t>(*scale) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// One block after another; a byte holds weights 2i (low nibble) and 2i + 1, each stored as q + 8.
HWY_INLINE void DequantizeQ4(const uint8_t* row, size_t n, size_t block, const uint16_t* scales, float* out) {
  const hn::CappedTag<float, 16> d;  // the smallest block is 32 weights, 16 bytes: whole vectors on every target
  const hn::Rebind<uint8_t, decltype(d)> du8;
  const hn::Rebind<int32_t, decltype(d)> di32;
  const size_t lanes = hn::Lanes(d);
  const auto low_nibble = hn::Set(di32, 15), eight = hn::Set(di32, 8);
  for (size_t begin = 0; begin < n; begin += block) {
    const auto factor = hn::Set(d, ScaleFromBF16(scales + begin / block));
    for (size_t i = 0; i < block / 2; i += lanes) {
      const auto bytes = hn::PromoteTo(di32, hn::LoadU(du8, row + begin / 2 + i));
      const auto even = hn::ConvertTo(d, hn::Sub(hn::And(bytes, low_nibble), eight));
      const auto odd = hn::ConvertTo(d, hn::Sub(hn::ShiftRight<4>(bytes), eight));
      hn::StoreInterleaved2(hn::Mul(even, factor), hn::Mul(odd, factor), d, out + begin + 2 * i);
    }
  }
}

/// Values [begin, begin + count) of a row; for q4 both are multiples of the block size.
HWY_INLINE void DequantizePart(const TensorView& table, size_t row, size_t begin, size_t count, float* out) {
  const size_t width = table.columns(), first = row * width + begin;
  const std::byte* data = table.data.data();
  switch (table.dtype) {
    case DType::kF32:
      std::memcpy(out, table.f32() + first, count * sizeof(float));
      return;
    case DType::kF16:
      return DequantizeF16(reinterpret_cast<const uint16_t*>(data) + first, count, out);
    case DType::kBF16:
      return DequantizeBF16(reinterpret_cast<const uint16_t*>(data) + first, count, out);
    case DType::kQ8: {
      const float scale = reinterpret_cast<const float*>(table.scales.data())[row];
      return DequantizeQ8(reinterpret_cast<const int8_t*>(data) + first, count, scale, out);
    }
    case DType::kQ4: {
      const uint16_t* scales = reinterpret_cast<const uint16_t*>(table.scales.data()) + first / table.block_size;
      return DequantizeQ4(reinterpret_cast<const uint8_t*>(data) + first / 2, count, table.block_size, scales, out);
    }
  }
}

void DequantizeRowImpl(const TensorView& table, size_t row, float* out) {
  DequantizePart(table, row, 0, table.columns(), out);
}

void EmbeddingLookupImpl(const TensorView& table, std::span<const int32_t> ids, float scale, Rows out) {
  const size_t width = table.columns(), block = table.rotation_block;
  const float rotation_scale = block == 0 ? 1.0f : 1.0f / std::sqrt(static_cast<float>(block));
  const F32Vec factor = hn::Set(F32Tag(), scale);
  for (size_t t = 0; t < ids.size(); ++t) {
    float* row = out.row(t);
    DequantizePart(table, static_cast<size_t>(ids[t]), 0, width, row);
    if (block != 0) WalshHadamardRow(row, width, block, rotation_scale, row);
    if (scale != 1.0f) MapRow(row, width, row, [&](F32Vec v) HWY_ATTR { return hn::Mul(v, factor); });
  }
}

/// In pieces through the stack, so that no scratch is needed.
void AddPositionRowsImpl(const TensorView& table, size_t first_row, size_t n_tokens, Rows x) {
  constexpr size_t kPiece = 256;  // a multiple of every q4 block size
  float piece[kPiece];
  const size_t width = table.columns();
  for (size_t t = 0; t < n_tokens; ++t) {
    for (size_t begin = 0; begin < width; begin += kPiece) {
      const size_t count = HWY_MIN(kPiece, width - begin);
      DequantizePart(table, first_row + t, begin, count, piece);
      float* target = x.row(t) + begin;
      MapRows(target, piece, count, target, [](F32Vec a, F32Vec b) HWY_ATTR { return hn::Add(a, b); });
    }
  }
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {

HWY_EXPORT(DequantizeRowImpl);
HWY_EXPORT(EmbeddingLookupImpl);
HWY_EXPORT(AddPositionRowsImpl);

void DequantizeRow(const TensorView& table, size_t row, float* out) {
  LINNET_DCHECK(row < table.groups() * table.rows());
  HWY_DYNAMIC_DISPATCH(DequantizeRowImpl)(table, row, out);
}

void EmbeddingLookup(const TensorView& table, std::span<const int32_t> ids, float scale, Rows out) {
  HWY_DYNAMIC_DISPATCH(EmbeddingLookupImpl)(table, ids, scale, out);
}

void AddPositionRows(const TensorView& table, size_t first_row, size_t n_tokens, Rows x) {
  LINNET_DCHECK(table.rotation_block == 0 && first_row + n_tokens <= table.rows());
  HWY_DYNAMIC_DISPATCH(AddPositionRowsImpl)(table, first_row, n_tokens, x);
}

}  // namespace linnet::ops
#endif
