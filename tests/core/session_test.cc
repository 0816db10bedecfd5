#include "core/session.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "tests/support/reference_model.h"
#include "tests/support/running_model.h"
#include "tests/support/tiny_model.h"

namespace linnet {
namespace {

using testing::BuiltModel;
using testing::RunningModel;
using testing::SomeIds;
using testing::TinyConfig;
using testing::TinyModelOptions;

ModelConfig Edited(void (*edit)(ModelConfig&), const TinyModelOptions& options = {}) {
  ModelConfig config = TinyConfig(options);
  edit(config);
  return config;
}

NormSpec LayerNormSpec() { return {.kind = NormKind::kLayerNorm, .eps = 1e-5f, .has_gain = true, .has_bias = true}; }

struct Case {
  const char* name;
  ModelConfig config;
};

// One description for every feature that the executor reads; families are combinations of these.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  cases.push_back({"llama-like", TinyConfig({})});
  cases.push_back({"tied, qkv bias, per-head norm",
                   TinyConfig({.tied_head = true, .qkv_bias = true, .qk_norm = QkNorm::kPerHead})});
  cases.push_back({"full-width QK norm", TinyConfig({.qk_norm = QkNorm::kFullWidth})});
  cases.push_back({"a gain for every head", TinyConfig({.qk_norm = QkNorm::kPerHeadGain})});
  cases.push_back({"window layers", TinyConfig({.n_layers = 3, .window = 8})});
  cases.push_back({"experts", TinyConfig({.n_experts = 4})});
  cases.push_back({"post norm, learned positions, plain FFN", Edited([](ModelConfig& c) {
                     c.positions = EmbeddingPositions::kLearned;
                     c.position_offset = 2;
                     c.position_rows = 130;
                     c.ropes.clear();
                     c.final_norm = {};
                     for (BlockSpec& b : c.blocks) {
                       b.norm = LayerNormSpec();
                       b.placement = NormPlacement::kPost;
                       b.attention.rope = -1;
                       b.attention.qkv_bias = b.attention.out_bias = true;
                       b.ffn.gated = false;
                       b.ffn.activation = Activation::kGeluTanh;
                       b.ffn.up_bias = b.ffn.down_bias = true;
                     }
                   })});
  cases.push_back({"norm of the sub-layer's output, sinusoidal positions", Edited([](ModelConfig& c) {
                     c.positions = EmbeddingPositions::kSinusoidal;
                     c.embedding_norm = LayerNormSpec();
                     for (BlockSpec& b : c.blocks) {
                       b.placement = NormPlacement::kSubLayerOutput;
                       b.residual_scale = 1.5f;
                       b.branch_scale = 0.25f;
                     }
                   })});
  cases.push_back({"both sides, soft caps, scales", Edited([](ModelConfig& c) {
                     c.embedding_scale = 8.0f;
                     c.logit_scale = 0.5f;
                     c.logit_soft_cap = 1.5f;
                     for (BlockSpec& b : c.blocks) {
                       b.placement = NormPlacement::kBothSides;
                       b.norm.gain_plus_one = true;
                       b.attention.logit_soft_cap = 2.0f;
                       b.ffn.activation = Activation::kGeluTanh;
                     }
                   })});
  for (const bool shared : {true, false}) {
    ModelConfig config = TinyConfig({});
    for (BlockSpec& b : config.blocks) {
      b.norm = LayerNormSpec();
      b.parallel = true;
      b.parallel_shared_norm = shared;
      b.ffn.gated = false;
      b.ffn.activation = Activation::kSquaredRelu;
    }
    cases.push_back({shared ? "parallel, one norm" : "parallel, two norms", config});
  }
  cases.push_back({"ALiBi and sinks", Edited([](ModelConfig& c) {
                     c.ropes.clear();
                     for (BlockSpec& b : c.blocks) {
                       b.attention.rope = -1;
                       b.attention.alibi = true;
                       b.attention.sinks = true;
                     }
                   })});
  cases.push_back({"interleaved partial rotation, no rotation in one layer", Edited([](ModelConfig& c) {
                     c.ropes[0].layout = RopeLayout::kInterleaved;
                     c.ropes[0].rope_dim = 8;
                     BlockSpec plain = c.blocks[0];
                     plain.attention.rope = -1;
                     c.layer_block[1] = InternBlock(c, plain);
                   })});
  cases.push_back({"sigmoid router, groups, selection bias, shared expert", Edited([](ModelConfig& c) {
                     for (BlockSpec& b : c.blocks) {
                       b.ffn.n_experts = 8;
                       b.ffn.top_k = 3;
                       b.ffn.router_score = RouterScore::kSigmoid;
                       b.ffn.selection_bias = true;
                       b.ffn.normalize_top_k = true;
                       b.ffn.routed_scale = 2.5f;
                       b.ffn.n_groups = 4;
                       b.ffn.top_groups = 2;
                       b.ffn.group_score = GroupScore::kSumOfTopTwo;
                       b.ffn.shared_ffn_dim = 32;
                       b.ffn.shared_gate = true;
                     }
                   })});
  cases.push_back({"clamped SwiGLU experts with biases", Edited([](ModelConfig& c) {
                     for (BlockSpec& b : c.blocks) {
                       b.ffn.n_experts = 4;
                       b.ffn.top_k = 2;
                       b.ffn.router_score = RouterScore::kSoftmaxOfTopK;
                       b.ffn.router_bias = b.ffn.up_bias = b.ffn.down_bias = true;
                       b.ffn.activation = Activation::kClampedSwiglu;
                       b.ffn.clamp = 1.0f;
                     }
                   })});
  for (const uint32_t q_lora_rank : {0u, 32u}) {
    ModelConfig config = TinyConfig({});
    config.ropes[0].rope_dim = 16;
    config.ropes[0].layout = RopeLayout::kInterleaved;
    for (BlockSpec& b : config.blocks) {
      b.attention.kind = AttentionKind::kLatent;
      b.attention.n_kv_heads = b.attention.n_heads;
      b.attention.head_dim = 32 + 16;
      b.attention.value_dim = 32;
      b.attention.q_lora_rank = q_lora_rank;
      b.attention.kv_lora_rank = 64;
      b.attention.latent_norm = {.kind = NormKind::kRmsNorm, .eps = 1e-6f, .has_gain = true};
    }
    cases.push_back({q_lora_rank == 0 ? "latent attention" : "latent attention, low-rank queries", config});
  }
  return cases;
}

float LargestDifference(const std::vector<float>& a, const std::vector<double>& b) {
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]} - b[i]));
  return static_cast<float>(largest);
}

}  // namespace

