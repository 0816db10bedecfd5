// Public header. The rotation of quantized layers: an orthonormal block Walsh-Hadamard transform.
#ifndef LINNET_OPS_WALSH_HADAMARD_H_
#define LINNET_OPS_WALSH_HADAMARD_H_

#include <cstddef>

#include "ops/rows.h"

namespace linnet::ops {

/// Multiplies every run of `block` neighbouring values by H / sqrt(block), H[i, j] = (-1)^popcount(i & j): natural
/// (Sylvester) order. Part of the file format: a tensor with rotation_block b holds W * R, R this transform of width b.
/// R is symmetric and its own inverse, so the same call rotates weights, activations, and back.
/// Shapes: x and out [n_rows, width]; out may be x itself, no other overlap. block: a power of two >= 1 that divides
/// width. Numerics: block * log2(block) additions in f32, one product at the end; the order is the same on every
/// target, so the results are too.
void WalshHadamard(ConstRows x, size_t n_rows, size_t width, size_t block, Rows out);

/// The largest power of two that divides `width` (> 0): the widest rotation that a layer of this input width can carry.
constexpr size_t LargestRotationBlock(size_t width) { return width & (~width + 1); }

}  // namespace linnet::ops

#endif  // LINNET_OPS_WALSH_HADAMARD_H_
