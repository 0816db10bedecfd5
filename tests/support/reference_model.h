// A plain forward pass in f64, straight from the description: what every faster path is compared with.
#ifndef LINNET_TESTS_SUPPORT_REFERENCE_MODEL_H_
#define LINNET_TESTS_SUPPORT_REFERENCE_MODEL_H_

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/base/model_view.h"

namespace linnet::testing {

/// Every tensor of a model as f32, by role and layer (-1: global), in the shapes of RequiredTensors.
using ReferenceWeights = std::map<std::pair<TensorRole, int32_t>, std::vector<float>>;

struct ReferenceResult {
  std::vector<double> logits;  // [T, vocab_size]
  std::vector<std::vector<double>>
      hidden_states;  // n_layers + 1 of [T, model_dim]: each layer's input, the last one's output
};

/// One pass over all tokens at positions 0, 1, ..., without a cache. Ids are within the vocabulary.
/// Numerics: f64 throughout; weights are what they are in f32. Slow: for models of tests.
ReferenceResult RunReference(const ModelConfig& config, const ReferenceWeights& weights, std::span<const int32_t> ids);

}  // namespace linnet::testing

#endif  // LINNET_TESTS_SUPPORT_REFERENCE_MODEL_H_
