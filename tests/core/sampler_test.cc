#include "core/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "doctest/doctest.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/guarded.h"

namespace linnet {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A sampler with memory of its own.
struct OwnedSampler {
  std::vector<uint64_t> memory;
  Result<Sampler> sampler;

  OwnedSampler(const SamplerOptions& options, size_t vocab_size)
      : memory((Sampler::ScratchBytes(options, vocab_size) + 7) / 8 + 1, kGuard),
        sampler(Sampler::Create(
            options, vocab_size,
            std::as_writable_bytes(std::span(memory)).first(Sampler::ScratchBytes(options, vocab_size)))) {
    REQUIRE(sampler.ok());
  }
  ~OwnedSampler() { CHECK(memory.back() == kGuard); }

  int32_t Next(const std::vector<float>& logits) {
    const Result<int32_t> id = sampler->Sample(logits);
    REQUIRE(id.ok());
    return *id;
  }

  static constexpr uint64_t kGuard = 0xA5A5A5A5A5A5A5A5u;
};

std::vector<int> Histogram(const SamplerOptions& options, const std::vector<float>& logits, int draws) {
  OwnedSampler owned(options, logits.size());
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < draws; ++i) ++counts[static_cast<size_t>(owned.Next(logits))];
  return counts;
}

/// Logits whose softmax is `probabilities`, moved by a constant.
std::vector<float> LogitsOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3.0));
  return logits;
}

/// Each count within five standard deviations of its expectation (one false alarm in a million), zeros exact.
void CheckDistribution(const std::vector<int>& counts, const std::vector<double>& weights, int draws) {
  double total = 0.0;
  for (const double weight : weights) total += weight;
  for (size_t i = 0; i < counts.size(); ++i) {
    CAPTURE(i);
    const double p = weights[i] / total;
    CHECK(std::fabs(counts[i] - draws * p) <= 5.0 * std::sqrt(draws * p * (1.0 - p)));
  }
}

constexpr int kDraws = 40000;

}  // namespace

