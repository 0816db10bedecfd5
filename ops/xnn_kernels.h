// Which kernels of matrix products run on this CPU, by name: XNNPACK's and our own.
#ifndef LINNET_OPS_XNN_KERNELS_H_
#define LINNET_OPS_XNN_KERNELS_H_

#include <array>
#include <cstdint>

#include "core/base/status.h"

namespace linnet::ops {

/// The kernels of one type of weights. Names are XNNPACK's own without "xnn_", or begin with q4_product
/// (ops/q4_product.h), and tell the tile (rows x columns, then the columns of a column group), and the instruction set.
/// "unknown" where a kernel is not in our list, or where cores of one machine would use different ones, which would
/// make results depend on the core that took a tile.
struct LinearKernels {
  const char* weights;    // "f32" (f16 and bf16 too, which are packed as f32), "q8", "q4"
  const char* one_row;    // decode
  const char* many_rows;  // prefill: tiles of up to tile_rows rows
  uint32_t tile_rows;
  uint32_t tile_columns;
};

/// Chooses as the first matrix product would, and so fixes the choice for this process.
/// Errors: kUnsupported where the CPU lacks what XNNPACK needs; kOutOfMemory.
Result<std::array<LinearKernels, 3>> ChosenLinearKernels();

}  // namespace linnet::ops

#endif  // LINNET_OPS_XNN_KERNELS_H_
