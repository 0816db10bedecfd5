#include "ops/attention.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/attention_harness.h"
#include "tests/support/attention_reference.h"
#include "tests/support/targets.h"

namespace linnet::testing {
namespace {

using ops::AttentionOptions;
using ops::KvType;

AttentionOptions Scaled(const AttentionShape& shape) {
  AttentionOptions options;
  options.score_scale = 4.0f / std::sqrt(static_cast<float>(shape.head_dim));
  return options;
}

AttentionInputs Halved(AttentionInputs inputs) {
  for (float& x : inputs.k) x = RoundToHalf(x);
  for (float& x : inputs.v) x = RoundToHalf(x);
  return inputs;
}

// Prefill in one call and decode from one half on, f32 and f16, against the reference.
void CheckShape(const AttentionShape& shape, uint32_t n_tokens, const AttentionOptions& options, uint32_t stride = 1) {
  const AttentionInputs inputs = RandomInputs(shape, n_tokens, 7);
  const AttentionInputs halved = Halved(inputs);
  ForEachTarget([&] {
    for (const uint32_t chunk : {n_tokens, 1u}) {
      CAPTURE(chunk);
      const RunResult f32 = RunAttention(inputs, options, {.chunk = chunk, .first_chunk = n_tokens / 2 + 1});
      CHECK(f32.guards_intact);
      CHECK(CompareWithReference(inputs, options, f32.out, 0.0, stride) == "");
      const RunResult f16 =
          RunAttention(inputs, options, {.type = KvType::kF16, .chunk = chunk, .first_chunk = n_tokens / 2 + 1});
      CHECK(f16.guards_intact);
      CHECK(CompareWithReference(halved, options, f16.out, 0.0, stride) == "");
      CHECK(CompareWithReference(inputs, options, f16.out, 1.0 / 2048, stride) == "");
    }
  });
}

// Same bits for one call, single tokens and odd chunks, with tasks in any order.
void CheckChunks(const AttentionShape& shape, uint32_t n_tokens, const AttentionOptions& options, KvType type) {
  const AttentionInputs inputs = RandomInputs(shape, n_tokens, 11);
  ForEachTarget([&] {
    const RunResult whole = RunAttention(inputs, options, {.type = type, .chunk = n_tokens});
    for (const uint32_t chunk : {1u, 7u, 64u, 129u}) {
      CAPTURE(chunk);
      const RunResult run = RunAttention(inputs, options, {.type = type, .chunk = chunk, .reverse_tasks = true});
      CHECK(run.guards_intact);
      CHECK(SameBits(run.out, whole.out));
    }
  });
}

TEST_SUITE("ops") {
  TEST_CASE("Attention: every target matches the f64 reference for every shape") {
    AttentionShape shape;
    uint32_t n_tokens = 37;
    SUBCASE("one head of 8") { shape = {1, 1, 8, 8}; }
    SUBCASE("three heads of 64 on one") { shape = {3, 1, 64, 64}; }
    SUBCASE("four heads of 16 on two") { shape = {4, 2, 16, 16}; }
    SUBCASE("seven heads of 48, values of 24") { shape = {7, 1, 48, 24}; }
    SUBCASE("eight heads of 80, each its own") { shape = {8, 8, 80, 80}; }
    SUBCASE("eight heads of 96 on two, values of 128") { shape = {8, 2, 96, 128}; }
    SUBCASE("71 heads of 64 on one") {
      shape = {71, 1, 64, 64};
      n_tokens = 9;
    }
    SUBCASE("two heads of 256") { shape = {2, 2, 256, 256}; }
    SUBCASE("widths that no vector divides") {
      shape = {5, 1, 6, 10};
      n_tokens = 70;
    }
    SUBCASE("a single token") {
      shape = {9, 3, 64, 64};
      n_tokens = 1;
    }
    SUBCASE("one block of positions") {
      shape = {2, 1, 16, 16};
      n_tokens = 64;
    }
    SUBCASE("one position more") {
      shape = {2, 1, 16, 16};
      n_tokens = 65;
    }
    CheckShape(shape, n_tokens, Scaled(shape));
  }

  TEST_CASE("Attention: rows that cross splits match the f64 reference") {
    const AttentionShape shape = {3, 1, 16, 16};
    AttentionOptions options = Scaled(shape);
    uint32_t n_tokens = 3 * ops::kAttentionSplit + 5;
    SUBCASE("one split") { n_tokens = ops::kAttentionSplit; }
    SUBCASE("one position more") { n_tokens = ops::kAttentionSplit + 1; }
    SUBCASE("several splits") {}
    SUBCASE("a window over several") { options.window = 300; }
    CheckShape(shape, n_tokens, options, 13);
  }

  TEST_CASE("Attention: options match the f64 reference") {
    const AttentionShape shape = {6, 2, 32, 32};
    AttentionOptions options = Scaled(shape);
    const float sinks[6] = {0.5f, -3.0f, 4.0f, 0.0f, 100.0f, -100.0f};
    const float slopes[6] = {0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f, 1.0f};
    SUBCASE("window of 1") { options.window = 1; }
    SUBCASE("window of 5") { options.window = 5; }
    SUBCASE("window of 64") { options.window = 64; }
    SUBCASE("soft cap") { options.logit_soft_cap = 1.5f; }
    SUBCASE("wide soft cap") { options.logit_soft_cap = 50.0f; }
    SUBCASE("sinks") { options.sinks = sinks; }
    SUBCASE("ALiBi") { options.alibi_slopes = slopes; }
    SUBCASE("all of them") {
      options.window = 70;
      options.logit_soft_cap = 2.0f;
      options.sinks = sinks;
      options.alibi_slopes = slopes;
    }
    CheckShape(shape, 300, options, 7);
  }

  TEST_CASE("Attention: latent cache matches the f64 reference") {
    AttentionShape shape;
    AttentionOptions options;
    uint32_t n_tokens = 40;
    SUBCASE("small, no vector divides it") { shape = {4, 1, 22, 18, true}; }
    SUBCASE("DeepSeek-V2-Lite's width") {
      shape = {16, 1, 576, 512, true};
      n_tokens = 9;
    }
    SUBCASE("more heads than a tile") { shape = {31, 1, 40, 32, true}; }
    SUBCASE("across splits") {
      shape = {3, 1, 24, 16, true};
      n_tokens = 300;
    }
    options.score_scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    CheckShape(shape, n_tokens, options, 3);
  }

  TEST_CASE("Attention: any chunks, task order and single tokens give the same bits") {
    AttentionShape shape = {6, 2, 24, 20};
    KvType type = KvType::kF32;
    AttentionOptions options;
    const float sinks[6] = {0.5f, -3.0f, 4.0f, 0.0f, 2.0f, -1.0f};
    SUBCASE("f32") {}
    SUBCASE("f16") { type = KvType::kF16; }
    SUBCASE("int8") { type = KvType::kInt8; }
    SUBCASE("window") { options.window = 40; }
    SUBCASE("int8 in a window") {
      type = KvType::kInt8;
      options.window = 270;
    }
    SUBCASE("sinks, cap and ALiBi") {
      options.sinks = sinks;
      options.logit_soft_cap = 3.0f;
      options.alibi_slopes = sinks;
    }
    SUBCASE("latent") { shape = {6, 1, 22, 18, true}; }
    SUBCASE("latent int8") {
      shape = {6, 1, 22, 18, true};
      type = KvType::kInt8;
    }
    SUBCASE("more heads than a tile") { shape = {71, 1, 8, 8}; }
    CheckChunks(shape, 2 * ops::kAttentionSplit + 30, options, type);
  }

  TEST_CASE("Attention: a ring gives the same bits as a cache of the whole context") {
    const AttentionShape shape = {4, 2, 16, 16};
    AttentionOptions options = Scaled(shape);
    uint32_t n_tokens = 400;
    KvType type = KvType::kF32;
    SUBCASE("window within a block") { options.window = 17; }
    SUBCASE("window of one block") { options.window = 64; }
    SUBCASE("window across blocks") { options.window = 100; }
    SUBCASE("window across splits") {
      options.window = 300;
      n_tokens = 900;
    }
    SUBCASE("int8") {
      options.window = 100;
      type = KvType::kInt8;
    }
    const AttentionInputs inputs = RandomInputs(shape, n_tokens, 3);
    const uint32_t whole = ops::KvCapacity(0, n_tokens, 1);
    ForEachTarget([&] {
      // All positions, so those before, at and after the window's edge and each wrap of the ring.
      for (const uint32_t chunk : {1u, 29u, 128u}) {
        CAPTURE(chunk);
        REQUIRE(ops::KvCapacity(options.window, n_tokens, chunk) < whole);
        const RunResult ring = RunAttention(inputs, options, {.type = type, .chunk = chunk});
        const RunResult full = RunAttention(inputs, options, {.type = type, .chunk = chunk, .capacity = whole});
        CHECK(SameBits(ring.out, full.out));
        if (type == KvType::kF32) CHECK(CompareWithReference(inputs, options, ring.out, 0.0, 17) == "");
      }
    });
  }

  TEST_CASE("Attention: an infinite or NaN value at a later position does not reach earlier rows") {
    const AttentionShape shape = {3, 1, 16, 16};
    const AttentionOptions options = Scaled(shape);
    const AttentionInputs inputs = RandomInputs(shape, 30, 5);
    AttentionInputs poisoned = inputs;
    const uint32_t from = 20;
    for (size_t i = from * 16; i < poisoned.v.size(); ++i) {
      poisoned.v[i] = i % 2 ? std::numeric_limits<float>::infinity() : std::nanf("");
      poisoned.k[i] = std::nanf("");
    }
    ForEachTarget([&] {
      std::vector<float> clean = RunAttention(inputs, options, {.chunk = 30}).out;
      std::vector<float> found = RunAttention(poisoned, options, {.chunk = 30}).out;
      clean.resize(from * 3 * 16);
      found.resize(from * 3 * 16);
      CHECK(SameBits(clean, found));
    });
  }

  TEST_CASE("Attention: scores of +-1e4 neither overflow nor lose the maximum") {
    const AttentionShape shape = {1, 1, 8, 8};
    AttentionOptions options;
    AttentionInputs inputs = RandomInputs(shape, 300, 9);
    // q = (1, 0, ...): the score is the key's first element, exactly.
    for (uint32_t t = 0; t < 300; ++t) {
      for (uint32_t d = 0; d < 8; ++d) inputs.q[t * 8 + d] = d == 0 ? 1.0f : 0.0f;
      inputs.k[t * 8] = t % 2 ? 1e4f : -1e4f;
    }
    SUBCASE("plain") {}
    SUBCASE("with a cap") { options.logit_soft_cap = 30.0f; }
    ForEachTarget([&] {
      const RunResult run = RunAttention(inputs, options, {.chunk = 100});
      // Position 0 sees -1e4 alone; from 1 on the odd positions share the weight (or, capped, e^-60 less of it).
      CHECK(run.out[3] == inputs.v[3]);
      for (uint32_t t = 1; t < 300; ++t) {
        double mean = 0;
        for (uint32_t j = 1; j <= t; j += 2) mean += inputs.v[j * 8 + 3];
        mean /= (t + 1) / 2;
        CHECK(std::abs(run.out[t * 8 + 3] - mean) < 300 * 6e-8);
      }
    });
  }

  TEST_CASE("Attention: int8 cache stays within its quantization steps") {
    AttentionShape shape = {4, 2, 64, 48};
    SUBCASE("keys and values") {}
    SUBCASE("latent") { shape = {4, 1, 40, 32, true}; }
    const AttentionOptions options = Scaled(shape);
    const AttentionInputs inputs = RandomInputs(shape, 100, 13);
    ForEachTarget([&] {
      const RunResult run = RunAttention(inputs, options, {.type = KvType::kInt8, .chunk = 30});
      CHECK(run.guards_intact);
      // Values lie in [-1, 1): a step is at most 1/127, an error half of it, so |error| <= 1/254 where the reference
      // takes errors relative to each element. Bounded here over the whole: a score errs by at most
      // scale * sum|q| / 254, an output by that factor's spread and half a step.
      double worst = 0;
      for (uint32_t t = 0; t < 100; ++t) {
        for (uint32_t h = 0; h < 4; ++h) {
          double q_sum = 0;
          for (uint32_t d = 0; d < shape.head_dim; ++d) q_sum += std::abs(inputs.q_row(t, h)[d]);
          const double bound = std::expm1(2 * options.score_scale * q_sum / 254) + 1.0 / 254 + 1e-5;
          const ReferenceRow row = ReferenceAttention(inputs, options, t, h, 0.0);
          for (uint32_t d = 0; d < shape.value_dim; ++d) {
            const double error = std::abs(run.out[(size_t{t} * 4 + h) * shape.value_dim + d] - row.out[d]);
            CHECK(error <= bound);
            worst = std::max(worst, error);
          }
        }
      }
      CHECK(worst > 0.0);
      CHECK(worst < 0.02);  // errors of 64 products are independent: far below the bound
    });
  }

  TEST_CASE("Attention: the cost counts visible positions only") {
    const ops::KvLayout layout = ops::MakeKvLayout({KvType::kF16, 2, 64, 32, 256, false});
    ops::AttentionArgs args;
    args.layout = &layout;
    args.n_heads = 6;
    args.first_pos = 99;
    args.n_tokens = 2;
    CHECK(ops::ComputeAttentionCost(args).flops == 2 * (100 + 101) * 6 * (64 + 32));
    CHECK(ops::ComputeAttentionCost(args).cache_bytes == 101 * 2 * (64 + 32) * 2);
    args.options.window = 10;
    CHECK(ops::ComputeAttentionCost(args).flops == 2 * 20 * 6 * (64 + 32));
    CHECK(ops::ComputeAttentionCost(args).cache_bytes == 11 * 2 * (64 + 32) * 2);
  }
}

}  // namespace
}  // namespace linnet::testing
