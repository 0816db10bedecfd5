// The description and the weights of every golden, run by the plain reference, give the golden's own numbers: the
// mapping is right before any kernel is looked at. And each feature of the description matters: switched off, the
// numbers differ.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "core/base/file_mapping.h"
#include "formats/huggingface/checkpoint.h"
#include "formats/safetensors/safetensors_file.h"
#include "tests/formats/huggingface/goldens.h"
#include "tests/support/reference_model.h"

namespace linnet::formats {
namespace {

using linnet::testing::GoldenFolders;
using linnet::testing::ReferenceResult;
using linnet::testing::ReferenceWeights;
using linnet::testing::RunReference;

// The bound of the goldens' README: far above f32 rounding in the reference outputs, far below every mistake.
constexpr double kTolerance = 2e-4;

ReferenceWeights LoadWeights(const Checkpoint& checkpoint) {
  ReferenceWeights weights;
  for (const TensorRequirement& tensor : RequiredTensors(checkpoint.info().config)) {
    const uint64_t groups = tensor.rank == 3 ? tensor.dims[0] : 1, columns = tensor.dims[tensor.rank - 1];
    const uint64_t rows = tensor.rank == 1 ? 1 : tensor.dims[tensor.rank - 2];
    std::vector<float> values(groups * rows * columns);
    for (uint64_t group = 0; group < groups; ++group) {
      const auto out = std::span(values).subspan(group * rows * columns, rows * columns);
      REQUIRE(checkpoint.ReadRows(tensor, group, 0, rows, out, nullptr).ok());
    }
    weights[{tensor.role, tensor.layer}] = std::move(values);
  }
  return weights;
}

struct Expected {
  std::vector<int32_t> ids;
  std::vector<float> logits, hidden_states;
};

Expected LoadExpected(const std::string& folder) {
  auto file = FileMapping::Open(folder + "/golden.safetensors", nullptr);
  REQUIRE(file.ok());
  const auto tensors = ParseSafetensors(file->bytes(), "golden.safetensors", nullptr);
  REQUIRE(tensors.ok());
  Expected expected;
  for (const SafetensorsTensor& tensor : *tensors) {
    const size_t count = tensor.bytes.size() / 4;
    if (tensor.name == "input_ids") {
      expected.ids.resize(count);
      std::memcpy(expected.ids.data(), tensor.bytes.data(), tensor.bytes.size());
    } else if (tensor.name == "logits" || tensor.name == "hidden_states") {
      std::vector<float>& target = tensor.name == "logits" ? expected.logits : expected.hidden_states;
      target.resize(count);
      ReadAsF32(tensor, {0, count, 1, 1}, target.data());
    }
  }
  return expected;
}

double LargestDifference(std::span<const double> found, std::span<const float> expected) {
  REQUIRE(found.size() == expected.size());
  double largest = 0.0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = std::abs(found[i] - expected[i]);
    if (!(difference <= largest)) largest = difference;  // keeps a NaN
  }
  return largest;
}

/// A feature, and how to take it out of a description; false where the description does not have it.
struct Feature {
  const char* name;
  std::function<bool(ModelConfig&, ReferenceWeights&)> remove;
};

/// Applies `change` to every block; true where it changed one.
template <typename Change>
std::function<bool(ModelConfig&, ReferenceWeights&)> InBlocks(Change change) {
  return [change](ModelConfig& config, ReferenceWeights&) {
    const ModelConfig before = config;
    for (BlockSpec& block : config.blocks) change(block);
    return !(config == before);
  };
}
template <typename Change>
std::function<bool(ModelConfig&, ReferenceWeights&)> InRopes(Change change) {
  return [change](ModelConfig& config, ReferenceWeights&) {
    const ModelConfig before = config;
    for (RopeSpec& rope : config.ropes) change(rope);
    return !(config == before);
  };
}
/// Sets every value of the weights with one of the roles.
std::function<bool(ModelConfig&, ReferenceWeights&)> SetWeights(std::vector<TensorRole> roles, float value) {
  return [roles = std::move(roles), value](ModelConfig&, ReferenceWeights& weights) {
    bool found = false;
    for (auto& [key, values] : weights) {
      if (std::find(roles.begin(), roles.end(), key.first) == roles.end()) continue;
      std::fill(values.begin(), values.end(), value);
      found = true;
    }
    return found;
  };
}

std::vector<Feature> AttentionFeatures() {
  return {
      {"window off", InBlocks([](BlockSpec& b) { b.attention.window = 0; })},
      {"window + 1", InBlocks([](BlockSpec& b) { b.attention.window += b.attention.window > 0; })},
      {"window - 1", InBlocks([](BlockSpec& b) { b.attention.window -= b.attention.window > 0; })},
      {"qk norm off", InBlocks([](BlockSpec& b) { b.attention.qk_norm = QkNorm::kNone; })},
      {"attention cap off", InBlocks([](BlockSpec& b) { b.attention.logit_soft_cap = 0.0f; })},
      {"sinks off", InBlocks([](BlockSpec& b) { b.attention.sinks = false; })},
      {"score scale 10 % larger", InBlocks([](BlockSpec& b) { b.attention.score_scale *= 1.1f; })},
      {"no rotation",
       [](ModelConfig& config, ReferenceWeights&) {
         bool found = false;
         for (RopeSpec& rope : config.ropes) {
           rope.theta = 1e300;  // every angle but the first pair's is 0
           rope.scaling = RopeScaling::kNone;
           found = true;
         }
         return found;
       }},
      {"other pairing", InRopes([](RopeSpec& r) {
         r.layout = r.layout == RopeLayout::kHalfSplit ? RopeLayout::kInterleaved : RopeLayout::kHalfSplit;
       })},
      {"rope scaling off", InRopes([](RopeSpec& r) { r.scaling = RopeScaling::kNone; })},
      {"cos and sin scale off", InRopes([](RopeSpec& r) { r.cos_sin_scale = 1.0f; })},
      {"yarn range truncated", InRopes([](RopeSpec& r) { r.truncate = true; })},
      {"short and long factors swapped", InRopes([](RopeSpec& r) { std::swap(r.short_factors, r.long_factors); })},
      {"rotation in every layer",
       [](ModelConfig& config, ReferenceWeights&) {
         bool found = false;
         for (BlockSpec& block : config.blocks) {
           found = found || (block.attention.rope < 0 && !config.ropes.empty());
           if (block.attention.rope < 0 && !config.ropes.empty()) block.attention.rope = 0;
         }
         return found;
       }},
  };
}

std::vector<Feature> BlockFeatures() {
  return {
      {"eps a thousand times larger",
       [](ModelConfig& config, ReferenceWeights&) {
         for (BlockSpec& block : config.blocks) block.norm.eps *= 1000.0f;
         return true;
       }},
      {"gain plus one off", InBlocks([](BlockSpec& b) { b.norm.gain_plus_one = false; })},
      {"norms before the sub-layers", InBlocks([](BlockSpec& b) { b.placement = NormPlacement::kPre; })},
      {"sequential", InBlocks([](BlockSpec& b) {
         if (!b.parallel_shared_norm) b.parallel = false;
       })},
      {"branch scale off", InBlocks([](BlockSpec& b) { b.branch_scale = 1.0f; })},
      {"other gelu", InBlocks([](BlockSpec& b) {
         if (b.ffn.activation == Activation::kGelu) {
           b.ffn.activation = Activation::kGeluTanh;
         } else if (b.ffn.activation == Activation::kGeluTanh) {
           b.ffn.activation = Activation::kGelu;
         }
       })},
      {"clamp off", InBlocks([](BlockSpec& b) {
         if (b.ffn.clamp > 0.0f) b.ffn.clamp = 1e9f;
       })},
      {"one expert fewer", InBlocks([](BlockSpec& b) { b.ffn.top_k -= b.ffn.top_k > 1; })},
      {"top-k normalization changed", InBlocks([](BlockSpec& b) {
         if (b.ffn.n_experts > 0 && b.ffn.router_score != RouterScore::kSoftmaxOfTopK) {
           b.ffn.normalize_top_k = !b.ffn.normalize_top_k;
         }
       })},
      {"softmax before top-k", InBlocks([](BlockSpec& b) {
         if (b.ffn.router_score == RouterScore::kSoftmaxOfTopK) b.ffn.router_score = RouterScore::kSoftmax;
       })},
      {"routed scale off", InBlocks([](BlockSpec& b) { b.ffn.routed_scale = 1.0f; })},
      {"no group limit", InBlocks([](BlockSpec& b) { b.ffn.n_groups = b.ffn.top_groups = 1; })},
      {"selection bias off", InBlocks([](BlockSpec& b) { b.ffn.selection_bias = false; })},
      {"shared expert off", InBlocks([](BlockSpec& b) { b.ffn.shared_ffn_dim = 0; })},
      {"shared gate off", InBlocks([](BlockSpec& b) { b.ffn.shared_gate = false; })},
  };
}

std::vector<Feature> ModelFeatures() {
  return {
      {"embedding scale off",
       [](ModelConfig& config, ReferenceWeights&) { return std::exchange(config.embedding_scale, 1.0f) != 1.0f; }},
      {"logit scale off",
       [](ModelConfig& config, ReferenceWeights&) { return std::exchange(config.logit_scale, 1.0f) != 1.0f; }},
      {"final cap off",
       [](ModelConfig& config, ReferenceWeights&) { return std::exchange(config.logit_soft_cap, 0.0f) != 0.0f; }},
      {"position offset off",
       [](ModelConfig& config, ReferenceWeights&) { return std::exchange(config.position_offset, 0u) != 0u; }},
      {"learned positions zero", SetWeights({TensorRole::kPositionEmbedding}, 0.0f)},
      {"attention biases zero", SetWeights({TensorRole::kQkvBias, TensorRole::kAttentionOutBias}, 0.0f)},
      {"ffn biases zero", SetWeights({TensorRole::kFfnUpBias, TensorRole::kFfnDownBias, TensorRole::kExpertUpBias,
                                      TensorRole::kExpertDownBias},
                                     0.0f)},
      {"router bias zero", SetWeights({TensorRole::kRouterBias}, 0.0f)},
      {"head bias zero", SetWeights({TensorRole::kHeadBias}, 0.0f)},
      {"norm biases zero", SetWeights({TensorRole::kAttentionNormBias, TensorRole::kFfnNormBias}, 0.0f)},
      {"norm gains one", SetWeights({TensorRole::kAttentionNormGain, TensorRole::kFfnNormGain}, 1.0f)},
      {"latent norm gains one", SetWeights({TensorRole::kLatentKvNormGain, TensorRole::kLatentQNormGain}, 1.0f)},
      {"qk norm gains one", SetWeights({TensorRole::kQNormGain, TensorRole::kKNormGain}, 1.0f)},
  };
}

TEST_SUITE("huggingface") {
  TEST_CASE("Description: every golden's logits and residual stream come out of the plain reference") {
    for (const auto& folder : GoldenFolders()) {
      const std::string name = folder.filename().string();
      CAPTURE(name);
      const auto checkpoint = OpenHuggingFaceCheckpoint(folder.string(), nullptr);
      REQUIRE(checkpoint.ok());
      const Expected expected = LoadExpected(folder.string());
      const ReferenceResult result =
          RunReference((*checkpoint)->info().config, LoadWeights(**checkpoint), expected.ids);
      CHECK(LargestDifference(result.logits, expected.logits) <= kTolerance);
      std::vector<double> hidden;
      for (const auto& state : result.hidden_states) hidden.insert(hidden.end(), state.begin(), state.end());
      CHECK(LargestDifference(hidden, expected.hidden_states) <= kTolerance);
    }
  }

  TEST_CASE("Description: a feature that is taken out changes the logits of every golden that has it") {
    std::vector<Feature> features = AttentionFeatures();
    for (auto& feature : BlockFeatures()) features.push_back(std::move(feature));
    for (auto& feature : ModelFeatures()) features.push_back(std::move(feature));
    std::vector<int> seen(features.size(), 0);
    const auto folders = GoldenFolders();
    for (const auto& folder : folders) {
      const auto checkpoint = OpenHuggingFaceCheckpoint(folder.string(), nullptr);
      REQUIRE(checkpoint.ok());
      const Expected expected = LoadExpected(folder.string());
      const ReferenceWeights weights = LoadWeights(**checkpoint);
      for (size_t i = 0; i < features.size(); ++i) {
        ModelConfig config = (*checkpoint)->info().config;
        ReferenceWeights changed = weights;
        if (!features[i].remove(config, changed)) continue;
        ++seen[i];
        const std::string where = folder.filename().string() + ": " + features[i].name;
        CAPTURE(where);
        const ReferenceResult result = RunReference(config, changed, expected.ids);
        CHECK_FALSE(LargestDifference(result.logits, expected.logits) <= kTolerance);
      }
    }
    for (size_t i = 0; !folders.empty() && i < features.size(); ++i) {
      const std::string feature = features[i].name;
      CAPTURE(feature);
      CHECK(seen[i] > 0);  // no feature is tested by no golden
    }
  }
}

}  // namespace
}  // namespace linnet::formats
