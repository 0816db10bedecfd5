#include "core/base/model_config.h"

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>

#include "tests/support/small_config.h"

namespace linnet {
namespace {

using linnet::testing::SmallConfig;
using linnet::testing::SmallLatentConfig;
using linnet::testing::SmallMixtureConfig;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Change = std::function<void(ModelConfig&)>;

void CheckInvalid(ModelConfig config, const std::vector<Change>& changes) {
  REQUIRE(ValidateModelConfig(config).ok());
  for (size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(i);
    ModelConfig changed = config;
    changes[i](changed);
    const Status status = ValidateModelConfig(changed);
    CHECK(status.code() == StatusCode::kInvalidModel);
    CHECK(std::string(status.message()).size() > 0);
  }
}

/// A change of the first block, or of a part of it.
Change Block(std::function<void(BlockSpec&)> change) {
  return [change = std::move(change)](ModelConfig& config) { change(config.blocks[0]); };
}
Change Attention(std::function<void(AttentionSpec&)> change) {
  return [change = std::move(change)](ModelConfig& config) { change(config.blocks[0].attention); };
}
Change Rope(std::function<void(RopeSpec&)> change) {
  return [change = std::move(change)](ModelConfig& config) { change(config.ropes[0]); };
}
Change Experts(std::function<void(FfnSpec&)> change) {
  return [change = std::move(change)](ModelConfig& config) { change(config.blocks[1].ffn); };
}

TEST_SUITE("core/base") {
  TEST_CASE("InternBlock: equal blocks share an index") {
    ModelConfig config = SmallConfig();
    BlockSpec block = config.blocks[0];
    CHECK(InternBlock(config, block) == 0);
    block.attention.window = 8;
    CHECK(InternBlock(config, block) == 1);
    CHECK(InternBlock(config, block) == 1);
    CHECK(config.blocks.size() == 2);
  }

  TEST_CASE("ValidateModelConfig: sizes out of range are refused") {
    CheckInvalid(SmallConfig(), {
                                    [](ModelConfig& c) { c.vocab_size = 0; },
                                    [](ModelConfig& c) { c.vocab_size = kMaxVocab + 1; },
                                    [](ModelConfig& c) { c.model_dim = 0; },
                                    [](ModelConfig& c) { c.model_dim = kMaxDim + 1; },
                                    [](ModelConfig& c) {
                                      c.n_layers = 0;
                                      c.layer_block.clear();
                                    },
                                    [](ModelConfig& c) {
                                      c.n_layers = kMaxLayers + 1;
                                      c.layer_block.assign(kMaxLayers + 1, 0);
                                    },
                                    [](ModelConfig& c) { c.context_length = 0; },
                                    [](ModelConfig& c) { c.context_length = kMaxContext + 1; },
                                    [](ModelConfig& c) { c.layer_block.pop_back(); },
                                    [](ModelConfig& c) { c.layer_block[1] = 1; },
                                    [](ModelConfig& c) { c.blocks.clear(); },
                                    [](ModelConfig& c) { c.ropes.assign(kMaxRopes + 1, c.ropes[0]); },
                                    [](ModelConfig& c) { c.family.assign(10000, 'x'); },
                                });
  }

  TEST_CASE("ValidateModelConfig: globals that contradict each other are refused") {
    CheckInvalid(SmallConfig(), {
                                    [](ModelConfig& c) { c.embedding_scale = 0.0f; },
                                    [](ModelConfig& c) { c.embedding_scale = kNan; },
                                    [](ModelConfig& c) { c.logit_scale = kInfinity; },
                                    [](ModelConfig& c) { c.logit_soft_cap = -1.0f; },
                                    [](ModelConfig& c) { c.positions = static_cast<EmbeddingPositions>(3); },
                                    [](ModelConfig& c) { c.positions = EmbeddingPositions::kLearned; },
                                    [](ModelConfig& c) {
                                      c.positions = EmbeddingPositions::kLearned;
                                      c.position_rows = 255;
                                    },
                                    [](ModelConfig& c) {
                                      c.positions = EmbeddingPositions::kLearned;
                                      c.position_rows = 257;
                                      c.position_offset = 2;
                                    },
                                    [](ModelConfig& c) { c.position_rows = 256; },
                                    [](ModelConfig& c) { c.position_offset = 2; },
                                    [](ModelConfig& c) { c.final_norm.eps = 0.0f; },
                                    [](ModelConfig& c) { c.final_norm.has_bias = true; },  // of an RMSNorm
                                    [](ModelConfig& c) {
                                      c.final_norm = {};
                                      c.final_norm.has_gain = true;
                                    },
                                    [](ModelConfig& c) { c.embedding_norm.kind = static_cast<NormKind>(9); },
                                });
  }

  TEST_CASE("ValidateModelConfig: ropes that have no value are refused") {
    CheckInvalid(SmallConfig(),
                 {
                     Rope([](RopeSpec& r) { r.theta = 0.0; }),
                     Rope([](RopeSpec& r) { r.theta = std::numeric_limits<double>::infinity(); }),
                     Rope([](RopeSpec& r) { r.rope_dim = 15; }), Rope([](RopeSpec& r) { r.rope_dim = 0; }),
                     Rope([](RopeSpec& r) { r.rope_dim = 18; }),  // above head_dim
                     Rope([](RopeSpec& r) { r.layout = static_cast<RopeLayout>(2); }),
                     Rope([](RopeSpec& r) { r.scaling = static_cast<RopeScaling>(6); }),
                     Rope([](RopeSpec& r) { r.factor = 0.0; }), Rope([](RopeSpec& r) { r.cos_sin_scale = -1.0f; }),
                     Rope([](RopeSpec& r) { r.scaling = RopeScaling::kYarn; }),  // no original length
                     Rope([](RopeSpec& r) { r.scaling = RopeScaling::kLlama3; }), Rope([](RopeSpec& r) {
                       r.scaling = RopeScaling::kLlama3;
                       r.original_context_length = 64;
                       r.low_freq_factor = 4.0;
                     }),
                     Rope([](RopeSpec& r) {
                       r.scaling = RopeScaling::kDynamicNtk;
                       r.original_context_length = 64;
                       r.rope_dim = 2;
                     }),
                     Rope([](RopeSpec& r) {
                       r.scaling = RopeScaling::kYarn;
                       r.original_context_length = 64;
                       r.theta = 1.0;
                     }),
                     Rope([](RopeSpec& r) {
                       r.scaling = RopeScaling::kLongRope;
                       r.original_context_length = 64;
                     }),
                     Rope([](RopeSpec& r) {
                       r.scaling = RopeScaling::kLongRope;
                       r.original_context_length = 64;
                       r.short_factors.assign(8, 1.0f);
                       r.long_factors.assign(7, 1.0f);
                     }),
                     Rope([](RopeSpec& r) { r.short_factors.assign(8, 1.0f); }),  // without LongRoPE
                 });
  }

  TEST_CASE("ValidateModelConfig: attention that contradicts itself is refused") {
    CheckInvalid(SmallConfig(), {
                                    Attention([](AttentionSpec& a) { a.kind = static_cast<AttentionKind>(2); }),
                                    Attention([](AttentionSpec& a) { a.n_heads = 0; }),
                                    Attention([](AttentionSpec& a) { a.n_kv_heads = 0; }),
                                    Attention([](AttentionSpec& a) { a.n_kv_heads = 3; }),
                                    Attention([](AttentionSpec& a) { a.n_kv_heads = 8; }),
                                    Attention([](AttentionSpec& a) { a.head_dim = a.value_dim = 0; }),
                                    Attention([](AttentionSpec& a) { a.value_dim = 8; }),
                                    Attention([](AttentionSpec& a) { a.n_heads = a.n_kv_heads = kMaxDim; }),
                                    Attention([](AttentionSpec& a) { a.score_scale = 0.0f; }),
                                    Attention([](AttentionSpec& a) { a.score_scale = kNan; }),
                                    Attention([](AttentionSpec& a) { a.logit_soft_cap = -1.0f; }),
                                    Attention([](AttentionSpec& a) { a.window = kMaxContext + 1; }),
                                    Attention([](AttentionSpec& a) { a.rope = 1; }),
                                    Attention([](AttentionSpec& a) { a.rope = -2; }),
                                    Attention([](AttentionSpec& a) { a.alibi = true; }),  // beside rope
                                    Attention([](AttentionSpec& a) { a.qk_norm = QkNorm::kPerHead; }),
                                    Attention([](AttentionSpec& a) {
                                      a.qk_norm_spec = {NormKind::kRmsNorm, 1e-5f, true, false, false};
                                    }),
                                    Attention([](AttentionSpec& a) { a.kv_lora_rank = 4; }),
                                });
    CheckInvalid(SmallLatentConfig(), {
                                          Attention([](AttentionSpec& a) { a.n_kv_heads = 2; }),
                                          Attention([](AttentionSpec& a) { a.rope = -1; }),
                                          Attention([](AttentionSpec& a) { a.head_dim = 16; }),
                                          Attention([](AttentionSpec& a) { a.kv_lora_rank = 0; }),
                                          Attention([](AttentionSpec& a) { a.q_lora_rank = kMaxDim + 1; }),
                                          Attention([](AttentionSpec& a) { a.latent_norm.eps = -1.0f; }),
                                          Attention([](AttentionSpec& a) { a.sinks = true; }),
                                      });
  }

  TEST_CASE("ValidateModelConfig: blocks and FFNs that contradict themselves are refused") {
    CheckInvalid(SmallConfig(),
                 {
                     Block([](BlockSpec& b) { b.norm = {}; }),
                     Block([](BlockSpec& b) { b.placement = static_cast<NormPlacement>(4); }),
                     Block([](BlockSpec& b) {
                       b.parallel = true;
                       b.placement = NormPlacement::kPost;
                     }),
                     Block([](BlockSpec& b) { b.parallel_shared_norm = true; }),
                     Block([](BlockSpec& b) { b.residual_scale = 0.0f; }),
                     Block([](BlockSpec& b) { b.branch_scale = kNan; }),
                     Block([](BlockSpec& b) { b.ffn.ffn_dim = 0; }),
                     Block([](BlockSpec& b) { b.ffn.ffn_dim = kMaxDim + 1; }),
                     Block([](BlockSpec& b) { b.ffn.activation = static_cast<Activation>(7); }),
                     Block([](BlockSpec& b) {
                       b.ffn.activation = Activation::kSigmoid;
                       b.ffn.gated = false;
                     }),
                     Block([](BlockSpec& b) { b.ffn.activation = Activation::kClampedSwiglu; }),  // no clamp
                     Block([](BlockSpec& b) { b.ffn.clamp = 7.0f; }),
                     Block([](BlockSpec& b) { b.ffn.top_k = 1; }),
                     Block([](BlockSpec& b) { b.ffn.shared_ffn_dim = 8; }),
                     Block([](BlockSpec& b) { b.ffn.n_groups = 2; }),
                 });
    CheckInvalid(SmallMixtureConfig(), {
                                           Experts([](FfnSpec& f) { f.n_experts = kMaxExperts + 4; }),
                                           Experts([](FfnSpec& f) { f.top_k = 0; }),
                                           Experts([](FfnSpec& f) { f.top_k = 9; }),
                                           Experts([](FfnSpec& f) { f.top_k = 5; }),  // two groups of two hold four
                                           Experts([](FfnSpec& f) { f.n_groups = 3; }),
                                           Experts([](FfnSpec& f) { f.n_groups = 0; }),
                                           Experts([](FfnSpec& f) { f.top_groups = 5; }),
                                           Experts([](FfnSpec& f) {
                                             f.n_groups = 8;
                                             f.top_groups = 8;
                                             f.group_score = GroupScore::kSumOfTopTwo;
                                           }),
                                           Experts([](FfnSpec& f) { f.routed_scale = 0.0f; }),
                                           Experts([](FfnSpec& f) { f.router_score = static_cast<RouterScore>(3); }),
                                           Experts([](FfnSpec& f) { f.shared_ffn_dim = 0; }),  // the gate stays
                                           Experts([](FfnSpec& f) { f.shared_ffn_dim = kMaxDim + 1; }),
                                       });
  }
}

}  // namespace
}  // namespace linnet