TEST_SUITE("core") {
  TEST_CASE("Session: f32 weights give the logits of the f64 reference, for every feature of the description") {
    const std::vector<int32_t> ids = SomeIds(23, 96);
    for (const Case& c : Cases()) {
      SUBCASE(c.name) {
        const Status valid = ValidateModelConfig(c.config);
        CAPTURE(std::string(valid.message()));
        REQUIRE(valid.ok());
        const BuiltModel model(c.config);
        RunningModel running(model.view(), {.context_tokens = 64, .chunk_tokens = 7, .n_threads = 2, .logit_rows = 3});
        const auto reference = testing::RunReference(c.config, testing::WeightsOf(model.view()), ids);
        // Rounding of a few hundred f32 sums of width 128 at most, each with logits of order 1.
        CHECK(LargestDifference(running.AllLogits(ids), reference.logits) < 5e-5f);
      }
    }
  }

  TEST_CASE("Session: the same bits for any chunk, any threads, and one token after the other") {
    const std::vector<int32_t> ids = SomeIds(41, 96);
    for (const DType type : {DType::kF32, DType::kF16, DType::kQ8, DType::kQ4}) {
      for (const Case& c : Cases()) {
        const std::string name = std::string(DTypeName(type)) + ", " + c.name;
        SUBCASE(name.c_str()) {
          const BuiltModel model(c.config, BuiltModel::WithType(type));
          RunningModel whole(model.view(), {.context_tokens = 64, .chunk_tokens = 64, .logit_rows = 64});
          const std::vector<float> expected = whole.AllLogits(ids);
          for (const auto& [chunk, threads] : {std::pair{1u, 1u}, {7u, 2u}, {64u, 3u}}) {
            CAPTURE(chunk);
            CAPTURE(threads);
            RunningModel other(model.view(),
                               {.context_tokens = 64, .chunk_tokens = chunk, .n_threads = threads, .logit_rows = 5});
            const std::vector<float> found = other.AllLogits(ids);
            CHECK(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)) == 0);
            REQUIRE(other.session().Rewind(0).ok());
            for (size_t t = 0; t < ids.size(); ++t) REQUIRE(other.session().Decode(ids[t]).ok());
            CHECK(std::memcmp(other.session().logits().data(), expected.data() + 40 * 96, 96 * sizeof(float)) == 0);
          }
        }
      }
    }
  }

  TEST_CASE("Session: quantized weights stay near the reference of the same weights") {
    const std::vector<int32_t> ids = SomeIds(23, 96);
    for (const DType type : {DType::kQ8, DType::kQ4}) {
      for (const Case& c : Cases()) {
        const std::string name = std::string(DTypeName(type)) + ", " + c.name;
        SUBCASE(name.c_str()) {
          const BuiltModel model(c.config, BuiltModel::WithType(type));
          RunningModel running(model.view(), {.context_tokens = 64,
                                              .chunk_tokens = 16,
                                              .n_threads = 1,
                                              .logit_rows = 4,
                                              .kv = SessionOptions::Kv::kF32});
          const auto reference = testing::RunReference(c.config, testing::WeightsOf(model.view()), ids);
          const std::vector<float> found = running.AllLogits(ids);
          double error = 0.0, power = 0.0;
          for (size_t i = 0; i < found.size(); ++i) {
            error += (found[i] - reference.logits[i]) * (found[i] - reference.logits[i]);
            power += reference.logits[i] * reference.logits[i];
          }
          // Only the activations are rounded here: 8 bits a row, a relative error of about 1 % a product in these
          // narrow layers. A wrong rotation, block or scale gives an error near 1. Experts may change: see below.
          const bool routed = c.config.blocks[0].ffn.n_experts > 0;
          CHECK(std::sqrt(error / power) < (routed ? 0.25 : 0.06));
        }
      }
    }
  }

  TEST_CASE("Session: an int8 cache stays near the reference and gives the same bits for any chunk") {
    const std::vector<int32_t> ids = SomeIds(41, 96);
    for (const Case& c : Cases()) {
      SUBCASE(c.name) {
        const BuiltModel model(c.config);
        SessionOptions options = {.context_tokens = 64, .chunk_tokens = 64, .logit_rows = 64};
        options.kv = SessionOptions::Kv::kInt8;
        RunningModel running(model.view(), options);
        const std::vector<float> found = running.AllLogits(ids);
        const auto reference = testing::RunReference(c.config, testing::WeightsOf(model.view()), ids);
        double error = 0.0, power = 0.0;
        for (size_t i = 0; i < found.size(); ++i) {
          error += (found[i] - reference.logits[i]) * (found[i] - reference.logits[i]);
          power += reference.logits[i] * reference.logits[i];
        }
        // A rotated row of 16 normal values has a largest one of about twice their deviation: steps of 2 / 127 of it,
        // an error of a twelfth of a step squared, for keys and values of two layers. A rotation that is missing on one
        // side gives errors of order 1. Experts may change.
        const bool routed = c.config.blocks[0].ffn.n_experts > 0;
        CHECK(std::sqrt(error / power) < (routed ? 0.25 : 4 * 2.0 / 127 / std::sqrt(12.0)));
        options.chunk_tokens = 7;
        options.n_threads = 2;
        RunningModel chunked(model.view(), options);
        const std::vector<float> again = chunked.AllLogits(ids);
        CHECK(std::memcmp(again.data(), found.data(), found.size() * sizeof(float)) == 0);
      }
    }
  }

  TEST_CASE("Session: the last logits are the same whether or not those before were asked for") {
    const std::vector<int32_t> ids = SomeIds(41, 96);
    for (const Case& c : Cases()) {
      SUBCASE(c.name) {
        const BuiltModel model(c.config);
        RunningModel running(model.view(), {.context_tokens = 64, .chunk_tokens = 9, .logit_rows = 4});
        const std::vector<float> all = running.AllLogits(ids);
        const size_t vocab = c.config.vocab_size;
        Session& session = running.session();
        REQUIRE(session.Rewind(0).ok());
        REQUIRE(session.Prefill(ids).ok());
        const auto last = session.logits();
        REQUIRE(last.size() == vocab);
        CHECK(std::memcmp(last.data(), all.data() + all.size() - vocab, vocab * sizeof(float)) == 0);

        // From the middle of a chunk on.
        struct Seen {
          size_t vocab;
          std::vector<float> logits;
        } seen = {vocab, {}};
        const LogitsSink sink = {.function =
                                     [](void* context, uint32_t, const float* logits, uint32_t n_rows) {
                                       auto* s = static_cast<Seen*>(context);
                                       s->logits.insert(s->logits.end(), logits, logits + n_rows * s->vocab);
                                     },
                                 .context = &seen,
                                 .from_pos = 22};
        REQUIRE(session.Rewind(0).ok());
        REQUIRE(session.Prefill(ids, {}, sink).ok());
        REQUIRE(seen.logits.size() == (ids.size() - 22) * vocab);
        CHECK(std::memcmp(seen.logits.data(), all.data() + 22 * vocab, seen.logits.size() * sizeof(float)) == 0);
      }
    }
  }

  TEST_CASE("Session: a full context, ids outside the vocabulary and no ids are refused and change nothing") {
    const BuiltModel model(TinyConfig({}));
    RunningModel running(model.view(), {.context_tokens = 10, .chunk_tokens = 4});
    Session& session = running.session();
    const std::vector<int32_t> ids = SomeIds(8, 96);
    REQUIRE(session.Prefill(ids).ok());
    CHECK(session.remaining() == 2);
    const Status full = session.Prefill(std::span(ids).first(3));
    CHECK(full.code() == StatusCode::kContextFull);
    CHECK(full.value() == 2);
    CHECK(session.position() == 8);
    const int32_t wrong[] = {1, 96};
    CHECK(session.Prefill(wrong).code() == StatusCode::kInvalidArgument);
    CHECK(session.Prefill(wrong).value() == 1);
    CHECK(session.Decode(-1).code() == StatusCode::kInvalidArgument);
    CHECK(session.Prefill({}).code() == StatusCode::kInvalidArgument);
    CHECK(session.position() == 8);
    REQUIRE(session.Decode(3).ok());
    REQUIRE(session.Decode(3).ok());
    CHECK(session.Decode(3).code() == StatusCode::kContextFull);
  }

  TEST_CASE("Session: a rewound sequence goes on with the bits of a fresh one") {
    for (const uint32_t window : {0u, 8u}) {
      CAPTURE(window);
      const BuiltModel model(TinyConfig({.n_layers = 3, .window = window}));
      const std::vector<int32_t> ids = SomeIds(100, 96);
      RunningModel running(model.view(), {.context_tokens = 128, .chunk_tokens = 16});
      Session& session = running.session();
      REQUIRE(session.Prefill(std::span(ids).first(60)).ok());
      REQUIRE(session.Rewind(30).ok());
      CHECK(session.logits().empty());
      const std::vector<int32_t> other = SomeIds(20, 96, 99);
      REQUIRE(session.Prefill(other).ok());
      const std::vector<float> found(session.logits().begin(), session.logits().end());
      std::vector<int32_t> joined(ids.begin(), ids.begin() + 30);
      joined.insert(joined.end(), other.begin(), other.end());
      REQUIRE(session.Rewind(0).ok());
      REQUIRE(session.Prefill(joined).ok());
      CHECK(std::memcmp(found.data(), session.logits().data(), found.size() * sizeof(float)) == 0);
      CHECK(session.Rewind(51).code() == StatusCode::kInvalidArgument);
    }
  }

  TEST_CASE("Session: rings give the bits of a full cache before, at and after the window's edge and the wrap") {
    const ModelConfig config = TinyConfig({.n_layers = 3, .context_length = 256, .window = 8});
    const BuiltModel model(config);
    const std::vector<int32_t> ids = SomeIds(200, 96);
    // One chunk for all: its ring holds every position, so that nothing wraps.
    RunningModel full(model.view(), {.context_tokens = 256, .chunk_tokens = 256, .logit_rows = 8});
    const std::vector<float> expected = full.AllLogits(ids);
    const auto reference = testing::RunReference(config, testing::WeightsOf(model.view()), ids);
    CHECK(LargestDifference(expected, reference.logits) < 5e-5f);
    for (const uint32_t chunk : {1u, 16u}) {
      CAPTURE(chunk);
      RunningModel ring(model.view(), {.context_tokens = 256, .chunk_tokens = chunk});
      uint32_t smallest = 256;
      for (const ops::KvLayout& layout : ring.plan().kv) smallest = std::min(smallest, layout.shape.capacity);
      REQUIRE(smallest == 64);  // 200 positions go three times around
      const std::vector<float> found = ring.AllLogits(ids);
      for (const size_t pos : {0u, 6u, 7u, 8u, 9u, 63u, 64u, 65u, 71u, 72u, 127u, 128u, 199u}) {
        CAPTURE(pos);
        CHECK(std::memcmp(found.data() + pos * 96, expected.data() + pos * 96, 96 * sizeof(float)) == 0);
      }
      CHECK(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)) == 0);
    }
  }

  TEST_CASE("Session: a ring that no longer holds the window refuses to rewind") {
    const BuiltModel model(TinyConfig({.n_layers = 2, .window = 8}));
    RunningModel running(model.view(), {.context_tokens = 256, .chunk_tokens = 16});
    const std::vector<int32_t> ids = SomeIds(200, 96);
    REQUIRE(running.session().Prefill(ids).ok());
    CHECK(running.session().Rewind(100).code() == StatusCode::kUnsupported);
    CHECK(running.session().position() == 200);
    CHECK(running.session().Rewind(199).ok());
    CHECK(running.session().Rewind(0).ok());
  }

  TEST_CASE("Session: memory that is too small or misaligned is a clean error") {
    const BuiltModel model(TinyConfig({}));
    auto pool = ops::ThreadPool::Create(1);
    REQUIRE(pool.ok());
    auto plan = MakePlan(model.view(), {.context_tokens = 32, .chunk_tokens = 8});
    REQUIRE(plan.ok());
    struct alignas(64) Line {
      std::byte bytes[64];
    };
    std::vector<Line> packed(plan->packed.total_bytes / 64), memory(plan->memory.session / 64 + 1);
    const std::span packed_bytes = {packed[0].bytes, plan->packed.total_bytes};
    REQUIRE(PackWeights(model.view(), plan->packed, packed_bytes, {}).ok());
    const uint64_t needed = plan->memory.session;
    for (uint64_t bytes = 64; bytes <= needed; bytes += std::max<uint64_t>(64, needed / 37 / 64 * 64)) {
      const auto session = Session::Create(model.view(), *plan, packed_bytes, *pool, {memory[0].bytes, bytes});
      if (bytes < needed) CHECK(session.status().code() == StatusCode::kOutOfMemory);
    }
    CHECK(Session::Create(model.view(), *plan, packed_bytes, *pool, {memory[0].bytes, needed}).ok());
    CHECK(Session::Create(model.view(), *plan, packed_bytes, *pool, {memory[0].bytes + 8, needed}).status().code() ==
          StatusCode::kInvalidArgument);
    // Packed bytes of nothing are never trusted.
    std::fill(packed[0].bytes, packed[0].bytes + 64, std::byte{0});
    CHECK(Session::Create(model.view(), *plan, packed_bytes, *pool).status().code() == StatusCode::kInvalidModel);
  }

  TEST_CASE("Session: a prefill that is stopped keeps the chunks that were done") {
    const BuiltModel model(TinyConfig({}));
    RunningModel running(model.view(), {.context_tokens = 64, .chunk_tokens = 8});
    const std::vector<int32_t> ids = SomeIds(40, 96);
    const PrefillProgress stop = {.function = [](void*, uint32_t done, uint32_t) { return done < 16; },
                                  .context = nullptr};
    CHECK(running.session().Prefill(ids, stop).code() == StatusCode::kCancelled);
    CHECK(running.session().position() == 16);
    REQUIRE(running.session().Prefill(std::span(ids).subspan(16)).ok());
    const std::vector<float> found(running.session().logits().begin(), running.session().logits().end());
    const std::vector<float> expected = running.AllLogits(ids);
    CHECK(std::memcmp(found.data(), expected.data() + 39 * 96, 96 * sizeof(float)) == 0);
  }
}

}  // namespace linnet
