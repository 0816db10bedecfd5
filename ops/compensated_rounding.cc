#include "ops/compensated_rounding.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/compensated_rounding.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/product_tile-inl.h"

#ifndef LINNET_OPS_COMPENSATED_ROUNDING_CONSTANTS_
#define LINNET_OPS_COMPENSATED_ROUNDING_CONSTANTS_
namespace linnet::ops {

constexpr size_t kMaxRoundingBlock = 128;

// Columns of a block of a triangle: what lies on the diagonal is small beside the rectangle above it.
constexpr size_t kTriangleBlock = 32;

// A tile's scratch, cut up. Everything is [block, rows] unless said otherwise.
struct RoundingScratch {
  float* weights;  // the weights themselves
  float* moved;    // weights moved by it
  float* errors;   // of the attempt
  float* inside;   // [block, block]: row j holds V[i, j] / V[j, j] for i < j of the block
  float* pivots;   // [block]: V[j, j]
  float* product;  // kProductScratchFloats
};

}  // namespace linnet::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using RoundTag = hn::CappedTag<float, 16>;
using RoundVec = hn::Vec<RoundTag>;
// Vectors of rows that go through a block together: enough chains to hide the latency of a multiply-add. They are
// named one by one, since vectors of unknown length cannot stand in arrays.
constexpr size_t kChains = 4;

// To nearest even, as bf16 stores it; for finite values.
HWY_INLINE RoundVec RoundToBf16(RoundVec value) {
  const RoundTag d;
  const hn::RebindToUnsigned<RoundTag> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  return hn::BitCast(d, hn::And(rounded, hn::Set(du, 0xffff0000u)));
}

// Rounds one vector of moved weights: stores its errors and, where wanted, its levels; adds to the weighted error.
HWY_INLINE RoundVec RoundVector(const RoundingProblem& problem, const RoundingScratch& scratch, size_t place,
                                RoundVec value, RoundVec scale, RoundVec inverse, RoundVec pivot, RoundVec error,
                                int8_t* levels) {
  const RoundTag d;
  const auto scaled = hn::Mul(value, inverse);
  const auto level = hn::Round(hn::Min(hn::Set(d, problem.high), hn::Max(hn::Set(d, problem.low), scaled)));
  const auto missed = hn::Mul(pivot, hn::NegMulAdd(level, scale, value));
  const auto weight = hn::LoadU(d, scratch.weights + place);
  hn::StoreU(hn::NegMulAdd(level, scale, weight), d, scratch.errors + place);
  if (levels != nullptr) {
    const hn::Rebind<int8_t, RoundTag> d8;
    hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(hn::RebindToSigned<RoundTag>(), level)), d8, levels + place);
  }
  return hn::MulAdd(missed, missed, error);
}

// Rounds columns [0, n) of a block for kChains vectors of rows from `row` on with the scales [rows]: their errors e,
// and in `shares` [rows] the block's share of the weighted error.
HWY_INLINE void TryScales(const RoundingProblem& problem, const RoundingScratch& scratch, size_t n, size_t row,
                          const float* scales, float* shares, int8_t* levels) {
  const RoundTag d;
  const size_t lanes = hn::Lanes(d);
  const size_t r0 = row, r1 = row + lanes, r2 = row + 2 * lanes, r3 = row + 3 * lanes;
  const auto scale0 = hn::LoadU(d, scales + r0), scale1 = hn::LoadU(d, scales + r1);
  const auto scale2 = hn::LoadU(d, scales + r2), scale3 = hn::LoadU(d, scales + r3);
  const auto one = hn::Set(d, 1.0f);
  const auto inverse0 = hn::Div(one, scale0), inverse1 = hn::Div(one, scale1);
  const auto inverse2 = hn::Div(one, scale2), inverse3 = hn::Div(one, scale3);
  auto share0 = hn::Zero(d), share1 = share0, share2 = share0, share3 = share0;
  for (size_t j = 0; j < n; ++j) {
    const float* moved = scratch.moved + j * kRoundingRows;
    auto value0 = hn::LoadU(d, moved + r0), value1 = hn::LoadU(d, moved + r1);
    auto value2 = hn::LoadU(d, moved + r2), value3 = hn::LoadU(d, moved + r3);
    const float* inside = scratch.inside + j * problem.block;
    for (size_t i = 0; i < j; ++i) {
      const auto factor = hn::Set(d, inside[i]);
      const float* errors = scratch.errors + i * kRoundingRows;
      value0 = hn::MulAdd(hn::LoadU(d, errors + r0), factor, value0);
      value1 = hn::MulAdd(hn::LoadU(d, errors + r1), factor, value1);
      value2 = hn::MulAdd(hn::LoadU(d, errors + r2), factor, value2);
      value3 = hn::MulAdd(hn::LoadU(d, errors + r3), factor, value3);
    }
    const auto pivot = hn::Set(d, scratch.pivots[j]);
    const size_t place = j * kRoundingRows;
    share0 = RoundVector(problem, scratch, place + r0, value0, scale0, inverse0, pivot, share0, levels);
    share1 = RoundVector(problem, scratch, place + r1, value1, scale1, inverse1, pivot, share1, levels);
    share2 = RoundVector(problem, scratch, place + r2, value2, scale2, inverse2, pivot, share2, levels);
    share3 = RoundVector(problem, scratch, place + r3, value3, scale3, inverse3, pivot, share3, levels);
  }
  hn::StoreU(share0, d, shares + r0);
  hn::StoreU(share1, d, shares + r1);
  hn::StoreU(share2, d, shares + r2);
  hn::StoreU(share3, d, shares + r3);
}

