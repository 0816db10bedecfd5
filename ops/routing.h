// Public header. Mixture of experts: which experts a token goes to, and with which weights.
#ifndef LINNET_OPS_ROUTING_H_
#define LINNET_OPS_ROUTING_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/model_config.h"
#include "ops/rows.h"

namespace linnet::ops {

/// f32 values that RouteTokens needs as scratch.
constexpr size_t RoutingScratchFloats(const FfnSpec& spec) {
  return 2 * static_cast<size_t>(spec.n_experts) + spec.n_groups;
}

struct RoutingInput {
  ConstRows logits;  // [n_rows, n_experts], the router's bias already added
  size_t n_rows = 0;
  const float* selection_bias = nullptr;  // [n_experts] or null: added to the scores for the choice only
};

struct RoutedExperts {
  uint32_t* ids = nullptr;   // [n_rows, top_k]: the chosen experts, best first
  float* weights = nullptr;  // [n_rows, top_k]: what their outputs are multiplied by
};

/// Chooses spec.top_k experts for every row and computes their weights as spec says: scores (softmax or sigmoid of the
/// logits, or the logits themselves with a softmax over the chosen); choice by score plus selection_bias among the best
/// top_groups groups; weights without the selection bias, divided by their sum where normalize_top_k, times
/// routed_scale. Ties go to the lower index; NaN is below everything, so that ids are always distinct and < n_experts.
/// spec is validated: top_k <= n_experts, n_groups divides n_experts, the chosen groups hold at least top_k experts.
/// scratch: RoutingScratchFloats(spec) values.
void RouteTokens(const FfnSpec& spec, const RoutingInput& input, std::span<float> scratch, const RoutedExperts& out);

}  // namespace linnet::ops

#endif  // LINNET_OPS_ROUTING_H_
