#include "formats/convert/budget.h"

#include <doctest/doctest.h>

#include <random>

namespace linnet::formats {
namespace {

using Tensors = std::vector<std::vector<BudgetChoice>>;

struct Total {
  uint64_t bytes = 0;
  double loss = 0.0;
};

Total Sum(const Tensors& tensors, const std::vector<size_t>& chosen) {
  Total total;
  for (size_t t = 0; t < tensors.size(); ++t) {
    total.bytes += tensors[t][chosen[t]].bytes;
    total.loss += tensors[t][chosen[t]].loss;
  }
  return total;
}

// Every combination.
double LeastLoss(const Tensors& tensors, uint64_t budget) {
  double least = 1e300;
  std::vector<size_t> chosen(tensors.size());
  while (true) {
    const Total total = Sum(tensors, chosen);
    if (total.bytes <= budget) least = std::min(least, total.loss);
    size_t t = 0;
    while (t < tensors.size() && ++chosen[t] == tensors[t].size()) chosen[t++] = 0;
    if (t == tensors.size()) return least;
  }
}

Tensors RandomTensors(uint32_t seed, uint64_t max_bytes) {
  std::mt19937 random(seed);
  Tensors tensors(2 + random() % 5);
  for (auto& choices : tensors) {
    choices.resize(1 + random() % 4);
    for (BudgetChoice& choice : choices) choice = {random() % max_bytes, static_cast<double>(random() % 1000)};
  }
  return tensors;
}

}  // namespace

TEST_SUITE("formats") {
  TEST_CASE("ChooseWithinBudget: no combination that fits has a smaller loss") {
    for (uint32_t seed = 0; seed < 300; ++seed) {
      CAPTURE(seed);
      const Tensors tensors = RandomTensors(seed, 2000);
      const uint64_t budget = std::mt19937(seed + 1000)() % 8000;
      const auto chosen = ChooseWithinBudget(tensors, budget);
      if (!chosen.ok()) {
        CHECK(LeastLoss(tensors, budget) == 1e300);
        CHECK(chosen.status().code() == StatusCode::kInvalidArgument);
        CHECK(static_cast<uint64_t>(chosen.status().value()) > budget);
        continue;
      }
      const Total total = Sum(tensors, *chosen);
      CHECK(total.bytes <= budget);
      CHECK(total.loss == LeastLoss(tensors, budget));
    }
  }

  TEST_CASE("ChooseWithinBudget: large sizes stay within the budget and close to the least loss") {
    for (uint32_t seed = 0; seed < 100; ++seed) {
      CAPTURE(seed);
      const Tensors tensors = RandomTensors(seed, uint64_t{1} << 31);
      const uint64_t budget = uint64_t{1} << 33;
      const auto chosen = ChooseWithinBudget(tensors, budget);
      REQUIRE(chosen.ok());
      const Total total = Sum(tensors, *chosen);
      CHECK(total.bytes <= budget);
      // As good as the best one of a budget that is one unit a tensor smaller.
      CHECK(total.loss <= LeastLoss(tensors, budget - tensors.size() * (budget / kBudgetUnits + 1)));
    }
  }
}

}  // namespace linnet::formats
