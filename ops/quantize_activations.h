// Public header. Activations to int8, one scale and zero point a row, as XNNPACK's qd8 products read them.
#ifndef LINNET_OPS_QUANTIZE_ACTIVATIONS_H_
#define LINNET_OPS_QUANTIZE_ACTIVATIONS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/rows.h"

namespace linnet::ops {

/// value = (q - zero_point) * scale. The layout is that of xnn_qd8_quantization_params (whose `inv_scale` it is).
struct RowQuantization {
  int32_t zero_point = 0;
  float scale = 1.0f;
};
static_assert(sizeof(RowQuantization) == 8);

/// XNNPACK's products read this many entries past the last row's; QuantizeRows does not write them.
constexpr size_t kExtraRowQuantizations = 10;

struct QuantizedRows {
  RowsOf<int8_t> values;              // [n_rows, width]
  RowQuantization* params = nullptr;  // [n_rows]
};

struct QuantizeShape {
  size_t n_rows = 0;
  size_t width = 0;           // > 0
  size_t rotation_block = 0;  // 0: none; else a power of two that divides width
};

/// Rotates every row (ops/walsh_hadamard.h) and quantizes it asymmetrically over its range, which always includes 0.
/// Shapes: x [n_rows, width]; scratch at least [width] where rotation_block is not 0, not overlapping x.
/// Numerics: the same zero point, scale and values as XNNPACK's f32 to qd8 conversion, to nearest even. A row with an
/// infinity or NaN gets scale NaN and values 0, so that the products show NaN instead of hiding the fault.
void QuantizeRows(const QuantizeShape& shape, ConstRows x, std::span<float> scratch, const QuantizedRows& out);

}  // namespace linnet::ops

#endif  // LINNET_OPS_QUANTIZE_ACTIVATIONS_H_
