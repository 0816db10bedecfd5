// Matrix products of int8 rows and 4-bit weights by this project's own kernel, for x86 CPUs from AVX2 on.
#ifndef LINNET_OPS_Q4_PRODUCT_H_
#define LINNET_OPS_Q4_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/status.h"
#include "ops/quantize_activations.h"

namespace linnet::ops {

/// A [n, k] matrix of 4-bit weights with one scale per block of block_size weights along k. k is a multiple of the
/// block, the block one of 32.
struct Q4Shape {
  size_t n = 0, k = 0;
  size_t block_size = 0;
};

/// Outputs of one strip: the unit of packing and of work.
inline constexpr size_t kQ4StripOutputs = 32;

/// Whether this CPU runs the kernel. Masking the CPU down (hwy::DisableTargets) counts.
bool HasQ4Product();

/// The kernel's form on this CPU: rows and outputs at once, and names for reports ("q4_product_4x32__avx3_dl").
struct Q4Tile {
  const char* name = "";
  const char* one_row_name = "";
  uint32_t rows = 0, outputs = 0;
};
/// Only where HasQ4Product().
Q4Tile ChosenQ4Tile();

/// Bytes of one strip, a multiple of 64: sums and bias of its outputs, weights, scales.
inline size_t Q4StripBytes(const Q4Shape& shape) {
  const size_t per_output = 2 * sizeof(float) + shape.k / 2 + shape.k / shape.block_size * sizeof(uint16_t);
  return kQ4StripOutputs * per_output;
}
inline size_t Q4StripCount(const Q4Shape& shape) { return (shape.n + kQ4StripOutputs - 1) / kQ4StripOutputs; }

/// Bytes of the packed matrix, a multiple of 64. Errors: kInvalidModel where they do not fit 64 bits.
Result<uint64_t> Q4PackedBytes(const Q4Shape& shape);

/// Packs `data` [n, k / 2] (a byte holds weights 2i, in its low nibble, and 2i + 1, each stored as q + 8) with `scales`
/// [n, k / block_size] in bf16 and `bias` [n] or null into `packed` (Q4PackedBytes long, aligned to 64).
/// Errors: kInvalidModel where a scale, or a sixteenth of it, is not a normal number (it may be negative): value() is
/// its index.
Status PackQ4(const Q4Shape& shape, const uint8_t* data, const uint16_t* scales, const float* bias,
              std::span<std::byte> packed);

struct Q4ProductArgs {
  Q4Shape shape;
  const std::byte* packed = nullptr;
  const int8_t* x = nullptr;              // [n_rows, k]
  const RowQuantization* rows = nullptr;  // [n_rows]
  size_t n_rows = 0;
  float* out = nullptr;  // [n_rows, n]
};

/// out[m, j] = sum over blocks b of scale[j, b] * sum over k in b of q[j, k] * (x[m, k] - zero_point[m]), times the
/// row's scale, plus bias[j], for the outputs j of strips [first_strip, first_strip + n_strips).
/// Numerics: sums within a block are exact integers, blocks are added in order in f32. An output's bits depend on
/// neither n_rows nor the strips of the call. A row whose scale is NaN gives NaN.
void Q4ProductStrips(const Q4ProductArgs& args, size_t first_strip, size_t n_strips);

}  // namespace linnet::ops

#endif  // LINNET_OPS_Q4_PRODUCT_H_
