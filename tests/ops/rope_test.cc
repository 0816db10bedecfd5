#include "ops/rope.h"

#include <cmath>

#include "tests/support/guarded.h"
#include "tests/support/ops_reference.h"
#include "tests/support/targets.h"

namespace linnet {
namespace {

using testing::Guarded;
using testing::kEps;
using testing::RandomVector;

constexpr size_t kTokens = 3, kHeads = 2;

void CheckRope(RopeLayout layout, size_t half, size_t offset, size_t tail) {
  CAPTURE(half);
  CAPTURE(offset);
  const size_t head_dim = offset + 2 * half + tail, stride = kHeads * head_dim + 3;
  const Guarded<float> before(RandomVector(kTokens * stride, half));
  Guarded<float> x(RandomVector(kTokens * stride, half));
  const Guarded<float> cos(RandomVector(kTokens * half, half + 1)), sin(RandomVector(kTokens * half, half + 2));
  const ops::RopeHeads heads = {kHeads, head_dim, 2 * half, offset, layout};
  ops::ApplyRope({x.data(), stride}, kTokens, heads, cos.data(), sin.data());
  CHECK(x.GuardsIntact());
  std::vector<double> expected(before.data(), before.data() + before.size());
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t h = 0; h < kHeads; ++h) {
      for (size_t i = 0; i < half; ++i) {
        const size_t head = t * stride + h * head_dim + offset;
        const size_t a = head + (layout == RopeLayout::kHalfSplit ? i : 2 * i);
        const size_t b = head + (layout == RopeLayout::kHalfSplit ? i + half : 2 * i + 1);
        const double c = cos[t * half + i], s = sin[t * half + i];
        expected[a] = before[a] * c - before[b] * s;
        expected[b] = before[b] * c + before[a] * s;
      }
    }
  }
  // Two products and a sum, each value below 4.
  for (size_t i = 0; i < x.size(); ++i) REQUIRE(std::fabs(x[i] - expected[i]) <= 3.0 * kEps * 32.0);
}

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("ApplyRope: every target matches the f64 reference and leaves the other values alone") {
    testing::ForEachTarget([] {
      for (const RopeLayout layout : {RopeLayout::kHalfSplit, RopeLayout::kInterleaved}) {
        for (const size_t half : testing::kWidths) {
          CheckRope(layout, half, 0, 0);
          CheckRope(layout, half, 0, 6);
          CheckRope(layout, half, 5, 0);
        }
      }
    });
  }

  TEST_CASE("ComputeRopeTable: the angle is rounded to f32 and large angles stay accurate") {
    const std::vector<float> inv_freq = {1.0f, 0.0123456789f};
    std::vector<float> cos(4), sin(4);
    ops::ComputeRopeTable({.inv_freq = inv_freq, .cos_sin_scale = 1.5f, .first_pos = 131071, .n_tokens = 2}, cos.data(),
                          sin.data());
    for (size_t t = 0; t < 2; ++t) {
      for (size_t i = 0; i < 2; ++i) {
        const double angle = static_cast<double>(static_cast<float>(131071 + t) * inv_freq[i]);
        CHECK(std::fabs(cos[t * 2 + i] - 1.5 * std::cos(angle)) <= 2.0 * kEps);
        CHECK(std::fabs(sin[t * 2 + i] - 1.5 * std::sin(angle)) <= 2.0 * kEps);
      }
    }
  }
}

}  // namespace linnet
