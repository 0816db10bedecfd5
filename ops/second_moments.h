// Public header. Second moments of a layer's inputs and their triangular factor: what calibrated rounding goes by.
#ifndef LINNET_OPS_SECOND_MOMENTS_H_
#define LINNET_OPS_SECOND_MOMENTS_H_

#include <cstddef>
#include <span>

#include "ops/rows.h"
#include "ops/thread_pool.h"

namespace linnet::ops {

/// Floats of scratch that both functions take for a pool of n_threads.
size_t SecondMomentsScratchFloats(size_t n_threads);

/// sums[i, j] += sum over rows of x[r, i] * x[r, j] for i <= j: the upper triangle, and parts of the lower one near the
/// diagonal, which mean nothing.
/// Shapes: x [n_rows, width]; sums [width, width] without gaps. Numerics: f32 sums over at most kProductDepth rows,
/// which are then added; the bits do not depend on the threads.
void AddSecondMoments(ConstRows x, size_t n_rows, size_t width, float* sums, std::span<float> scratch,
                      ThreadPool& pool);

/// Replaces the matrix whose upper triangle stands in `matrix` [width, width] by its factors: matrix = V * V^T with V
/// upper triangular, V in the upper triangle and V^T in the lower one. False where a pivot is not positive and finite:
/// the matrix is spoilt then. Numerics: f32, the blocks on the diagonal in f64; the bits do not depend on the threads.
[[nodiscard]] bool FactorSecondMoments(float* matrix, size_t width, std::span<float> scratch, ThreadPool& pool);

}  // namespace linnet::ops

#endif  // LINNET_OPS_SECOND_MOMENTS_H_
