// Takes over 4-bit integers that a source has already, without rounding them again.
#ifndef LINNET_FORMATS_QUANTIZE_Q4_GRID_H_
#define LINNET_FORMATS_QUANTIZE_Q4_GRID_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/status.h"
#include "formats/quantize/quantize.h"

namespace linnet::formats {

/// Stores rows of integers as q4, unrotated: the integers are copied, the scales rounded to bf16 (to nearest: with the
/// integers given, no other bf16 is closer to any weight).
/// Shapes: levels [n_blocks * block_size / 2], q + 8 in nibbles as q4 has them; scales [n_blocks], of any sign; `data`
/// and `bf16_scales` as QuantizeRows takes them. A block whose scale is below kMinScale (zeros) becomes a block of
/// zeros. Adds to `sums`. Errors: kInvalidModel, value() is the index of a weight whose scale is not finite or makes
/// weights above kMaxQuantizedMagnitude.
Status StoreQ4Grid(std::span<const uint8_t> levels, std::span<const float> scales, size_t block_size,
                   std::span<std::byte> data, std::span<std::byte> bf16_scales, ErrorSums* sums);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_QUANTIZE_Q4_GRID_H_
