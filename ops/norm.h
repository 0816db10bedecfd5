// Public header. RMSNorm and LayerNorm of rows.
#ifndef LINNET_OPS_NORM_H_
#define LINNET_OPS_NORM_H_

#include <cstddef>

#include "ops/rows.h"

namespace linnet::ops {

/// What a normalization multiplies and adds. The factor of element i of row r is
/// gain[r * gain_stride + i] (+ 1 where gain_plus_one), 1 without a gain; the addend likewise, 0 without a bias.
struct NormParams {
  float eps = 0.0f;             // > 0; the model file's
  const float* gain = nullptr;  // [width], or [n_rows, width] with gain_stride
  const float* bias = nullptr;  // laid out as gain
  size_t gain_stride = 0;       // elements; 0: one gain for all rows (else: QK-norm with a gain per head)
  bool gain_plus_one = false;
};

/// out[i] = factor[i] * (x[i] / sqrt(mean(x * x) + eps)) + addend[i] for each row.
/// Shapes: x and out [n_rows, width]; out may be x itself, no other overlap.
/// Numerics: f32 sums in an order that depends on the width only. Source: arXiv:1910.07467.
void RmsNorm(ConstRows x, size_t n_rows, size_t width, const NormParams& params, Rows out);

/// out[i] = factor[i] * ((x[i] - mean) / sqrt(variance + eps)) + addend[i] for each row, variance = mean((x - mean)^2).
/// Shapes, aliasing as RmsNorm. Numerics: f32, in two passes (mean, then squared differences). Source:
/// arXiv:1607.06450.
void LayerNorm(ConstRows x, size_t n_rows, size_t width, const NormParams& params, Rows out);

}  // namespace linnet::ops

#endif  // LINNET_OPS_NORM_H_
