#include "ops/second_moments.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/base/checked.h"
#include "ops/product_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/second_moments.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/product_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void AddProductImpl(ConstRows a, ConstRows b, size_t depth, size_t m, size_t n, float factor, Rows out,
                    float* scratch) {
  AddProduct(a, b, depth, m, n, factor, out, scratch);
}

// Rows [first, last) of V^T in the columns [begin, end), which lie left of the diagonal block: from the last row on,
// each is reduced by the rows below it and divided by its pivot.
void SolveColumnsImpl(Rows lower, size_t first, size_t last, size_t begin, size_t end) {
  const TileTag d;
  const size_t lanes = hn::Lanes(d);
  for (size_t j = last; j-- > first;) {
    float* row = lower.row(j);
    const float inverse = 1.0f / row[j];
    size_t i = begin;
    for (; i + lanes <= end; i += lanes) {
      auto value = hn::LoadU(d, row + i);
      for (size_t t = j + 1; t < last; ++t) {
        value = hn::NegMulAdd(hn::Set(d, lower.row(t)[j]), hn::LoadU(d, lower.row(t) + i), value);
      }
      hn::StoreU(hn::Mul(value, hn::Set(d, inverse)), d, row + i);
    }
    for (; i < end; ++i) {
      float value = row[i];
      for (size_t t = j + 1; t < last; ++t) value -= lower.row(t)[j] * lower.row(t)[i];
      row[i] = value * inverse;
    }
  }
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {
namespace {

HWY_EXPORT(AddProductImpl);
HWY_EXPORT(SolveColumnsImpl);

// lower[j, i] = upper[i, j], or back.
void MirrorTriangle(float* matrix, size_t width, bool to_lower, ThreadPool& pool) {
  const size_t n_tiles = CeilDiv(width, kProductTile);
  pool.ParallelFor(n_tiles, [&](size_t tile, size_t) {
    const size_t end = std::min(width, (tile + 1) * kProductTile);
    for (size_t begin = 0; begin < end; begin += kProductTile) {  // tile by tile, so that both sides stay in the cache
      for (size_t j = tile * kProductTile; j < end; ++j) {
        for (size_t i = begin; i < std::min(j, begin + kProductTile); ++i) {
          float &lower = matrix[j * width + i], &upper = matrix[i * width + j];
          (to_lower ? lower : upper) = to_lower ? upper : lower;
        }
      }
    }
  });
}

// Factors the rows and columns [first, last) of the lower triangle in f64. False where a pivot fails.
bool FactorDiagonalBlock(float* matrix, size_t width, size_t first, size_t last) {
  const size_t n = last - first;
  double block[kProductTile * kProductTile];
  for (size_t j = 0; j < n; ++j) {
    for (size_t i = 0; i <= j; ++i) block[j * n + i] = matrix[(first + j) * width + first + i];
  }
  for (size_t j = n; j-- > 0;) {
    const double pivot = block[j * n + j];
    if (!(pivot > 0.0) || !std::isfinite(pivot)) return false;
    const double inverse = 1.0 / std::sqrt(pivot);
    for (size_t i = 0; i <= j; ++i) block[j * n + i] *= inverse;
    for (size_t k = 0; k < j; ++k) {
      for (size_t i = 0; i <= k; ++i) block[k * n + i] -= block[j * n + i] * block[j * n + k];
    }
  }
  for (size_t j = 0; j < n; ++j) {
    for (size_t i = 0; i <= j; ++i) {
      const auto value = static_cast<float>(block[j * n + i]);
      if (!std::isfinite(value) || (i == j && !(value > 0.0f))) return false;
      matrix[(first + j) * width + first + i] = value;
    }
  }
  return true;
}

}  // namespace

size_t SecondMomentsScratchFloats(size_t n_threads) { return n_threads * kProductScratchFloats; }

void AddSecondMoments(ConstRows x, size_t n_rows, size_t width, float* sums, std::span<float> scratch,
                      ThreadPool& pool) {
  LINNET_DCHECK(scratch.size() >= SecondMomentsScratchFloats(pool.n_threads()));
  const size_t n_tiles = CeilDiv(width, kProductTile);
  pool.ParallelFor(n_tiles * n_tiles, [&](size_t index, size_t thread) {
    const size_t i = index / n_tiles * kProductTile, j = index % n_tiles * kProductTile;
    if (j < i) return;
    HWY_DYNAMIC_DISPATCH(AddProductImpl)
    ({x.data + i, x.stride}, {x.data + j, x.stride}, n_rows, std::min(kProductTile, width - i),
     std::min(kProductTile, width - j), 1.0f, {sums + i * width + j, width}, &scratch[thread * kProductScratchFloats]);
  });
}

bool FactorSecondMoments(float* matrix, size_t width, std::span<float> scratch, ThreadPool& pool) {
  LINNET_DCHECK(scratch.size() >= SecondMomentsScratchFloats(pool.n_threads()));
  MirrorTriangle(matrix, width, /*to_lower=*/true, pool);
  // Blocks of rows of V^T from the last one on; each is reduced by all rows below it, then solved.
  for (size_t block = CeilDiv(width, kProductTile); block-- > 0;) {
    const size_t first = block * kProductTile, last = std::min(width, first + kProductTile);
    pool.ParallelFor(block + 1, [&](size_t tile, size_t thread) {
      const size_t begin = tile * kProductTile, n = std::min(kProductTile, width - begin);
      const float* below = matrix + last * width;
      HWY_DYNAMIC_DISPATCH(AddProductImpl)
      ({below + first, width}, {below + begin, width}, width - last, last - first, n, -1.0f,
       {matrix + first * width + begin, width}, &scratch[thread * kProductScratchFloats]);
    });
    if (!FactorDiagonalBlock(matrix, width, first, last)) return false;
    pool.ParallelFor(block, [&](size_t tile, size_t) {
      const size_t begin = tile * kProductTile;
      HWY_DYNAMIC_DISPATCH(SolveColumnsImpl)({matrix, width}, first, last, begin, begin + kProductTile);
    });
  }
  MirrorTriangle(matrix, width, /*to_lower=*/false, pool);
  return true;
}

}  // namespace linnet::ops
#endif
