// Public header. Additions and scalings of rows.
#ifndef LINNET_OPS_ELEMENTWISE_H_
#define LINNET_OPS_ELEMENTWISE_H_

#include <cstddef>
#include <cstdint>

#include "ops/rows.h"

namespace linnet::ops {

/// x[r, i] += bias[i].
void AddBias(Rows x, size_t n_rows, size_t width, const float* bias);

/// out[r, i] += x[r, i].
void Accumulate(ConstRows x, size_t n_rows, size_t width, Rows out);

struct ResidualScales {
  float residual = 1.0f;  // multiplies the stream
  float branch = 1.0f;    // multiplies the sub-layer's output
};

/// stream[r, i] = scales.residual * stream[r, i] + scales.branch * branch[r, i].
void ResidualAdd(const ResidualScales& scales, ConstRows branch, size_t n_rows, size_t width, Rows stream);

/// x[r, i] *= factor.
void ScaleRows(Rows x, size_t n_rows, size_t width, float factor);

/// x[r, i] = cap * tanh(x[r, i] / cap), cap > 0.
void SoftCap(Rows x, size_t n_rows, size_t width, float cap);

/// x[r, i] *= sigmoid(gates[r]): a shared expert's gate. gates [n_rows].
void SigmoidGate(Rows x, size_t n_rows, size_t width, const float* gates);

/// out[row_ids[r], i] += weights[r] * x[r, i], r ascending: an expert's outputs back to their tokens.
/// row_ids [n_rows] may be null (r itself); weights [n_rows].
struct WeightedRows {
  ConstRows x;
  const float* weights = nullptr;
  const uint32_t* row_ids = nullptr;
};
void AddWeightedRows(const WeightedRows& rows, size_t n_rows, size_t width, Rows out);

/// out[r, i] = x[row_ids[r], i]: the tokens that one expert serves, side by side.
void GatherRows(ConstRows x, const uint32_t* row_ids, size_t n_rows, size_t width, Rows out);

}  // namespace linnet::ops

#endif  // LINNET_OPS_ELEMENTWISE_H_
