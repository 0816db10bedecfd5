// Public header. Lookup of embedding rows.
#ifndef LINNET_OPS_EMBEDDING_H_
#define LINNET_OPS_EMBEDDING_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/model_view.h"
#include "ops/rows.h"

namespace linnet::ops {

/// out[t] = scale * row ids[t] of the table, in f32, for every dtype; where table.rotation_block is not 0 the stored
/// row is rotated back first (the rotation is its own inverse). Shapes: table [vocab_size, model_dim], rank 2; ids
/// [n_tokens], each < vocab_size, checked by the caller; out [n_tokens, model_dim].
void EmbeddingLookup(const TensorView& table, std::span<const int32_t> ids, float scale, Rows out);

/// Row `row` of a matrix of any dtype as f32: the stored values (no rotation, no scale). out [table.columns()].
void DequantizeRow(const TensorView& table, size_t row, float* out);

/// x[t] += row (first_row + t) of the learned positions. Shapes: table as above; x [n_tokens, model_dim].
/// first_row + n_tokens <= table.rows(), checked by the caller. The table has no rotation.
void AddPositionRows(const TensorView& table, size_t first_row, size_t n_tokens, Rows x);

}  // namespace linnet::ops

#endif  // LINNET_OPS_EMBEDDING_H_
