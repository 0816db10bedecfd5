// Every family's golden checkpoint against the outputs that transformers gave (shared/golden/README.md).
#include "tests/golden/golden.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/running_model.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using testing::ConvertGolden;
using testing::Golden;
using testing::LargestDifference;
using testing::RunningModel;

std::vector<int32_t> Greedy(Session& session, std::span<const int32_t> prompt, size_t count) {
  REQUIRE(session.Rewind(0).ok());
  REQUIRE(session.Prefill(prompt).ok());
  std::vector<int32_t> ids;
  while (ids.size() < count) {
    const auto logits = session.logits();
    ids.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    if (ids.size() < count) REQUIRE(session.Decode(ids.back()).ok());
  }
  return ids;
}

void CheckGreedy(const Golden& golden, Session& session, std::span<const int32_t> prompt) {
  const auto expected = golden.Values<int32_t>("greedy_ids"), cached = golden.Values<int32_t>("greedy_ids_cached");
  const std::vector<int32_t> found = Greedy(session, prompt, expected.size());
  // Where the frequencies follow the length, a cache keeps keys as they were rotated.
  CHECK((cached.empty() ? found == expected : found == cached));
}

}  // namespace

TEST_SUITE("golden") {
  TEST_CASE("Goldens: f32 logits, greedy ids, both spellings, any chunk and threads bit for bit") {
    for (const fs::path& folder : testing::AllGoldens()) {
      for (const bool legacy : {false, true}) {
        const std::string name = folder.filename().string() + (legacy ? ", legacy config" : "");
        SUBCASE(name.c_str()) {
          const Golden golden(folder);
          const auto ids = golden.Values<int32_t>("input_ids");
          const formats::ModelFile file = ConvertGolden(folder, legacy, DType::kF32);
          RunningModel whole(file.view(), {.context_tokens = 64, .chunk_tokens = 64, .logit_rows = 64});
          const std::vector<float> logits = whole.AllLogits(ids);
          CHECK(LargestDifference(logits, golden.Values<float>("logits")) <= testing::kGoldenTolerance);
          CheckGreedy(golden, whole.session(), ids);
          for (const auto& [chunk, threads] : {std::pair{1u, 2u}, {7u, 1u}, {7u, 3u}}) {
            CAPTURE(chunk);
            CAPTURE(threads);
            RunningModel other(file.view(), {.context_tokens = 64, .chunk_tokens = chunk, .n_threads = threads});
            const std::vector<float> found = other.AllLogits(ids);
            CHECK(std::memcmp(found.data(), logits.data(), logits.size() * sizeof(float)) == 0);
            if (chunk == 7 && threads == 1) CheckGreedy(golden, other.session(), ids);
          }
        }
      }
    }
  }

  TEST_CASE("Goldens: f16 and int8 caches and q8 weights stay within their types' errors") {
    for (const fs::path& folder : testing::AllGoldens()) {
      const std::string name = folder.filename().string();
      SUBCASE(name.c_str()) {
        const Golden golden(folder);
        const auto ids = golden.Values<int32_t>("input_ids");
        const auto expected = golden.Values<float>("logits");
        double power = 0.0;
        for (const float v : expected) power += double{v} * v;
        const auto relative_error = [&](const ModelView& view, SessionOptions::Kv kv) {
          RunningModel running(view, {.context_tokens = 64, .chunk_tokens = 16, .kv = kv});
          const std::vector<float> found = running.AllLogits(ids);
          double error = 0.0;
          for (size_t i = 0; i < found.size(); ++i)
            error += (double{found[i]} - expected[i]) * (double{found[i]} - expected[i]);
          return std::sqrt(error / power);
        };
        const formats::ModelFile exact = ConvertGolden(folder, false, DType::kF32);
        // A stored value is off by half a unit of its last place, 2^-11 of it in f16 and 1/254 of the head's largest in
        // int8; a few layers add such errors up, some with gains above one (Gemma). An expert that changes adds its
        // share at once.
        const bool routed = exact.config().blocks.back().ffn.n_experts > 0;
        const double experts = routed ? 0.2 : 0.0;
        CHECK(relative_error(exact.view(), SessionOptions::Kv::kF16) < 16 * std::exp2(-11.0) + experts);
        CHECK(relative_error(exact.view(), SessionOptions::Kv::kInt8) < 16.0 / 254 + experts);
        const formats::ModelFile q8 = ConvertGolden(folder, false, DType::kQ8);
        // Weights and activations of each of about four products a layer are off by 1/254 of a row's largest value.
        const double products = 4.0 * exact.config().n_layers;
        CHECK(relative_error(q8.view(), SessionOptions::Kv::kF32) < std::sqrt(2 * products) * 8.0 / 254 + experts);
      }
    }
  }
}

}  // namespace linnet
