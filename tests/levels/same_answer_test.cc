// One build on one instruction set gives the same bits for any number of threads and any chunk, whatever the weights
// and the cache.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/running_model.h"
#include "tests/support/tiny_model.h"

namespace linnet {
namespace {

using testing::BuiltModel;
using testing::RunningModel;
using testing::TinyModelOptions;

constexpr uint32_t kTokens = 70;  // one chunk of 64 and a part of one

struct Weights {
  DType type;
  uint32_t block_size;
};
constexpr Weights kWeights[] = {{DType::kF32, 0}, {DType::kF16, 0}, {DType::kBF16, 0}, {DType::kQ8, 0},
                                {DType::kQ4, 32}, {DType::kQ4, 64}, {DType::kQ4, 128}};

// Widths that every block divides, and outputs that no tile does.
constexpr TinyModelOptions kWide = {
    .vocab_size = 203, .model_dim = 128, .n_heads = 4, .n_kv_heads = 2, .head_dim = 32, .ffn_dim = 384, .window = 24};
// Widths and outputs that leave a rest in every kernel's loops.
constexpr TinyModelOptions kRagged = {
    .vocab_size = 203, .model_dim = 66, .n_heads = 3, .n_kv_heads = 1, .head_dim = 22, .ffn_dim = 102};

std::string NameOf(const Weights& weights) {
  return std::string(DTypeName(weights.type)) +
         (weights.block_size == 0 ? "" : " of " + std::to_string(weights.block_size));
}

formats::ConvertOptions OptionsFor(const Weights& weights) {
  formats::ConvertOptions options = BuiltModel::WithType(weights.type);
  if (weights.block_size != 0) options.block_size = weights.block_size;
  return options;
}

std::vector<float> Logits(const ModelView& model, SessionOptions::Kv kv, uint32_t chunk, uint32_t threads) {
  RunningModel running(
      model,
      {.context_tokens = kTokens + 10, .chunk_tokens = chunk, .n_threads = threads, .logit_rows = chunk, .kv = kv});
  const std::vector<int32_t> ids = testing::SomeIds(kTokens, 203);
  std::vector<float> logits = running.AllLogits(ids);
  // And the last position once more, as an answer is made: token by token.
  if (chunk == 1 && threads <= 2) {
    REQUIRE(running.session().Rewind(0).ok());
    for (const int32_t id : ids) REQUIRE(running.session().Decode(id).ok());
    const auto last = running.session().logits();
    CHECK(std::memcmp(last.data(), logits.data() + (kTokens - 1) * 203, 203 * sizeof(float)) == 0);
  }
  return logits;
}

void CheckSame(const ModelView& model, SessionOptions::Kv kv, std::initializer_list<uint32_t> thread_counts) {
  const std::vector<float> expected = Logits(model, kv, kTokens, 1);
  for (const uint32_t chunk : {1u, 7u, 64u, kTokens}) {
    for (const uint32_t threads : thread_counts) {
      CAPTURE(chunk);
      CAPTURE(threads);
      const std::vector<float> found = Logits(model, kv, chunk, threads);
      CHECK(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)) == 0);
    }
  }
}

}  // namespace

TEST_SUITE("levels") {
  TEST_CASE("Same answer: threads 1 to 4, chunks 1, 7, 64 and all, every type of weights") {
    for (const Weights& weights : kWeights) {
      SUBCASE(NameOf(weights).c_str()) {
        const BuiltModel model(testing::TinyConfig(kWide), OptionsFor(weights));
        CheckSame(model.view(), SessionOptions::Kv::kAuto, {1u, 2u, 3u, 4u});
      }
    }
  }

  TEST_CASE("Same answer: every type of the cache") {
    for (const Weights& weights : {kWeights[0], kWeights[3], kWeights[4]}) {
      for (const auto& [kv, kv_name] : {std::pair{SessionOptions::Kv::kF32, "f32"},
                                        {SessionOptions::Kv::kF16, "f16"},
                                        {SessionOptions::Kv::kInt8, "int8"}}) {
        const std::string name = NameOf(weights) + ", cache " + kv_name;
        SUBCASE(name.c_str()) {
          const BuiltModel model(testing::TinyConfig(kWide), OptionsFor(weights));
          CheckSame(model.view(), kv, {1u, 3u});
        }
      }
    }
  }

  TEST_CASE("Same answer: widths that no vector divides") {
    for (const DType type : {DType::kF32, DType::kQ8}) {
      const std::string name = DTypeName(type);
      SUBCASE(name.c_str()) {
        const BuiltModel model(testing::TinyConfig(kRagged), BuiltModel::WithType(type));
        CheckSame(model.view(), SessionOptions::Kv::kF32, {1u, 4u});
      }
    }
  }
}

}  // namespace linnet
