// Shared by the kernels of calibrated rounding: out += a^T b for a small tile. One copy per instruction set.
#if defined(LINNET_OPS_PRODUCT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_OPS_PRODUCT_TILE_INL_H_
#undef LINNET_OPS_PRODUCT_TILE_INL_H_
#else
#define LINNET_OPS_PRODUCT_TILE_INL_H_
#endif

#include <cstddef>
#include <cstring>

#include "hwy/highway.h"
#include "ops/product_tile.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that two vectors divide every panel that is a multiple of 32 wide.
using TileTag = hn::CappedTag<float, 16>;
// 6 rows times 2 vectors of sums, 2 of b and one of a fit the 16 registers of AVX2.
constexpr size_t kTileLines = 6;

/// Copies [depth, n] into panels [ceil(n / panel), depth, panel], with zeros where the last one is not full.
HWY_INLINE void PackPanels(ConstRows from, size_t depth, size_t n, size_t panel, float* to) {
  for (size_t first = 0; first < n; first += panel) {
    const size_t count = HWY_MIN(panel, n - first);
    for (size_t t = 0; t < depth; ++t, to += panel) {
      std::memcpy(to, from.row(t) + first, count * sizeof(float));
      if (count < panel) std::memset(to + count, 0, (panel - count) * sizeof(float));
    }
  }
}

/// sums [kTileLines, 2 vectors] = a^T b of packed panels.
HWY_INLINE void MultiplyPanels(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t depth,
                               float* HWY_RESTRICT sums) {
  const TileTag d;
  const size_t lanes = hn::Lanes(d);
  auto s00 = hn::Zero(d), s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00;
  auto s30 = s00, s31 = s00, s40 = s00, s41 = s00, s50 = s00, s51 = s00;
  for (size_t t = 0; t < depth; ++t, a += kTileLines, b += 2 * lanes) {
    const auto b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + lanes);
    auto line = hn::Set(d, a[0]);
    s00 = hn::MulAdd(line, b0, s00), s01 = hn::MulAdd(line, b1, s01);
    line = hn::Set(d, a[1]);
    s10 = hn::MulAdd(line, b0, s10), s11 = hn::MulAdd(line, b1, s11);
    line = hn::Set(d, a[2]);
    s20 = hn::MulAdd(line, b0, s20), s21 = hn::MulAdd(line, b1, s21);
    line = hn::Set(d, a[3]);
    s30 = hn::MulAdd(line, b0, s30), s31 = hn::MulAdd(line, b1, s31);
    line = hn::Set(d, a[4]);
    s40 = hn::MulAdd(line, b0, s40), s41 = hn::MulAdd(line, b1, s41);
    line = hn::Set(d, a[5]);
    s50 = hn::MulAdd(line, b0, s50), s51 = hn::MulAdd(line, b1, s51);
  }
  const auto store = [&](size_t i, auto low, auto high) HWY_ATTR {
    hn::StoreU(low, d, sums + 2 * i * lanes);
    hn::StoreU(high, d, sums + (2 * i + 1) * lanes);
  };
  store(0, s00, s01), store(1, s10, s11), store(2, s20, s21);
  store(3, s30, s31), store(4, s40, s41), store(5, s50, s51);
}

/// out[i, j] += factor * sum over t of a[t, i] * b[t, j], i < m <= kProductTile, j < n <= kProductTile.
/// The sum over t is cut into parts of kProductDepth, whatever the vectors' width. scratch: kProductScratchFloats.
HWY_INLINE void AddProduct(ConstRows a, ConstRows b, size_t depth, size_t m, size_t n, float factor, Rows out,
                           float* scratch) {
  const TileTag d;
  const size_t panel = 2 * hn::Lanes(d);
  float* const packed_b = scratch + kProductDepth * kProductTile;
  HWY_ALIGN float sums[kTileLines * 32];
  for (size_t begin = 0; begin < depth; begin += kProductDepth) {
    const size_t part = HWY_MIN(kProductDepth, depth - begin);
    PackPanels({a.row(begin), a.stride}, part, m, kTileLines, scratch);
    PackPanels({b.row(begin), b.stride}, part, n, panel, packed_b);
    for (size_t j = 0; j < n; j += panel) {
      const size_t columns = HWY_MIN(panel, n - j);
      for (size_t i = 0; i < m; i += kTileLines) {
        MultiplyPanels(scratch + i * part, packed_b + j * part, part, sums);
        const size_t lines = HWY_MIN(kTileLines, m - i);
        for (size_t line = 0; line < lines; ++line) {
          float* to = out.row(i + line) + j;
          for (size_t column = 0; column < columns; ++column) to[column] += factor * sums[line * panel + column];
        }
      }
    }
  }
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LINNET_OPS_PRODUCT_TILE_INL_H_
