// Rounds rows of f32 weights to the types of the model file.
#ifndef LINNET_FORMATS_QUANTIZE_QUANTIZE_H_
#define LINNET_FORMATS_QUANTIZE_QUANTIZE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/dtype.h"
#include "core/base/status.h"

namespace linnet::formats {

/// What the rows of one tensor become.
struct QuantizeOptions {
  DType dtype = DType::kF32;
  uint32_t block_size = 0;      // kQ4: 32, 64 or 128; divides the width
  uint32_t rotation_block = 0;  // rows are rotated first (ops/walsh_hadamard.h); a power of two that divides the width
};

/// Sums over elements, for relative errors; since the rotation is orthonormal, they are those of the unrotated weights.
struct ErrorSums {
  double squared_error = 0.0;  // of (stored value - weight)
  double squared_weights = 0.0;

  void Add(const ErrorSums& other) {
    squared_error += other.squared_error;
    squared_weights += other.squared_weights;
  }
  /// sqrt(squared_error / squared_weights); 0 where all weights are 0.
  double RelativeRms() const;
};

/// Weights beyond it are refused where they are quantized: sums of squares of a rotated row must stay finite in f32.
constexpr float kMaxQuantizedMagnitude = 0x1p40f;
/// No scale is smaller, so that XNNPACK's checks (positive, normal) hold, also for scale / 16; blocks of zeros carry
/// it.
constexpr float kMinScale = 0x1p-100f;

/// Rounds whole rows; rows are independent, so that parts of a tensor may be done in any order and on any thread.
/// Shapes: rows [n_rows, columns], overwritten where the options rotate; data and scales hold exactly the n_rows' part
/// of what TensorView describes: data n_rows * columns weights, scales f32 [n_rows] (q8) or bf16 [n_rows, columns /
/// block_size] (q4), else empty. `data` and `scales` are aligned for their element types. Adds to `sums`. Errors:
/// kInvalidModel, value() is the index into `rows` of a weight that is not finite, does not fit f16 or bf16, or is
/// above kMaxQuantizedMagnitude. Numerics: to nearest, ties to even; q8: scale = max |w| / 127 of the row, levels -127
/// to 127; q4: levels -8 to 7, the scale as q4.cc chooses it. The same bits on every CPU.
Status QuantizeRows(std::span<float> rows, size_t columns, const QuantizeOptions& options, std::span<std::byte> data,
                    std::span<std::byte> scales, ErrorSums* sums);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_QUANTIZE_QUANTIZE_H_
