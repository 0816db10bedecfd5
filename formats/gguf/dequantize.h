// ggml's tensor types: sizes, names, and their values as f32.
#ifndef LINNET_FORMATS_GGUF_DEQUANTIZE_H_
#define LINNET_FORMATS_GGUF_DEQUANTIZE_H_

#include <cstddef>
#include <cstdint>

namespace linnet::formats {

/// The numbers are the file format's; only those that this folder names in code.
enum GgmlTypeNumber : uint32_t {
  kGgmlF32 = 0,
  kGgmlF16 = 1,
  kGgmlQ4_0 = 2,
  kGgmlQ4_1 = 3,
  kGgmlQ5_0 = 6,
  kGgmlQ5_1 = 7,
  kGgmlQ8_0 = 8,
  kGgmlQ2_K = 10,
  kGgmlQ3_K = 11,
  kGgmlQ4_K = 12,
  kGgmlQ5_K = 13,
  kGgmlQ6_K = 14,
  kGgmlQ8_K = 15,
  kGgmlIQ4_NL = 20,
  kGgmlIQ4_XS = 23,
  kGgmlF64 = 28,
  kGgmlBF16 = 30,
  kGgmlTQ1_0 = 34,
  kGgmlTQ2_0 = 35,
  kGgmlMXFP4 = 39,
};

/// Converts `n_blocks` blocks to n_blocks * block_size values. Source and destination do not overlap.
using DequantizeBlocks = void (*)(const std::byte* blocks, size_t n_blocks, float* out);

struct GgmlType {
  uint32_t number;
  const char* name;     // as ggml spells it: "Q4_K"
  uint32_t block_size;  // values of a block, along a row
  uint32_t block_bytes;
  DequantizeBlocks dequantize;  // null: the type is known by name and size only

  double bits_per_weight() const { return 8.0 * block_bytes / block_size; }
};

/// The type of this number, or null. Types without `dequantize` are known so that a file which uses one is refused by
/// its name.
///
/// Numerics of every `dequantize`: f32, in the order of ggml's own conversions (scale times quant, minus minimum,
/// without contraction to fused operations), so the values equal ggml's bit for bit; f64 is rounded once.
/// Source of the block layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
const GgmlType* FindGgmlType(uint32_t number);

constexpr uint32_t kQ4_0Block = 32;
/// Blocks of Q4_0 as they are: levels [n_blocks, 16], two neighbours a byte, the first in the low nibble, each 8 more
/// than the integer; scales [n_blocks], which may be of any sign and may not be finite.
void ReadQ4_0Grid(const std::byte* blocks, size_t n_blocks, uint8_t* levels, float* scales);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_GGUF_DEQUANTIZE_H_
