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

  TEST_CASE("MakePlan: a budget is used up to the byte and never passed") {
    for (const uint32_t window : {0u, 64u}) {
      const testing::BuiltModel model(testing::TinyConfig({.n_layers = 2, .context_length = 4096, .window = window}));
      SessionOptions options = {.n_threads = 2};
      for (const uint32_t context : {512u, 1024u, 4096u}) {
        CAPTURE(context);
        options.context_tokens = context;
        options.chunk_tokens = 0;
        options.memory_budget = 0;
        const auto free = MakePlan(model.view(), options);
        REQUIRE(free.ok());
        // Exactly enough, beside what the caller keeps: the same plan, found without being told the context.
        options.context_tokens = 0;
        options.other_bytes = 1000;
        options.memory_budget = free->memory.Total() + 1000;
        const auto exact = MakePlan(model.view(), options);
        REQUIRE(exact.ok());
        CHECK(exact->options.context_tokens == context);
        CHECK(exact->options.chunk_tokens == kDefaultChunk);
        CHECK(exact->memory.Total() == free->memory.Total());
        // A byte less: a block of positions less, or a shorter chunk for the least context.
        --options.memory_budget;
        const auto less = MakePlan(model.view(), options);
        REQUIRE(less.ok());
        CHECK(less->memory.Total() + 1000 <= options.memory_budget);
        if (context == kBudgetContext) {  // what the shorter chunk leaves may then go to the context
          CHECK(less->options.chunk_tokens == kDefaultChunk / 2);
          CHECK(less->options.context_tokens >= kBudgetContext);
        } else {
          CHECK(less->options.chunk_tokens == kDefaultChunk);
          CHECK(less->options.context_tokens == context - 64);
        }
      }
    }
  }

  TEST_CASE("MakePlan: the default chunk's rows of the widest product fit a core's cache") {
    const testing::BuiltModel model(testing::TinyConfig({.model_dim = 64, .ffn_dim = 2048}));  // f32: rows of 8 KiB
    const auto chunk = [&](uint64_t cache_bytes) {
      const auto plan = MakePlan(model.view(), {.context_tokens = 4096, .core_cache_bytes = cache_bytes});
      REQUIRE(plan.ok());
      return plan->options.chunk_tokens;
    };
    CHECK(chunk(0) == kDefaultChunk);
    CHECK(chunk(64 * 8192) == 64);
    CHECK(chunk(64 * 8192 - 1) == kSmallestChunk);
    CHECK(chunk(128 * 8192 - 1) == 64);
    CHECK(chunk(1) == kSmallestChunk);
    CHECK(chunk(uint64_t{1} << 30) == kLargestChunk);
    const auto asked = MakePlan(model.view(), {.context_tokens = 100, .chunk_tokens = 7, .core_cache_bytes = 1});
    REQUIRE(asked.ok());
    CHECK(asked->options.chunk_tokens == 7);
  }

  TEST_CASE("MakePlan: with a budget the context reaches the model's own, not only the default") {
    const testing::BuiltModel model(testing::TinyConfig({.context_length = 8000}));
    const auto plan = MakePlan(model.view(), {.memory_budget = uint64_t{1} << 40});
    REQUIRE(plan.ok());
    CHECK(plan->options.context_tokens == 8000);
    CHECK(MakePlan(model.view(), {})->options.context_tokens == kDefaultContext);
  }

  TEST_CASE("MakePlan: what was asked for stays, and a budget that is too small says what it takes") {
    const testing::BuiltModel model(testing::TinyConfig({.context_length = 4096}));
    const auto total = [&](SessionOptions options) { return MakePlan(model.view(), options)->memory.Total(); };
    // A context: the chunk gives way down to one token.
    SessionOptions options = {.context_tokens = 1000};
    options.memory_budget = total({.context_tokens = 1000, .chunk_tokens = 1});
    auto plan = MakePlan(model.view(), options);
    REQUIRE(plan.ok());
    CHECK(plan->options.context_tokens == 1000);
    CHECK(plan->options.chunk_tokens == 1);
    const auto needed = static_cast<int64_t>(options.memory_budget--);
    plan = MakePlan(model.view(), options);
    CHECK(plan.status().code() == StatusCode::kOutOfMemory);
    CHECK(plan.status().value() == needed);
    // A chunk: the context gives way down to one block.
    options = {.chunk_tokens = 100};
    options.memory_budget = total({.context_tokens = 192, .chunk_tokens = 100});
    plan = MakePlan(model.view(), options);
    REQUIRE(plan.ok());
    CHECK(plan->options.context_tokens == 192);
    CHECK(plan->options.chunk_tokens == 100);
    // Nothing: what the smallest of all takes.
    options = {.memory_budget = 1};
    plan = MakePlan(model.view(), options);
    CHECK(plan.status().code() == StatusCode::kOutOfMemory);
    CHECK(plan.status().value() == static_cast<int64_t>(total({.context_tokens = 64, .chunk_tokens = 1})));
    // What the caller keeps alone is more than there is.
    options = {.memory_budget = 1 << 30, .other_bytes = uint64_t{2} << 30};
    CHECK(MakePlan(model.view(), options).status().code() == StatusCode::kOutOfMemory);
    // Wrong options are wrong with a budget too.
    CHECK(MakePlan(model.view(), {.n_threads = 0, .memory_budget = 1 << 30}).status().code() ==
          StatusCode::kInvalidArgument);
  }
}

}  // namespace linnet