// What a search has found for each row.
struct ScaleSearch {
  float largest[kRoundingRows];  // the moved weight of largest magnitude, negated
  float tried[kRoundingRows], shares[kRoundingRows];
  float best[kRoundingRows], least[kRoundingRows];
};

HWY_INLINE void KeepBetter(size_t row, ScaleSearch* search) {
  const RoundTag d;
  for (size_t r = row; r < row + kChains * hn::Lanes(d); r += hn::Lanes(d)) {
    const auto share = hn::LoadU(d, search->shares + r), least = hn::LoadU(d, search->least + r);
    const auto better = hn::Lt(share, least);
    hn::StoreU(hn::IfThenElse(better, share, least), d, search->least + r);
    const auto scale = hn::IfThenElse(better, hn::LoadU(d, search->tried + r), hn::LoadU(d, search->best + r));
    hn::StoreU(scale, d, search->best + r);
  }
}

// The best of the tried scales for kChains vectors of rows.
HWY_INLINE void SearchScales(const RoundingProblem& problem, const RoundingScratch& scratch, size_t row,
                             ScaleSearch* search) {
  const RoundTag d;
  const size_t lanes = hn::Lanes(d), end = row + kChains * lanes;
  const auto smallest = hn::Set(d, problem.min_scale);
  for (size_t r = row; r < end; r += lanes) {
    auto high = hn::Zero(d), low = high;
    for (size_t j = 0; j < problem.block; ++j) {
      const auto moved = hn::LoadU(d, scratch.moved + j * kRoundingRows + r);
      high = hn::Max(high, moved);
      low = hn::Min(low, moved);
    }
    const auto largest = hn::IfThenElse(hn::Gt(high, hn::Neg(low)), high, low);
    hn::StoreU(hn::Sub(hn::Zero(d), largest), d, search->largest + r);
    hn::StoreU(hn::Set(d, hwy::HighestValue<float>()), d, search->least + r);
    hn::StoreU(smallest, d, search->best + r);
  }
  for (const float divisor : kScaleDivisors) {
    const auto factor = hn::Set(d, 1.0f / divisor);
    for (size_t r = row; r < end; r += lanes) {
      const auto scale = RoundToBf16(hn::Mul(hn::LoadU(d, search->largest + r), factor));
      hn::StoreU(hn::CopySign(hn::Max(smallest, hn::Abs(scale)), scale), d, search->tried + r);
    }
    TryScales(problem, scratch, problem.block, row, search->tried, search->shares, nullptr);
    KeepBetter(row, search);
  }
}

// Fills the scratch for the block of n columns from `first` on.
HWY_INLINE void PrepareBlock(const RoundingProblem& problem, const RoundingTile& tile, const RoundingScratch& scratch,
                             size_t first, size_t n) {
  const RoundTag d;
  const size_t lanes = hn::Lanes(d);
  const ConstRows factor = {problem.factor, problem.width};
  std::fill_n(scratch.moved, n * kRoundingRows, 0.0f);
  for (size_t begin = 0; begin < n; begin += kProductTile) {
    AddProduct({problem.factor + first + begin, problem.width}, {tile.errors, kRoundingRows}, first,
               HWY_MIN(kProductTile, n - begin), kRoundingRows, 1.0f,
               {scratch.moved + begin * kRoundingRows, kRoundingRows}, scratch.product);
  }
  for (size_t j = 0; j < n; ++j) {
    const float pivot = factor.row(first + j)[first + j], inverse = 1.0f / pivot;
    scratch.pivots[j] = pivot;
    for (size_t i = 0; i < j; ++i) {
      scratch.inside[j * problem.block + i] = factor.row(first + i)[first + j] * inverse;
    }
    const float* weights = tile.weights + (first + j) * kRoundingRows;
    for (size_t r = 0; r < kRoundingRows; r += lanes) {
      const size_t place = j * kRoundingRows + r;
      const auto weight = hn::LoadU(d, weights + r);
      hn::StoreU(weight, d, scratch.weights + place);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, scratch.moved + place), hn::Set(d, inverse), weight), d,
                 scratch.moved + place);
    }
  }
}

