#include "core/trace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/support/reference_model.h"
#include "tests/support/running_model.h"
#include "tests/support/small_config.h"
#include "tests/support/tiny_model.h"

namespace linnet {
namespace {

struct Traced {
  std::vector<float> stream, norms, attention, ffn;
};

Traced Trace(Session& session, const ModelConfig& config, std::span<const int32_t> ids) {
  const size_t layers = config.n_layers * ids.size(), entries = layers + ids.size();
  Traced traced = {std::vector<float>(entries * config.model_dim), std::vector<float>(entries),
                   std::vector<float>(layers), std::vector<float>(layers)};
  REQUIRE(TraceStream(session, config, ids, {traced.stream, traced.norms, traced.attention, traced.ffn}).ok());
  return traced;
}

// Descriptions whose additions differ: in order, scaled, post-norm, parallel with one norm, a shared expert.
std::vector<ModelConfig> Configs() {
  std::vector<ModelConfig> configs(5, testing::TinyConfig({}));
  configs[1].blocks[0].residual_scale = 1.5f;
  configs[1].blocks[0].branch_scale = 0.25f;
  configs[2].blocks[0].placement = NormPlacement::kPost;
  configs[3].blocks[0].parallel = configs[3].blocks[0].parallel_shared_norm = true;
  configs[3].blocks[0].residual_scale = 0.5f;
  configs[4] = testing::SmallMixtureConfig();
  return configs;
}

double Norm(std::span<const float> row) {
  double sum = 0.0;
  for (const float x : row) sum += double{x} * x;
  return std::sqrt(sum);
}

}  // namespace

TEST_SUITE("core") {
  TEST_CASE("TraceStream: the stream is the reference's, with the same bits for every chunk") {
    for (const ModelConfig& config : Configs()) {
      const testing::BuiltModel model(config);
      const std::vector<int32_t> ids = testing::SomeIds(19, config.vocab_size);
      testing::RunningModel whole(model.view(), {.context_tokens = 64, .chunk_tokens = 64});
      testing::RunningModel parts(model.view(), {.context_tokens = 64, .chunk_tokens = 5, .n_threads = 2});
      const Traced a = Trace(whole.session(), config, ids), b = Trace(parts.session(), config, ids);
      CHECK((a.stream == b.stream && a.norms == b.norms && a.attention == b.attention && a.ffn == b.ffn));
      const auto reference = testing::RunReference(config, testing::WeightsOf(model.view()), ids);
      double largest = 0.0, size = 0.0;
      for (size_t entry = 0, i = 0; entry <= config.n_layers; ++entry) {
        for (const double value : reference.hidden_states[entry]) {
          largest = std::max(largest, std::abs(value - a.stream[i++]));
          size = std::max(size, std::abs(value));
        }
      }
      // A few sums of 64 to 128 products a layer, each off by some 10 ulp at the most.
      CHECK(largest <= 1e-5 * size);
      const size_t rows = a.norms.size();
      for (size_t r = 0; r < rows; ++r) {
        CHECK(a.norms[r] == doctest::Approx(Norm(std::span(a.stream).subspan(r * config.model_dim, config.model_dim))));
      }
    }
  }

  TEST_CASE("TraceStream: shares are the added branch over what it is added to") {
    // With the attention's output matrix zero, the whole step of a layer is its FFN's, and the other way round.
    ModelConfig config = testing::TinyConfig({});
    const std::vector<int32_t> ids = testing::SomeIds(6, config.vocab_size);
    for (const float branch_scale : {1.0f, 0.25f}) {
      for (const bool parallel : {false, true}) {
        config.blocks[0].branch_scale = branch_scale;
        config.blocks[0].parallel = config.blocks[0].parallel_shared_norm = parallel;
        const testing::BuiltModel model(config);
        testing::RunningModel running(model.view(), {.context_tokens = 64, .chunk_tokens = 4});
        const Traced traced = Trace(running.session(), config, ids);
        const size_t width = config.model_dim, n = ids.size();
        for (size_t layer = 0; layer < config.n_layers; ++layer) {
          for (size_t t = 0; t < n; ++t) {
            const auto in = std::span(traced.stream).subspan((layer * n + t) * width, width);
            const auto out = std::span(traced.stream).subspan(((layer + 1) * n + t) * width, width);
            std::vector<float> step(width);
            for (size_t i = 0; i < width; ++i) step[i] = out[i] - in[i];
            // |a + f| <= |a| + |f|, and not below their difference.
            const double attention = traced.attention[layer * n + t] * Norm(in);
            double before_ffn = Norm(in);
            const double ffn_share = traced.ffn[layer * n + t];
            CHECK(attention > 0.0);
            CHECK(ffn_share > 0.0);
            if (!parallel) before_ffn += attention;  // at the most
            CHECK(Norm(step) <= (attention + ffn_share * before_ffn) * (1 + 1e-5));
          }
        }
      }
    }
  }

  TEST_CASE("ReadLens: the last layer's row reads as the run's own logits, whatever the head's type") {
    for (const DType type : {DType::kF32, DType::kQ8, DType::kQ4}) {
      for (const bool tied : {false, true}) {
        const ModelConfig config = testing::TinyConfig({.tied_head = tied});
        const testing::BuiltModel model(config, testing::BuiltModel::WithType(type));
        testing::RunningModel running(model.view(), {.context_tokens = 64, .chunk_tokens = 4});
        const std::vector<int32_t> ids = testing::SomeIds(9, config.vocab_size);
        Session& session = running.session();
        const Traced traced = Trace(session, config, ids);
        const std::vector<float> logits(session.logits().begin(), session.logits().end());
        std::vector<LensToken> top(config.vocab_size);
        REQUIRE(ReadLens(session, std::span(traced.stream).last(config.model_dim), top).ok());
        CHECK(std::memcmp(logits.data(), session.logits().data(), logits.size() * sizeof(float)) == 0);
        CHECK(top[0].logit == *std::max_element(logits.begin(), logits.end()));
        double sum = 0.0;
        for (size_t i = 0; i < top.size(); ++i) {
          CHECK(top[i].logit == logits[static_cast<size_t>(top[i].id)]);
          if (i > 0) CHECK(top[i].logit <= top[i - 1].logit);
          sum += top[i].probability;
        }
        CHECK(sum == doctest::Approx(1.0));

        // Reading changes nothing of the sequence: the next token is that of an untouched session.
        testing::RunningModel other(model.view(), {.context_tokens = 64, .chunk_tokens = 4});
        REQUIRE(other.session().Prefill(ids).ok());
        REQUIRE(other.session().Decode(3).ok());
        REQUIRE(session.position() == ids.size());
        REQUIRE(session.Decode(3).ok());
        CHECK(std::memcmp(other.session().logits().data(), session.logits().data(), logits.size() * sizeof(float)) == 0);
      }
    }
  }

  TEST_CASE("TraceStream, ReadLens: wrong sizes and wrong prompts are refused") {
    const ModelConfig config = testing::TinyConfig({});
    const testing::BuiltModel model(config);
    testing::RunningModel running(model.view(), {.context_tokens = 8});
    const std::vector<int32_t> ids = testing::SomeIds(3, config.vocab_size), many = testing::SomeIds(9, config.vocab_size);
    std::vector<float> stream(3 * 3 * config.model_dim), norms(9), shares(6), wide(config.model_dim + 1);
    const StreamTrace trace = {stream, norms, shares, shares};
    CHECK(TraceStream(running.session(), config, many, trace).code() == StatusCode::kInvalidArgument);
    CHECK(TraceStream(running.session(), config, {}, {}).code() == StatusCode::kInvalidArgument);
    std::vector<LensToken> top(1), none, too_many(config.vocab_size + 1);
    CHECK(ReadLens(running.session(), wide, top).code() == StatusCode::kInvalidArgument);
    CHECK(ReadLens(running.session(), std::span(stream).first(config.model_dim), none).code() ==
          StatusCode::kInvalidArgument);
    CHECK(ReadLens(running.session(), std::span(stream).first(config.model_dim), too_many).code() ==
          StatusCode::kInvalidArgument);
    std::vector<float> big(3 * 9 * config.model_dim), big_norms(27), big_shares(18);
    CHECK(TraceStream(running.session(), config, many, {big, big_norms, big_shares, big_shares}).code() ==
          StatusCode::kContextFull);
    CHECK(running.session().position() == 0);
  }
}

}  // namespace linnet
