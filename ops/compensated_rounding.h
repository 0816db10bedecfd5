// Public header. Rounds rows of weights to levels such that later weights make up for the errors of earlier ones.
#ifndef LINNET_OPS_COMPENSATED_ROUNDING_H_
#define LINNET_OPS_COMPENSATED_ROUNDING_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/product_tile.h"

namespace linnet::ops {

/// Rows that are rounded together: they are independent, and lie side by side in vectors.
constexpr size_t kRoundingRows = 64;

/// Scales of q4 that are tried for a block, here and in rounding to nearest: its weight of largest magnitude divided by
/// each, negated, which puts that weight on the side of the lowest level, -8, rather than of 7. 7 and 8 reproduce grids
/// that came from 4 bits; smaller scales clip the largest weight and round the others finer.
/// formats/quantize/README.md has the measurement.
constexpr std::array<float, 13> kScaleDivisors = {6.5f,  6.75f, 7.0f,  7.25f, 7.5f, 7.75f, 8.0f,
                                                  8.25f, 8.5f,  8.75f, 9.0f,  9.5f, 10.0f};

/// What all rows of a matrix share.
struct RoundingProblem {
  const float* factor = nullptr;  // V [width, width] as FactorSecondMoments leaves it: H = V V^T, V in the upper half
  size_t width = 0;
  size_t block = 0;           // weights that share a scale, at most 128; divides the width where scales are searched
  bool search_scales = true;  // a bf16 scale for every block, of several tried; else one given f32 scale a row
  float low = -8.0f, high = 7.0f;  // levels
  float min_scale = 0.0f;          // no searched scale is nearer to zero; > 0. Searched scales have either sign
};

/// One tile of kRoundingRows rows, transposed: weight k of row r at [k * kRoundingRows + r].
struct RoundingTile {
  const float* weights = nullptr;  // [width, rows]
  float* errors = nullptr;         // [width, rows], written: weight - level * scale
  int8_t* levels = nullptr;        // [width, rows], written
  float* scales = nullptr;         // [width / block, rows], written; [rows], read, where scales are given
  float* scratch = nullptr;        // RoundingScratchFloats()
};

size_t RoundingScratchFloats();

/// Rounds a tile. The error that counts is e H e^T for a row's errors e: the mean squared error of the layer's output
/// for inputs with second moments H. Weights are rounded in order; each is first moved by what the errors of those
/// before it ask for, sum over i < j of e[i] * V[i, j] / V[j, j], after which the row's error is exactly
/// sum over j of (V[j, j] * (moved weight - rounded weight))^2. This is GPTQ (arXiv:2210.17323) in the form of
/// arXiv:2307.13304 (LDLQ), which needs no inverse. A block's scale is the one of the tried scales with the smallest
/// share of that sum. Returns the sum over all rows. Numerics: f32 with f64 sums over blocks; the bits of a row do not
/// depend on the other rows.
double RoundTile(const RoundingProblem& problem, const RoundingTile& tile);

/// Sum over rows of w H w^T: what RoundTile's result is to be compared with.
double TileEnergy(const RoundingProblem& problem, const RoundingTile& tile);

}  // namespace linnet::ops

#endif  // LINNET_OPS_COMPENSATED_ROUNDING_H_
