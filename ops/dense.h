// Public header. A small f32 matrix product: routers and gates, which are not worth a packed copy.
#ifndef LINNET_OPS_DENSE_H_
#define LINNET_OPS_DENSE_H_

#include <cstddef>

#include "ops/rows.h"

namespace linnet::ops {

struct DenseWeights {
  const float* weights = nullptr;  // [n_outputs, width], without gaps
  const float* bias = nullptr;     // [n_outputs] or null
  size_t n_outputs = 0;
  size_t width = 0;
};

/// out[r, n] = bias[n] + sum_k x[r, k] * weights[n, k].
/// Shapes: x [n_rows, width], out [n_rows, n_outputs], no overlap.
/// Numerics: f32; each output's sum has an order that depends on the width only.
void Dense(ConstRows x, size_t n_rows, const DenseWeights& weights, Rows out);

}  // namespace linnet::ops

#endif  // LINNET_OPS_DENSE_H_
