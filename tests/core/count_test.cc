#include "core/count.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/model_view.h"
#include "formats/huggingface/config.h"
#include "tests/support/running_model.h"
#include "tests/support/small_config.h"
#include "tests/support/tiny_model.h"

namespace linnet {
namespace {

using nlohmann::json;

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

ModelConfig Config(const json& config) {
  Diagnostic diagnostic;
  auto result = formats::ReadHuggingFaceConfig(config.dump(), &diagnostic);
  REQUIRE_MESSAGE(result.ok(), std::string(diagnostic.text()));
  return std::move(result).value();
}

ModelCount Count(const ModelConfig& config, uint32_t context = 0, ops::KvType kv = ops::KvType::kF16) {
  const auto count = CountModel(config, {.context_tokens = context, .kv_type = kv});
  REQUIRE(count.ok());
  return *count;
}

ModelConfig Llama31() {
  return Config({{"model_type", "llama"},
                 {"vocab_size", 128256},
                 {"hidden_size", 4096},
                 {"intermediate_size", 14336},
                 {"num_hidden_layers", 32},
                 {"num_attention_heads", 32},
                 {"num_key_value_heads", 8},
                 {"max_position_embeddings", 131072}});
}

ModelConfig Large(uint32_t kv_heads) {
  return Config({{"model_type", "llama"},
                 {"vocab_size", 32000},
                 {"hidden_size", 8192},
                 {"intermediate_size", 28672},
                 {"num_hidden_layers", 80},
                 {"num_attention_heads", 64},
                 {"num_key_value_heads", kv_heads},
                 {"max_position_embeddings", 32768}});
}

constexpr uint64_t kGiB = uint64_t{1} << 30;

}  // namespace

TEST_SUITE("core") {
  TEST_CASE("CountModel: published totals") {
    CHECK(Count(Llama31()).parameters.total == 8'030'261'248u);
    const json qwen = {{"model_type", "qwen2"},    {"vocab_size", 152064},
                       {"hidden_size", 3584},      {"intermediate_size", 18944},
                       {"num_hidden_layers", 28},  {"num_attention_heads", 28},
                       {"num_key_value_heads", 4}, {"max_position_embeddings", 32768}};
    CHECK(Count(Config(qwen)).parameters.total == 7'615'616'512u);
  }

  TEST_CASE("CountModel: every figure of the shared table, exactly") {
    const std::string text = ReadText(std::string(LINNET_SHARED_DIR) + "/golden/param_counts.json");
    const auto table = json::parse(text, nullptr, false);
    if (!table.is_object()) {
      MESSAGE("skipped: no param_counts.json in " LINNET_SHARED_DIR);
      return;
    }
    for (const json& model : table["models"]) {
      const std::string name = model["name"];
      CAPTURE(name);
      const ParameterCount count = Count(Config(model["config"])).parameters;
      const auto check = [&](const char* key, uint64_t found) {
        CAPTURE(key);
        if (model.contains(key)) CHECK(found == model[key].get<uint64_t>());
      };
      check("total_params", count.total);
      check("token_embedding_params", count.token_embedding);
      check("output_head_params", count.output_matrix);
      check("position_embedding_params", count.position_table);
      check("non_embedding_params", count.non_embedding);
      check("routed_expert_params", count.routed_experts);
      check("active_params_per_token", count.active);
      check("active_non_embedding_params_per_token", count.active_non_embedding);
      check("active_params_per_token_without_input_embedding", count.active_without_input_embedding);
      check("router_correction_bias_values", count.selection_bias);
      check("total_params_with_router_correction_bias", count.total + count.selection_bias);
    }
  }

  TEST_CASE("CountModel: the cache of a 70B-class model with and without groups") {
    const ModelCount many = Count(Large(64), 32768), few = Count(Large(8), 32768);
    CHECK(many.kv.context_bytes == 80 * kGiB);
    CHECK(few.kv.context_bytes == 10 * kGiB);
    CHECK(few.kv.token_bytes == 10 * kGiB / 32768);
    CHECK(few.mha.context_bytes == 80 * kGiB);
    CHECK(few.mqa.context_bytes == 80 * kGiB / 64);
    CHECK(many.gqa.context_bytes == 10 * kGiB);  // 8 groups where the model has none
    CHECK(few.mla.context_bytes == uint64_t{2} * (4 * 128 + 64) * 80 * 32768);
    CHECK((few.gqa.is_own && !few.mha.is_own && many.mha.is_own && !many.gqa.is_own));
  }

  TEST_CASE("CountModel: planned bytes are what a plan takes") {
    ModelConfig windowed = testing::TinyConfig({.window = 24});
    for (const ModelConfig& config : {testing::SmallConfig(), testing::SmallLatentConfig(), windowed}) {
      const testing::BuiltModel model(config);
      for (const auto& [kv, type] : {std::pair{SessionOptions::Kv::kF32, ops::KvType::kF32},
                                     {SessionOptions::Kv::kF16, ops::KvType::kF16},
                                     {SessionOptions::Kv::kInt8, ops::KvType::kInt8}}) {
        for (const uint32_t context : {1u, 64u, 100u}) {
          CAPTURE(context);
          const auto plan = MakePlan(model.view(), {.context_tokens = context, .chunk_tokens = 50, .kv = kv});
          REQUIRE(plan.ok());
          const auto count = CountModel(config, {.context_tokens = context, .chunk_tokens = 50, .kv_type = type});
          REQUIRE(count.ok());
          CHECK(count->kv.planned_bytes == plan->memory.kv_cache);
          // A context of whole blocks without windows leaves nothing to round.
          if (context == 64 && config.layer(1).attention.window == 0) {
            CHECK(count->kv.context_bytes == plan->memory.kv_cache);
          }
        }
      }
    }
    // Two layers of 48 latent and 16 rotated values: one row a position, and its scale where it is int8.
    CHECK(Count(testing::SmallLatentConfig(), 64).kv.token_bytes == 2 * 64 * 2);
    CHECK(Count(testing::SmallLatentConfig(), 64, ops::KvType::kInt8).kv.token_bytes == 2 * (64 + 4));
    CHECK(Count(testing::SmallLatentConfig(), 64).mla.is_own);
  }

  TEST_CASE("CountModel: a window layer keeps its window and its arithmetic stops growing there") {
    const ModelConfig config = testing::TinyConfig({.window = 24});  // one of two layers
    const ModelCount short_one = Count(config, 24), long_one = Count(config, 100);
    const uint64_t layer_bytes = 2 * (16 + 16) * 2;  // 2 kv heads of 16, f16
    CHECK(long_one.kv.token_bytes == 2 * layer_bytes);
    CHECK(short_one.kv.context_bytes == 2 * 24 * layer_bytes);
    CHECK(long_one.kv.context_bytes == (24 + 100) * layer_bytes);
    const uint64_t each = 2 * 4 * (16 + 16);  // 4 heads
    CHECK(long_one.flops.attention_last == (24 + 100) * each);
    double mean = 0.0;
    for (int n = 1; n <= 100; ++n) mean += (n + std::min(n, 24)) * static_cast<double>(each) / 100.0;
    CHECK(long_one.flops.attention_mean == doctest::Approx(mean));
  }

  TEST_CASE("CountModel: parts sum to the whole; the rule agrees with the exact mean for a plain model") {
    const ModelCount count = Count(Llama31(), 8192);
    REQUIRE(count.blocks.size() == 1);
    const BlockCount& block = count.blocks[0];
    CHECK(block.n_layers == 32);
    CHECK(block.attention == 4096u * (4096 + 2 * 1024) + 4096u * 4096u);
    CHECK(block.ffn == 3u * 4096 * 14336);
    CHECK(block.norms == 2u * 4096);
    CHECK(32 * (block.attention + block.ffn + block.norms) + 4096 == count.parameters.non_embedding);
    const uint64_t head = 2 * uint64_t{128256} * 4096;
    CHECK(32 * (block.attention_product_flops + block.ffn_flops) + head == count.flops.products);
    CHECK(32 * block.attention_context_flops == count.flops.attention_last);
    CHECK(count.flops.rule == 2 * count.parameters.non_embedding + 2 * uint64_t{32} * 8192 * 4096);
    // The rule leaves the output matrix out and counts norm gains as products; its causal mean misses the diagonal.
    CHECK(static_cast<double>(count.flops.rule + head) == doctest::Approx(count.flops.mean).epsilon(1e-3));
  }

  TEST_CASE("CountModel: mixtures count the chosen experts, the router and the shared expert") {
    const ModelCount count = Count(testing::SmallMixtureConfig(), 64);
    const uint64_t expert = 3 * 32 * 64, shared = 3 * 64 * 64, router = 8 * 64 + 64;
    REQUIRE(count.blocks.size() == 2);
    CHECK(count.parameters.routed_experts == 8 * expert);
    CHECK(count.parameters.active == count.parameters.total - 5 * expert);
    CHECK(count.blocks[1].ffn == 8 * expert + shared + router);
    CHECK(count.blocks[1].ffn_flops == 2 * (3 * expert + shared + router));
  }

  TEST_CASE("CountModel: what does not fit 64 bits is refused") {
    ModelConfig config = testing::SmallConfig();
    config.model_dim = kMaxDim;
    config.n_layers = kMaxLayers;
    config.layer_block.assign(kMaxLayers, 0);
    config.blocks[0].ffn = {.ffn_dim = kMaxDim, .n_experts = kMaxExperts, .top_k = kMaxExperts};
    const auto count = CountModel(config, {.context_tokens = kMaxContext});
    CHECK(count.status().code() == StatusCode::kUnsupported);
    CHECK(CountModel(testing::SmallConfig(), {.context_tokens = kMaxContext + 1}).status().code() ==
          StatusCode::kInvalidArgument);
  }
}

}  // namespace linnet
