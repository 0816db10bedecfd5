#include "core/trace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "formats/convert/convert.h"
#include "formats/linnet/model_file.h"
#include "tests/platforms/temporary_folder.h"
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

// A model whose tensors of one role are zero.
formats::ModelFile WithZero(const ModelConfig& config, TensorRole role) {
  testing::TinyCheckpoint checkpoint(config);
  for (const TensorRequirement& tensor : RequiredTensors(config)) {
    if (tensor.role != role) continue;
    for (uint64_t i = 0; i < tensor.dims[0] * tensor.dims[1]; ++i) checkpoint.SetWeight(role, tensor.layer, i, 0.0f);
  }
  const testing::TemporaryFolder folder;
  const std::string path = folder / "model.linnet";
  formats::ConvertReport report;
  REQUIRE(formats::Convert(checkpoint, testing::BuiltModel::WithType(DType::kF32), path, {}, &report, nullptr).ok());
  auto file = formats::ModelFile::Open(path, nullptr);
  REQUIRE(file.ok());
  return std::move(file).value();
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
    // With the output matrix of one sub-layer zero, the whole step of a layer is the other's.
    for (const TensorRole zero : {TensorRole::kAttentionOut, TensorRole::kFfnDown}) {
      for (const bool parallel : {false, true}) {
        ModelConfig config = testing::TinyConfig({.n_layers = 1});
        config.blocks[0].branch_scale = 0.25f;
        config.blocks[0].parallel = config.blocks[0].parallel_shared_norm = parallel;
        const formats::ModelFile file = WithZero(config, zero);
        testing::RunningModel running(file.view(), {.context_tokens = 64, .chunk_tokens = 4});
        const std::vector<int32_t> ids = testing::SomeIds(6, config.vocab_size);
        const Traced traced = Trace(running.session(), config, ids);
        const std::vector<float>& gone = zero == TensorRole::kFfnDown ? traced.ffn : traced.attention;
        const std::vector<float>& left = zero == TensorRole::kFfnDown ? traced.attention : traced.ffn;
        const size_t width = config.model_dim;
        for (size_t t = 0; t < ids.size(); ++t) {
          const auto in = std::span(traced.stream).subspan(t * width, width);
          const auto out = std::span(traced.stream).subspan((ids.size() + t) * width, width);
          std::vector<float> step(width);
          for (size_t i = 0; i < width; ++i) step[i] = out[i] - in[i];
          CHECK(gone[t] == 0.0f);
          CHECK(left[t] > 0.01f);
          CHECK(left[t] == doctest::Approx(Norm(step) / Norm(in)).epsilon(1e-4));
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
        const std::span<const float> next = other.session().logits();
        CHECK(std::memcmp(next.data(), session.logits().data(), next.size() * sizeof(float)) == 0);
      }
    }
  }

  TEST_CASE("TraceStream, ReadLens: wrong sizes and wrong prompts are refused") {
    const ModelConfig config = testing::TinyConfig({});
    const testing::BuiltModel model(config);
    testing::RunningModel running(model.view(), {.context_tokens = 8});
    const std::vector<int32_t> many = testing::SomeIds(9, config.vocab_size);
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
