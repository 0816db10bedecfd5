// Public header. Softmax of rows, and the logarithms that perplexity and divergence need.
#ifndef LINNET_OPS_SOFTMAX_H_
#define LINNET_OPS_SOFTMAX_H_

#include <cstddef>

#include "ops/rows.h"

namespace linnet::ops {

/// x[r, i] = exp(x[r, i] - max) / sum, in place. width >= 1; at least one value of a row is above -inf.
/// Numerics: f32, the sum in an order that depends on the width only.
void Softmax(Rows x, size_t n_rows, size_t width);

/// ln(sum_i exp(x[i])), n >= 1. Numerics: exponentials in f32, sums in f64: absolute error below 1e-6.
double LogSumExp(const float* x, size_t n);

/// ln of the probability that softmax(x) gives to `index` (< n).
double LogSoftmaxAt(const float* x, size_t n, size_t index);

/// Kullback-Leibler divergence sum_i p[i] * ln(p[i] / q[i]) in nats of p = softmax(p_logits), q = softmax(q_logits);
/// values of -inf in p_logits add nothing.
double KlDivergence(const float* p_logits, const float* q_logits, size_t n);

}  // namespace linnet::ops

#endif  // LINNET_OPS_SOFTMAX_H_
