// What steps cost: against what a description counts, and against the plan's own bytes.
#include "core/step_cost.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "core/count.h"
#include "tests/support/running_model.h"
#include "tests/support/small_config.h"
#include "tests/support/tiny_model.h"

namespace linnet {
namespace {

using namespace linnet::testing;

Plan PlanOf(const ModelView& model, uint32_t context, uint32_t chunk) {
  auto plan = MakePlan(model, {.context_tokens = context, .chunk_tokens = chunk, .n_threads = 1});
  REQUIRE(plan.ok());
  return std::move(plan).value();
}

TEST_SUITE("core") {
  TEST_CASE("CostOfDecode: multiply-adds are half of count's FLOPs") {
    ModelConfig config = SmallConfig();
    SUBCASE("dense") {}
    SUBCASE("experts") { config = SmallMixtureConfig(); }
    SUBCASE("latent attention") { config = SmallLatentConfig(); }
    SUBCASE("window") { config.blocks[0].attention.window = 5; }
    const uint32_t context = 40;
    const BuiltModel model(config);
    const Plan plan = PlanOf(model.view(), context, 8);
    for (const uint32_t tokens : {1u, 4u, 40u}) {
      CAPTURE(tokens);
      const auto count = CountModel(config, {.context_tokens = tokens});
      REQUIRE(count.ok());
      const StepCost cost = CostOfDecode(model.view(), plan, tokens - 1, 1);
      CHECK(2 * cost.multiply_adds() == count->flops.last);
      CHECK(cost.int8_multiply_adds == 0);
    }
  }

  TEST_CASE("CostOfPrefill: products grow with the tokens, the head runs once, chunks read weights again") {
    const BuiltModel model(SmallConfig(), BuiltModel::WithType(DType::kQ8));
    const Plan plan = PlanOf(model.view(), 64, 16);
    const uint64_t head = uint64_t{model.view().config().vocab_size} * model.view().config().model_dim;
    const StepCost one = CostOfPrefill(model.view(), plan, 0, 1);
    const StepCost chunk = CostOfPrefill(model.view(), plan, 0, 16);
    const StepCost three = CostOfPrefill(model.view(), plan, 0, 33);
    CHECK(one == CostOfDecode(model.view(), plan, 0, 1));
    CHECK(chunk.int8_multiply_adds - head == 16 * (one.int8_multiply_adds - head));
    CHECK(three.int8_multiply_adds - head == 33 * (one.int8_multiply_adds - head));
    // Embedding rows come with the tokens, matrices with the chunks, the head once.
    const ModelConfig& config = model.view().config();
    const uint64_t row = config.model_dim + sizeof(float);
    const TensorView* table = model.view().Find(TensorRole::kHead);
    REQUIRE(table != nullptr);
    const auto index = static_cast<size_t>(table - model.view().tensors().data());
    const uint64_t head_bytes = plan.packed.matrices[static_cast<size_t>(plan.packed.first_of_tensor[index])].bytes;
    const uint64_t body = one.weight_bytes - head_bytes - row;
    CHECK(three.weight_bytes == 3 * body + head_bytes + 33 * row);
    // In chunks or at once, attention's pairs are the same.
    CHECK(three.float_multiply_adds ==
          CostOfPrefill(model.view(), PlanOf(model.view(), 64, 64), 0, 33).float_multiply_adds);
  }

  TEST_CASE("CostOfDecode: a step reads every packed matrix once") {
    const BuiltModel model(SmallConfig(), BuiltModel::WithType(DType::kQ4));
    const Plan plan = PlanOf(model.view(), 64, 16);
    uint64_t matrices = 0;
    for (const PackedMatrix& matrix : plan.packed.matrices) matrices += matrix.bytes;
    const TensorView* table = model.view().Find(TensorRole::kTokenEmbedding);
    REQUIRE(table != nullptr);
    const uint64_t row = (table->data.size() + table->scales.size()) / table->rows();
    CHECK(CostOfDecode(model.view(), plan, 0, 1).weight_bytes == matrices + row);
  }

  TEST_CASE("CostOfStep: the cache is written once a token and read up to the window") {
    ModelConfig config = SmallConfig();
    uint64_t visible = 21;
    SUBCASE("everything") {}
    SUBCASE("window") { config.blocks[0].attention.window = 5, visible = 5; }
    const BuiltModel model(config);
    const Plan plan = PlanOf(model.view(), 64, 16);
    uint64_t position_bytes = 0;
    for (const ops::KvLayout& layout : plan.kv) position_bytes += layout.bytes / layout.shape.capacity;
    CHECK(CostOfDecode(model.view(), plan, 20, 1).kv_bytes == (visible + 1) * position_bytes);
    const StepCost two = CostOfDecode(model.view(), plan, 20, 2);
    StepCost sum = CostOfDecode(model.view(), plan, 20, 1);
    sum += CostOfDecode(model.view(), plan, 21, 1);
    CHECK(two == sum);
  }
}

}  // namespace
}  // namespace linnet
