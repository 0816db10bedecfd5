// Which type and rotation each tensor gets.

#include <doctest/doctest.h>

#include <string>

#include "formats/convert/convert.h"
#include "formats/convert/tensor_plan.h"
#include "tests/support/tiny_model.h"

namespace linnet::formats {
namespace {

using namespace linnet::testing;

TensorPlan PlanOf(const Checkpoint& checkpoint, const ConvertOptions& options, TensorRole role) {
  Diagnostic diagnostic;
  const auto plans = PlanTensors(checkpoint, options, &diagnostic);
  REQUIRE_MESSAGE(plans.ok(), diagnostic.text());
  for (const TensorPlan& plan : *plans) {
    if (plan.spec.role == role) return plan;
  }
  FAIL("no such tensor");
  return {};
}

TinyCheckpoint Large() {
  TinyModelOptions model;
  model.vocab_size = 1u << 18;
  model.model_dim = 2048;  // the tables alone have more than 500M parameters
  model.n_heads = 32;
  model.n_kv_heads = 8;
  model.head_dim = 64;
  model.ffn_dim = 5632;
  return TinyCheckpoint(TinyConfig(model));
}

TEST_SUITE("formats") {
  TEST_CASE("PlanTensors: the automatic type follows size and source") {
    const TinyCheckpoint small(TinyConfig({}));
    CHECK(PlanOf(small, {}, TensorRole::kFfnDown).spec.dtype == DType::kQ8);
    TinyCheckpoint large = Large();
    CHECK(PlanOf(large, {}, TensorRole::kFfnDown).spec.dtype == DType::kQ4);
    CHECK(PlanOf(large, {}, TensorRole::kFfnDown).spec.block_size == 32);
    CHECK(PlanOf(large, {}, TensorRole::kTokenEmbedding).spec.dtype == DType::kQ8);
    CHECK(PlanOf(large, {}, TensorRole::kHead).spec.dtype == DType::kQ8);
    for (const formats::SourceType type : {formats::SourceType{"Q4_1", 5.0}, {"Q5_0", 5.5}, {"Q5_1", 6.0}}) {
      large.set_source_type(type);
      CHECK(PlanOf(large, {}, TensorRole::kFfnDown).spec.dtype == DType::kQ8);
    }
    large.set_source_type({"Q6_K", 6.5625});
    CHECK(PlanOf(large, {}, TensorRole::kFfnDown).spec.dtype == DType::kQ4);
  }

  TEST_CASE("PlanTensors: rotates by the largest power of two, up to the limit") {
    const TinyCheckpoint large = Large();
    CHECK(PlanOf(large, {}, TensorRole::kQkv).spec.rotation_block == 2048);
    CHECK(PlanOf(large, {}, TensorRole::kFfnDown).spec.rotation_block == 512);  // 5632 = 11 * 512
    CHECK(PlanOf(large, {}, TensorRole::kHead).spec.rotation_block == 2048);
    CHECK(PlanOf(large, {}, TensorRole::kTokenEmbedding).spec.rotation_block == 0);
    ConvertOptions options;
    options.rotate = false;
    CHECK(PlanOf(large, options, TensorRole::kQkv).spec.rotation_block == 0);
    options = {};
    options.weights = DType::kF16;
    CHECK(PlanOf(large, options, TensorRole::kQkv).spec.rotation_block == 0);
    TinyModelOptions wide;
    wide.ffn_dim = 16384;
    CHECK(PlanOf(TinyCheckpoint(TinyConfig(wide)), {}, TensorRole::kFfnDown).spec.rotation_block == kMaxRotationBlock);
    TinyModelOptions narrow;
    narrow.ffn_dim = 8 * 31;
    CHECK(PlanOf(TinyCheckpoint(TinyConfig(narrow)), {}, TensorRole::kFfnDown).spec.rotation_block == 0);
  }

  TEST_CASE("PlanTensors: the table of a tied model is rotated and has one type") {
    TinyModelOptions model;
    model.tied_head = true;
    const TinyCheckpoint tied(TinyConfig(model));
    const TensorPlan table = PlanOf(tied, {}, TensorRole::kTokenEmbedding);
    CHECK(table.spec.dtype == DType::kQ8);
    CHECK(table.spec.rotation_block == 64);
    ConvertOptions options;
    options.head = DType::kF16;
    CHECK(PlanOf(tied, options, TensorRole::kTokenEmbedding).spec.dtype == DType::kF16);
    options.embedding = DType::kQ8;
    Diagnostic diagnostic;
    CHECK(PlanTensors(tied, options, &diagnostic).status().code() == StatusCode::kInvalidArgument);
    CHECK(std::string(diagnostic.text()).find("q8 and f16") != std::string::npos);
    CHECK(PlanTensors(TinyCheckpoint(TinyConfig({})), options, nullptr).ok());
  }

  TEST_CASE("PlanTensors: widths that no block divides fall back, and tell") {
    TinyModelOptions model;
    model.model_dim = 64;
    model.ffn_dim = 96;                    // 32 divides it, 64 and 128 do not
    model.n_heads = model.n_kv_heads = 3;  // attention output: 48 wide
    const TinyCheckpoint checkpoint(TinyConfig(model));
    ConvertOptions options;
    options.weights = DType::kQ4;
    options.block_size = 64;
    CHECK(PlanOf(checkpoint, options, TensorRole::kQkv).spec.block_size == 64);
    const TensorPlan down = PlanOf(checkpoint, options, TensorRole::kFfnDown);
    CHECK(down.spec.dtype == DType::kQ4);
    CHECK(down.spec.block_size == 32);
    CHECK(down.wanted_block_size == 64);
    const TensorPlan out = PlanOf(checkpoint, options, TensorRole::kAttentionOut);
    CHECK(out.spec.dtype == DType::kQ8);
    CHECK(out.spec.block_size == 0);
    CHECK(out.spec.rotation_block == 16);
    CHECK(out.wanted == DType::kQ4);
  }

  TEST_CASE("PlanTensors: refuses an unknown block size") {
    ConvertOptions options;
    options.block_size = 48;
    Diagnostic diagnostic;
    CHECK(PlanTensors(TinyCheckpoint(TinyConfig({})), options, &diagnostic).status().code() ==
          StatusCode::kInvalidArgument);
    CHECK(std::string(diagnostic.text()).find("48") != std::string::npos);
  }

  TEST_CASE("ParseWeightType: knows every type and auto") {
    std::optional<DType> type;
    CHECK(ParseWeightType("q4", &type));
    CHECK(type == DType::kQ4);
    CHECK(ParseWeightType("bf16", &type));
    CHECK(type == DType::kBF16);
    CHECK(ParseWeightType("auto", &type));
    CHECK_FALSE(type.has_value());
    CHECK_FALSE(ParseWeightType("Q4", &type));
    CHECK_FALSE(ParseWeightType("", &type));
  }
}

}  // namespace
}  // namespace linnet::formats
