#include "core/plan.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/support/running_model.h"
#include "tests/support/tiny_model.h"

namespace linnet {

TEST_SUITE("core") {
  TEST_CASE("AssignOffsets: buffers alive at the same time never overlap, others share bytes") {
    std::vector<PlanBuffer> buffers;
    uint32_t state = 1;
    for (int i = 0; i < 200; ++i) {
      state = state * 1664525u + 1013904223u;
      const uint32_t first = (state >> 8) % 50, length = (state >> 20) % 9;
      buffers.push_back({.name = "b",
                         .use = BufferUse::kActivation,
                         .bytes = 1 + (state >> 12) % 5000,
                         .first_step = first,
                         .last_step = first + length});
    }
    const uint64_t arena = AssignOffsets(buffers, BufferUse::kActivation);
    uint64_t sum = 0;
    for (size_t i = 0; i < buffers.size(); ++i) {
      CHECK(buffers[i].offset % 64 == 0);
      CHECK(buffers[i].offset + buffers[i].bytes <= arena);
      sum += buffers[i].bytes;
      for (size_t j = 0; j < i; ++j) {
        const bool alive =
            buffers[i].first_step <= buffers[j].last_step && buffers[j].first_step <= buffers[i].last_step;
        const bool apart = buffers[i].offset + buffers[i].bytes <= buffers[j].offset ||
                           buffers[j].offset + buffers[j].bytes <= buffers[i].offset;
        CHECK((!alive || apart));
      }
    }
    CHECK(arena < sum / 2);
  }

  TEST_CASE("MakePlan: every buffer is placed, layers share activations, and the classes sum to the session") {
    const testing::BuiltModel shallow(testing::TinyConfig({.n_layers = 2}));
    const testing::BuiltModel deep(testing::TinyConfig({.n_layers = 12}));
    const SessionOptions options = {.context_tokens = 64, .chunk_tokens = 16, .n_threads = 2};
    const auto a = MakePlan(shallow.view(), options), b = MakePlan(deep.view(), options);
    REQUIRE(a.ok());
    REQUIRE(b.ok());
    CHECK(a->memory.activations == b->memory.activations);
    CHECK(6 * a->memory.kv_cache == b->memory.kv_cache);
    for (const Plan* plan : {&*a, &*b}) {
      const MemoryPlan& m = plan->memory;
      CHECK(m.session == m.kv_cache + m.activations + m.scratch + m.logits);
      for (const PlanBuffer& buffer : plan->prefill.buffers) {
        CHECK(buffer.first_step <= buffer.last_step);
        CHECK(buffer.last_step < plan->prefill.steps.size());
      }
    }
    // 2 layers, 2 kv heads, keys and values of 16, f32.
    CHECK(a->memory.kv_cache == 2u * 64 * 2 * (16 + 16) * 4);
  }

  TEST_CASE("MakePlan: options out of range are refused, defaults are told") {
    const testing::BuiltModel model(testing::TinyConfig({}));
    CHECK(MakePlan(model.view(), {.n_threads = 0}).status().code() == StatusCode::kInvalidArgument);
    CHECK(MakePlan(model.view(), {.context_tokens = kMaxContext + 1}).status().code() == StatusCode::kInvalidArgument);
    const auto plan = MakePlan(model.view(), {});
    REQUIRE(plan.ok());
    CHECK(plan->options.context_tokens == 128);
    CHECK(plan->options.chunk_tokens == 128);
    CHECK(plan->kv_type == ops::KvType::kF32);
    const testing::BuiltModel quantized(testing::TinyConfig({}), testing::BuiltModel::WithType(DType::kQ8));
    const auto smaller = MakePlan(quantized.view(), {});
    REQUIRE(smaller.ok());
    CHECK(smaller->kv_type == ops::KvType::kF16);
    CHECK(2 * smaller->memory.kv_cache == plan->memory.kv_cache);
  }

  TEST_CASE("MakePlan: window layers keep a ring, not the context") {
    const testing::BuiltModel model(testing::TinyConfig({.n_layers = 2, .context_length = 4096, .window = 64}));
    const auto plan = MakePlan(model.view(), {.context_tokens = 4096, .chunk_tokens = 32});
    REQUIRE(plan.ok());
    const auto [small, large] = std::minmax(plan->kv[0].shape.capacity, plan->kv[1].shape.capacity);
    CHECK(small == 128);  // 64 + 32 - 1 positions in whole blocks of 64
    CHECK(large == 4096);
  }
}

}  // namespace linnet