TEST_SUITE("core") {
  TEST_CASE("Sampler: greedy takes the lowest of the greatest") {
    OwnedSampler owned({}, 5);
    CHECK(owned.Next({1, 7, 3, 7, -kInf}) == 1);
    CHECK(owned.Next({-3, -2, -9, -2, -2}) == 1);
  }

  TEST_CASE("Sampler: draws follow the softmax of the logits divided by the temperature") {
    const std::vector<double> p = {0.5, 0.25, 0.125, 0.125};
    CheckDistribution(Histogram({.temperature = 1.0f, .seed = 1}, LogitsOf(p), kDraws), p, kDraws);
    const std::vector<double> squares = {0.25, 0.0625, 0.015625, 0.015625};
    CheckDistribution(Histogram({.temperature = 0.5f, .seed = 2}, LogitsOf(p), kDraws), squares, kDraws);
  }

  TEST_CASE("Sampler: top_k keeps the k likeliest, the lower ids among equals") {
    const std::vector<double> p = {0.125, 0.5, 0.125, 0.25};
    CheckDistribution(Histogram({.temperature = 1.0f, .top_k = 3, .seed = 3}, LogitsOf(p), kDraws),
                      {0.125, 0.5, 0, 0.25}, kDraws);
    CheckDistribution(Histogram({.temperature = 1.0f, .top_k = 1, .seed = 4}, LogitsOf(p), 1000), {0, 1, 0, 0}, 1000);
    CheckDistribution(Histogram({.temperature = 1.0f, .top_k = 4, .seed = 5}, LogitsOf(p), kDraws), p, kDraws);
    CheckDistribution(Histogram({.temperature = 1.0f, .top_k = 1000, .seed = 6}, LogitsOf(p), kDraws), p, kDraws);
  }

  TEST_CASE("Sampler: top_p keeps the fewest tokens that reach it") {
    const std::vector<double> p = {0.1, 0.5, 0.15, 0.25};
    const auto with_top_p = [&](float top_p) {
      return Histogram({.temperature = 1.0f, .top_p = top_p, .seed = 7}, LogitsOf(p), kDraws);
    };
    CheckDistribution(with_top_p(0.0f), {0, 1, 0, 0}, kDraws);
    CheckDistribution(with_top_p(0.45f), {0, 1, 0, 0}, kDraws);
    CheckDistribution(with_top_p(0.6f), {0, 0.5, 0, 0.25}, kDraws);
    CheckDistribution(with_top_p(0.8f), {0, 0.5, 0.15, 0.25}, kDraws);
    CheckDistribution(with_top_p(1.0f), p, kDraws);
  }

  TEST_CASE("Sampler: top_p counts what top_k left") {
    const std::vector<double> p = {0.1, 0.5, 0.15, 0.25};
    // Of 0.5, 0.25 and 0.15 the first two have 0.83.
    CheckDistribution(Histogram({.temperature = 1.0f, .top_k = 3, .top_p = 0.8f, .seed = 8}, LogitsOf(p), kDraws),
                      {0, 0.5, 0, 0.25}, kDraws);
  }

  TEST_CASE("Sampler: top_p over a flat large vocabulary keeps that share of the lowest ids") {
    constexpr size_t kVocab = 10000;
    const std::vector<int> counts =
        Histogram({.temperature = 1.0f, .top_p = 0.25f, .seed = 9}, std::vector<float>(kVocab, 1.0f), 1000);
    CHECK(std::all_of(counts.begin() + 2501, counts.end(), [](int count) { return count == 0; }));
    CHECK(std::any_of(counts.begin() + 2400, counts.begin() + 2501, [](int count) { return count > 0; }));
  }

  TEST_CASE("Sampler: top_p finds mass that hides in many unlikely tokens") {
    std::vector<float> logits(100001, std::log(1e-6f));  // together 0.1 beside one token of 1
    logits[50000] = 0.0f;
    const std::vector<int> counts = Histogram({.temperature = 1.0f, .top_p = 0.95f, .seed = 10}, logits, 400);
    CHECK(counts[50000] < 395);  // 383 expected
    CHECK(counts[50000] > 365);
    CHECK(std::all_of(counts.begin() + 60000, counts.end(), [](int count) { return count == 0; }));
  }

  TEST_CASE("Sampler: min_p keeps tokens relative to the likeliest") {
    const std::vector<double> p = {0.1, 0.5, 0.15, 0.25};
    CheckDistribution(Histogram({.temperature = 1.0f, .min_p = 0.4f, .seed = 11}, LogitsOf(p), kDraws),
                      {0, 0.5, 0, 0.25}, kDraws);
    CheckDistribution(Histogram({.temperature = 1.0f, .min_p = 1.0f, .seed = 12}, LogitsOf(p), 1000), {0, 1, 0, 0},
                      1000);
    CheckDistribution(Histogram({.temperature = 1.0f, .top_k = 3, .min_p = 0.25f, .seed = 13}, LogitsOf(p), kDraws),
                      {0, 0.5, 0.15, 0.25}, kDraws);
  }

  TEST_CASE("Sampler: the repetition penalty divides positive logits, multiplies negative ones, once a token") {
    OwnedSampler owned({.repetition_penalty = 2.0f}, 3);
    const int32_t prompt[] = {0, 0, 0, 99, -1};  // ids outside the vocabulary are ignored
    owned.sampler->Accept(prompt);
    CHECK(owned.Next({4.0f, 1.9f, -9}) == 0);  // 2.0: halved once, not three times
    CHECK(owned.Next({4.0f, 2.1f, -9}) == 1);
    CHECK(owned.Next({-1.0f, -1.9f, -9}) == 1);  // -2.0
    owned.sampler->Reset();
    CHECK(owned.Next({4.0f, 2.1f, -9}) == 0);
  }

  TEST_CASE("Sampler: the penalty's window forgets") {
    OwnedSampler owned({.repetition_penalty = 2.0f, .penalty_window = 2}, 3);
    owned.sampler->Accept(0);
    owned.sampler->Accept(0);
    CHECK(owned.Next({4.0f, 3.0f, 0.0f}) == 1);
    CHECK(owned.Next({4.0f, 3.0f, 0.0f}) == 1);
    owned.sampler->Accept(2);
    CHECK(owned.Next({4.0f, 3.0f, 0.0f}) == 1);
    owned.sampler->Accept(2);
    CHECK(owned.Next({4.0f, 3.0f, 0.0f}) == 0);
  }

  TEST_CASE("Sampler: the same seed gives the same tokens, another seed others; Reset starts over") {
    const std::vector<float> logits = testing::RandomVector(1000, 1);
    const auto draw = [&](OwnedSampler& owned) {
      std::vector<int32_t> ids;
      for (int i = 0; i < 50; ++i) ids.push_back(owned.Next(logits));
      return ids;
    };
    for (const int32_t top_k : {0, 40}) {
      OwnedSampler a({.temperature = 0.9f, .top_k = top_k, .seed = 42}, logits.size());
      OwnedSampler b({.temperature = 0.9f, .top_k = top_k, .seed = 42}, logits.size());
      OwnedSampler c({.temperature = 0.9f, .top_k = top_k, .seed = 43}, logits.size());
      const std::vector<int32_t> first = draw(a);
      CHECK(first == draw(b));
      CHECK(first != draw(c));
      CHECK(first != draw(a));
      a.sampler->Reset();
      CHECK(first == draw(a));
    }
  }

  TEST_CASE("Sampler: the random sequence is fixed, whatever the platform") {
    // SplitMix64 from seed 1234567: its published first outputs.
    OwnedSampler owned({.temperature = 1.0f, .seed = 1234567}, 1 << 16);
    const std::vector<float> flat(1 << 16, 0.0f);
    for (const uint64_t bits : {6457827717110365317u, 3203168211198807973u, 9817491932198370423u}) {
      CHECK(static_cast<uint64_t>(owned.Next(flat)) == bits >> 48);
    }
  }

  TEST_CASE("Sampler: no call after Create uses the heap") {
    const std::vector<float> logits = testing::RandomVector(20000, 3, 0.1f);
    const SamplerOptions cases[] = {
        {.repetition_penalty = 1.1f},
        {.temperature = 1.0f},
        {.temperature = 1.0f, .top_k = 40},
        {.temperature = 1.0f, .top_p = 0.9f, .repetition_penalty = 1.1f, .penalty_window = 64}};
    for (const SamplerOptions& options : cases) {
      OwnedSampler owned(options, logits.size());
      int32_t sum = 0;
      const size_t before = testing::AllocationCount();
      for (int i = 0; i < 5; ++i) {
        const Result<int32_t> id = owned.sampler->Sample(logits);
        if (id.ok()) sum += *id;
        owned.sampler->Accept(sum % 20000);
      }
      const size_t after = testing::AllocationCount();
      CHECK(after == before);
      CHECK(sum > 0);
    }
  }

  TEST_CASE("Sampler: a vocabulary of one") {
    for (const float temperature : {0.0f, 1.0f}) {
      OwnedSampler owned({.temperature = temperature, .top_k = 5, .top_p = 0.5f, .repetition_penalty = 1.3f}, 1);
      owned.sampler->Accept(0);
      CHECK(owned.Next({-12.5f}) == 0);
    }
  }

  TEST_CASE("Sampler: logits that no model should give are a typed error, masked ones are never drawn") {
    const SamplerOptions cases[] = {{},
                                    {.temperature = 1.0f},
                                    {.temperature = 1.0f, .top_k = 2, .top_p = 0.9f},
                                    {.temperature = 1.0f, .repetition_penalty = 1.5f}};
    for (const SamplerOptions& options : cases) {
      OwnedSampler owned(options, 4);
      owned.sampler->Accept(2);
      for (const std::vector<float>& logits :
           {std::vector<float>{0, kNan, 0, 0}, {0, 0, 0, kInf}, {-kInf, -kInf, -kInf, -kInf}}) {
        CHECK(owned.sampler->Sample(logits).status().code() == StatusCode::kInvalidModel);
      }
      CHECK(owned.sampler->Sample(std::vector<float>(3, 0.0f)).status().code() == StatusCode::kInvalidArgument);
      for (int i = 0; i < 100; ++i) CHECK(owned.Next({-kInf, -1e30f, 5.0f, -kInf}) == 2);
    }
  }

  TEST_CASE("Sampler: extreme temperatures are defined") {
    const std::vector<float> logits = {3e38f, -3e38f, 0.0f};
    CHECK(Histogram({.temperature = kMinTemperature, .seed = 1}, logits, 100) == std::vector<int>{100, 0, 0});
    const std::vector<int> flat = Histogram({.temperature = kMaxTemperature, .seed = 1}, {1.0f, 0.0f, -1.0f}, kDraws);
    CheckDistribution(flat, {1, 1, 1}, kDraws);
  }

  TEST_CASE("Sampler: options out of range are refused by name") {
    std::vector<uint64_t> memory(64);
    const auto code = [&](const SamplerOptions& options, size_t vocab_size = 4) {
      return Sampler::Create(options, vocab_size, std::as_writable_bytes(std::span(memory))).status().code();
    };
    const SamplerOptions bad[] = {{.temperature = -1.0f},
                                  {.temperature = kNan},
                                  {.temperature = kInf},
                                  {.top_k = -1},
                                  {.top_p = -0.1f},
                                  {.top_p = 1.1f},
                                  {.top_p = kNan},
                                  {.min_p = 2.0f},
                                  {.repetition_penalty = 0.0f},
                                  {.repetition_penalty = kNan},
                                  {.penalty_window = kMaxPenaltyWindow + 1}};
    for (const SamplerOptions& options : bad) CHECK(code(options) == StatusCode::kInvalidArgument);
    CHECK(code({}, 0) == StatusCode::kInvalidArgument);
    CHECK(code({}, 1000) == StatusCode::kOutOfMemory);
    CHECK(code({}) == StatusCode::kOk);
  }
}

}  // namespace linnet