// Rounds one block; returns its share of the weighted error.
HWY_INLINE double RoundBlock(const RoundingProblem& problem, const RoundingTile& tile, const RoundingScratch& scratch,
                             size_t first, size_t n) {
  const RoundTag d;
  ScaleSearch search;
  float* scales = tile.scales + (problem.search_scales ? first / problem.block * kRoundingRows : 0);
  for (size_t row = 0; row < kRoundingRows; row += kChains * hn::Lanes(d)) {
    if (problem.search_scales) {
      SearchScales(problem, scratch, row, &search);
      std::copy_n(search.best + row, kChains * hn::Lanes(d), scales + row);
    }
    TryScales(problem, scratch, n, row, scales, search.shares, tile.levels + first * kRoundingRows);
  }
  std::copy_n(scratch.errors, n * kRoundingRows, tile.errors + first * kRoundingRows);
  double error = 0.0;
  for (const float share : search.shares) error += share;
  return error;
}

// Sum over rows of |x V|^2 = x H x^T for the tile's weights x, block of columns after block.
double TileEnergyImpl(const RoundingProblem& problem, const RoundingTile& tile, const RoundingScratch& scratch) {
  const float* const x = tile.weights;
  double energy = 0.0;
  for (size_t first = 0; first < problem.width; first += kTriangleBlock) {
    const size_t n = HWY_MIN(kTriangleBlock, problem.width - first);
    std::fill_n(scratch.moved, n * kRoundingRows, 0.0f);
    // The rectangle above the block and the triangle in it: below the diagonal stands V^T, which is left out.
    AddProduct({problem.factor + first, problem.width}, {x, kRoundingRows}, first, n, kRoundingRows, 1.0f,
               {scratch.moved, kRoundingRows}, scratch.product);
    for (size_t j = 0; j < n; ++j) {
      float* sums = scratch.moved + j * kRoundingRows;
      for (size_t i = first; i <= first + j; ++i) {
        const float factor = problem.factor[i * problem.width + first + j];
        for (size_t r = 0; r < kRoundingRows; ++r) sums[r] += x[i * kRoundingRows + r] * factor;
      }
      float energies = 0.0f;
      for (size_t r = 0; r < kRoundingRows; ++r) energies += sums[r] * sums[r];
      energy += energies;
    }
  }
  return energy;
}

double RoundTileImpl(const RoundingProblem& problem, const RoundingTile& tile, const RoundingScratch& scratch) {
  double error = 0.0;
  for (size_t first = 0; first < problem.width; first += problem.block) {
    const size_t n = HWY_MIN(problem.block, problem.width - first);
    PrepareBlock(problem, tile, scratch, first, n);
    error += RoundBlock(problem, tile, scratch, first, n);
  }
  return error;
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {
namespace {

HWY_EXPORT(RoundTileImpl);
HWY_EXPORT(TileEnergyImpl);

RoundingScratch CutScratch(float* memory) {
  RoundingScratch scratch = {};
  constexpr size_t kRowsBytes = kMaxRoundingBlock * kRoundingRows;
  scratch.weights = memory;
  scratch.moved = scratch.weights + kRowsBytes;
  scratch.errors = scratch.moved + kRowsBytes;
  scratch.inside = scratch.errors + kRowsBytes;
  scratch.pivots = scratch.inside + kMaxRoundingBlock * kMaxRoundingBlock;
  scratch.product = scratch.pivots + kMaxRoundingBlock;
  return scratch;
}

}  // namespace

size_t RoundingScratchFloats() {
  return 3 * kMaxRoundingBlock * kRoundingRows + kMaxRoundingBlock * kMaxRoundingBlock + kMaxRoundingBlock +
         kProductScratchFloats;
}

double RoundTile(const RoundingProblem& problem, const RoundingTile& tile) {
  return HWY_DYNAMIC_DISPATCH(RoundTileImpl)(problem, tile, CutScratch(tile.scratch));
}

double TileEnergy(const RoundingProblem& problem, const RoundingTile& tile) {
  return HWY_DYNAMIC_DISPATCH(TileEnergyImpl)(problem, tile, CutScratch(tile.scratch));
}

}  // namespace linnet::ops
#endif
