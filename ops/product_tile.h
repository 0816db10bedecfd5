// Sizes of the tiles that the kernels of calibrated rounding work in (product_tile-inl.h).
#ifndef LINNET_OPS_PRODUCT_TILE_H_
#define LINNET_OPS_PRODUCT_TILE_H_

#include <cstddef>

#include "ops/rows.h"

namespace linnet::ops {

/// Lines and columns of a tile: a multiple of the 6 lines and of the 32 columns that registers hold.
constexpr size_t kProductTile = 96;
/// Terms that are summed in registers before they are added: two packed panels of it are 192 KiB, inside a level-2
/// cache.
constexpr size_t kProductDepth = 256;
/// Floats for the packed panels of one thread, with room for a vector's rest.
constexpr size_t kProductScratchFloats = 2 * kProductDepth * kProductTile + 64;

}  // namespace linnet::ops

#endif  // LINNET_OPS_PRODUCT_TILE_H_
