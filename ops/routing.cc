#include "ops/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"

// Plain code: a few hundred values a token, far below the experts' matrix products.
namespace linnet::ops {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kTaken = std::numeric_limits<float>::quiet_NaN();

/// In place: exp(x - max) / sum. All NaN where a value is NaN.
void SoftmaxInPlace(std::span<float> x) {
  const float max = *std::max_element(x.begin(), x.end());
  float sum = 0.0f;
  for (float& value : x) {
    value = std::exp(value - max);
    sum += value;
  }
  for (float& value : x) value /= sum;
}

/// Takes the index of the greatest value, the lowest among equals, and marks it as taken. At least one is not taken.
size_t TakeBest(std::span<float> values) {
  size_t best = values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;  // taken
    if (best == values.size() || values[i] > values[best]) best = i;
  }
  LINNET_CHECK(best < values.size());
  values[best] = kTaken;
  return best;
}

float ScoreOfGroup(std::span<const float> choice, GroupScore kind) {
  float best = kLowest, second = kLowest;
  for (const float value : choice) {
    if (value > best) {
      second = best;
      best = value;
    } else if (value > second) {
      second = value;
    }
  }
  return kind == GroupScore::kMax || choice.size() < 2 ? best : best + second;
}

/// Experts outside the best groups are out of the competition, as in the published models: a score of 0 instead would
/// beat those whose selection bias makes them negative.
void MaskGroups(const FfnSpec& spec, std::span<float> choice, std::span<float> group_scores) {
  const size_t group_size = choice.size() / spec.n_groups;
  for (size_t g = 0; g < spec.n_groups; ++g) {
    group_scores[g] = ScoreOfGroup(choice.subspan(g * group_size, group_size), spec.group_score);
    if (std::isnan(group_scores[g])) group_scores[g] = kLowest;  // -inf + inf
  }
  for (size_t k = 0; k < spec.top_groups; ++k) TakeBest(group_scores);
  for (size_t g = 0; g < spec.n_groups; ++g) {
    if (std::isnan(group_scores[g])) continue;  // a taken group keeps its scores
    std::ranges::fill(choice.subspan(g * group_size, group_size), kLowest);
  }
}

void ComputeScores(RouterScore kind, const float* logits, std::span<float> scores) {
  std::copy_n(logits, scores.size(), scores.begin());
  if (kind == RouterScore::kSoftmax) SoftmaxInPlace(scores);
  if (kind == RouterScore::kSigmoid) {
    for (float& value : scores) value = 1.0f / (1.0f + std::exp(-value));
  }
}

void ScaleWeights(const FfnSpec& spec, std::span<float> weights) {
  if (spec.router_score == RouterScore::kSoftmaxOfTopK) SoftmaxInPlace(weights);
  float factor = spec.routed_scale;
  if (spec.normalize_top_k) {
    float sum = 0.0f;
    for (const float weight : weights) sum += weight;
    factor /= sum + 1e-20f;  // sigmoids may all be 0; DeepSeek-V3's constant
  }
  for (float& weight : weights) weight *= factor;
}

}  // namespace

void RouteTokens(const FfnSpec& spec, const RoutingInput& input, std::span<float> scratch, const RoutedExperts& out) {
  LINNET_DCHECK(scratch.size() >= RoutingScratchFloats(spec) && spec.top_k <= spec.n_experts);
  const size_t n_experts = spec.n_experts;
  const std::span<float> scores = scratch.subspan(0, n_experts);
  const std::span<float> choice = scratch.subspan(n_experts, n_experts);
  const std::span<float> group_scores = scratch.subspan(2 * n_experts, spec.n_groups);
  for (size_t r = 0; r < input.n_rows; ++r) {
    ComputeScores(spec.router_score, input.logits.row(r), scores);
    for (size_t e = 0; e < n_experts; ++e) {
      const float value = input.selection_bias == nullptr ? scores[e] : scores[e] + input.selection_bias[e];
      choice[e] = std::isnan(value) ? kLowest : value;
    }
    if (spec.n_groups > 1) MaskGroups(spec, choice, group_scores);
    const std::span<float> weights(out.weights + r * spec.top_k, spec.top_k);
    for (size_t k = 0; k < spec.top_k; ++k) {
      const size_t expert = TakeBest(choice);
      out.ids[r * spec.top_k + k] = static_cast<uint32_t>(expert);
      weights[k] = scores[expert];
    }
    ScaleWeights(spec, weights);
  }
}

}  // namespace linnet::ops
