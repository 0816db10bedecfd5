// Public header. The FFN's activation functions, gated and plain.
#ifndef LINNET_OPS_ACTIVATION_H_
#define LINNET_OPS_ACTIVATION_H_

#include <cstddef>

#include "core/base/model_config.h"
#include "ops/rows.h"

namespace linnet::ops {

struct ActivationSpec {
  Activation kind = Activation::kSilu;
  float clamp = 0.0f;  // kClampedSwiglu's c, > 0
};

/// out[i] = act(gate[i]) * up[i] for each row, where gate = gate_up[0, ffn_dim) and up = gate_up[ffn_dim, 2 ffn_dim).
/// kClampedSwiglu: min(gate, c) * sigmoid(1.702 min(gate, c)) * (clamp(up, -c, c) + 1).
/// Shapes: gate_up [n_rows, 2 ffn_dim], out [n_rows, ffn_dim]; out may start where gate_up starts, with the same
/// stride; no other overlap.
/// Numerics: within 4 ulp of f64 plus 2e-7 of the argument; erf and tanh too. NaN stays NaN. Sources: arXiv:2002.05202.
void GatedActivation(const ActivationSpec& spec, ConstRows gate_up, size_t n_rows, size_t ffn_dim, Rows out);

/// out[i] = act(x[i]) for each row; out may be x itself. Every kind but kClampedSwiglu, which exists gated only.
void PlainActivation(const ActivationSpec& spec, ConstRows x, size_t n_rows, size_t width, Rows out);

}  // namespace linnet::ops

#endif  // LINNET_OPS_ACTIVATION_H_
