#include "ops/routing.h"

#include <cmath>
#include <limits>
#include <vector>

#include "doctest/doctest.h"
#include "tests/support/guarded.h"

namespace linnet {
namespace {

struct Routed {
  std::vector<uint32_t> ids;
  std::vector<float> weights;
};

Routed Route(const FfnSpec& spec, const std::vector<float>& logits, const float* selection_bias = nullptr) {
  const size_t n_rows = logits.size() / spec.n_experts;
  testing::Guarded<float> scratch(ops::RoutingScratchFloats(spec)), weights(n_rows * spec.top_k);
  testing::Guarded<uint32_t> ids(n_rows * spec.top_k);
  ops::RouteTokens(spec, {{logits.data(), spec.n_experts}, n_rows, selection_bias}, {scratch.data(), scratch.size()},
                   {ids.data(), weights.data()});
  CHECK((scratch.GuardsIntact() && weights.GuardsIntact() && ids.GuardsIntact()));
  return {std::vector<uint32_t>(ids.data(), ids.data() + ids.size()),
          std::vector<float>(weights.data(), weights.data() + weights.size())};
}

FfnSpec Experts(uint32_t n_experts, uint32_t top_k, RouterScore score) {
  FfnSpec spec;
  spec.n_experts = n_experts;
  spec.top_k = top_k;
  spec.router_score = score;
  return spec;
}

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

void CheckWeights(const std::vector<float>& weights, const std::vector<double>& expected) {
  REQUIRE(weights.size() == expected.size());
  for (size_t i = 0; i < weights.size(); ++i) CHECK(std::fabs(weights[i] - expected[i]) < 1e-6);
}

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("RouteTokens: softmax over all experts, each row on its own") {
    const Routed routed = Route(Experts(4, 2, RouterScore::kSoftmax), {0, 2, 1, -1, 5, 0, 0, 5});
    CHECK(routed.ids == std::vector<uint32_t>{1, 2, 0, 3});
    const double a = std::exp(0.0) + std::exp(2.0) + std::exp(1.0) + std::exp(-1.0);
    const double b = 2 * std::exp(5.0) + 2;
    CheckWeights(routed.weights, {std::exp(2.0) / a, std::exp(1.0) / a, std::exp(5.0) / b, std::exp(5.0) / b});
  }

  TEST_CASE("RouteTokens: normalized weights sum to the routed scale") {
    FfnSpec spec = Experts(4, 2, RouterScore::kSoftmax);
    spec.normalize_top_k = true;
    spec.routed_scale = 2.5f;
    const Routed routed = Route(spec, {0, 2, 1, -1});
    const double share = std::exp(2.0) / (std::exp(2.0) + std::exp(1.0));
    CheckWeights(routed.weights, {2.5 * share, 2.5 * (1.0 - share)});
  }

  TEST_CASE("RouteTokens: softmax of the chosen logits") {
    const Routed routed = Route(Experts(4, 2, RouterScore::kSoftmaxOfTopK), {-3, -1, -2, -5});
    CHECK(routed.ids == std::vector<uint32_t>{1, 2});
    CheckWeights(routed.weights, {Sigmoid(1.0), Sigmoid(-1.0)});
  }

  TEST_CASE("RouteTokens: the selection bias changes the choice and not the weights") {
    const float bias[] = {0, 0, 0, 10};
    const Routed routed = Route(Experts(4, 2, RouterScore::kSigmoid), {0, 2, 1, -1}, bias);
    CHECK(routed.ids == std::vector<uint32_t>{3, 1});
    CheckWeights(routed.weights, {Sigmoid(-1.0), Sigmoid(2.0)});
  }

  TEST_CASE("RouteTokens: only the best groups' experts are chosen") {
    FfnSpec spec = Experts(6, 2, RouterScore::kSoftmax);
    spec.n_groups = 3;
    spec.top_groups = 1;
    const std::vector<float> logits = {3, -3, 2, 2, 1, 1};
    spec.group_score = GroupScore::kMax;
    CHECK(Route(spec, logits).ids == std::vector<uint32_t>{0, 1});
    spec.group_score = GroupScore::kSumOfTopTwo;
    spec.router_score = RouterScore::kSigmoid;
    CHECK(Route(spec, logits).ids == std::vector<uint32_t>{2, 3});
  }

  TEST_CASE("RouteTokens: an excluded expert never beats a chosen group's expert with a score below 0") {
    FfnSpec spec = Experts(4, 2, RouterScore::kSigmoid);
    spec.n_groups = 2;
    const float bias[] = {-1, -5, -2, -2};
    CHECK(Route(spec, {0, 0, 0, 0}, bias).ids == std::vector<uint32_t>{0, 1});
  }

  TEST_CASE("RouteTokens: ties go to the lower index") {
    CHECK(Route(Experts(5, 3, RouterScore::kSigmoid), {1, 2, 2, 1, 1}).ids == std::vector<uint32_t>{1, 2, 0});
  }

  TEST_CASE("RouteTokens: all experts, one expert, and values that are not finite give distinct valid ids") {
    CHECK(Route(Experts(3, 3, RouterScore::kSoftmax), {1, 3, 2}).ids == std::vector<uint32_t>{1, 2, 0});
    CheckWeights(Route(Experts(1, 1, RouterScore::kSoftmax), {-7}).weights, {1.0});
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kSoftmaxOfTopK}) {
      for (const std::vector<float>& logits :
           {std::vector<float>{nan, nan, nan, nan}, {inf, inf, -inf, 0}, {-inf, -inf, -inf, -inf}, {nan, 1, nan, 2}}) {
        FfnSpec spec = Experts(4, 2, score);
        spec.n_groups = 2;
        const Routed routed = Route(spec, logits);
        CHECK(routed.ids[0] < 4);
        CHECK(routed.ids[1] < 4);
        CHECK(routed.ids[0] != routed.ids[1]);
      }
    }
  }
}

}  // namespace linnet
