// Attention in plain f64 loops, with a bound on what f32 kernels may differ by.
#ifndef LINNET_TESTS_SUPPORT_ATTENTION_REFERENCE_H_
#define LINNET_TESTS_SUPPORT_ATTENTION_REFERENCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/attention.h"

namespace linnet::testing {

struct AttentionShape {
  uint32_t n_heads = 1, n_kv_heads = 1, head_dim = 8, value_dim = 8;
  bool latent = false;  // n_kv_heads = 1; values are the first value_dim of each key
};

/// A sequence's queries, keys and values, [n_tokens][heads][dim] each.
struct AttentionInputs {
  AttentionShape shape;
  uint32_t n_tokens = 0;
  std::vector<float> q, k, v;

  const float* q_row(uint32_t t, uint32_t h) const { return &q[(size_t{t} * shape.n_heads + h) * shape.head_dim]; }
  const float* k_row(uint32_t t, uint32_t g) const { return &k[(size_t{t} * shape.n_kv_heads + g) * shape.head_dim]; }
  const float* v_row(uint32_t t, uint32_t g) const {
    return shape.latent ? k_row(t, 0) : &v[(size_t{t} * shape.n_kv_heads + g) * shape.value_dim];
  }
};

/// Values in [-1, 1) from a seed.
AttentionInputs RandomInputs(const AttentionShape& shape, uint32_t n_tokens, uint64_t seed);

struct ReferenceRow {
  std::vector<double> out;    // [value_dim]
  std::vector<double> bound;  // [value_dim]: |f32 result - out| stays below
};
/// Query head h at position pos. `stored_rounding`: relative rounding error of cached keys and values (2^-11 for f16;
/// 0 where the inputs hold the cached values themselves).
///
/// The bound: u = 2^-24. A score errs by e = (head_dim + 8) u sum|q k| scale (products, sums, scaling), plus
/// stored_rounding * sum|q k| scale, plus 12 u cap (tanh) and 4 u |bias|. Probabilities then err by a factor within
/// exp(+-2 e) and 8 u |score - max| + 8 u (subtraction, exponential); the weighted sums run over chains of at most n
/// additions each, n = the positions of a split and the splits.
ReferenceRow ReferenceAttention(const AttentionInputs& inputs, const ops::AttentionOptions& options, uint32_t pos,
                                uint32_t head, double stored_rounding);

}  // namespace linnet::testing

#endif  // LINNET_TESTS_SUPPORT_ATTENTION_REFERENCE_H_
