#include "ops/walsh_hadamard.h"

#include <cmath>

#include "tests/support/guarded.h"
#include "tests/support/ops_reference.h"
#include "tests/support/targets.h"

namespace linnet {
namespace {

using testing::Guarded;
using testing::kEps;
using testing::RandomVector;

void CheckTransform(size_t block, size_t n_blocks) {
  const size_t width = block * n_blocks, stride = width + 3;
  CAPTURE(block);
  CAPTURE(n_blocks);
  const Guarded<float> x(RandomVector(2 * stride, block + n_blocks));
  Guarded<float> out(2 * width);
  ops::WalshHadamard({x.data(), stride}, 2, width, block, {out.data(), width});
  CHECK(out.GuardsIntact());
  for (size_t r = 0; r < 2; ++r) {
    const float* row = x.data() + r * stride;
    const std::vector<double> expected = testing::ReferenceWalshHadamard(row, width, block);
    double norm = 0.0;
    for (size_t i = 0; i < width; ++i) norm = std::fmax(norm, std::fabs(static_cast<double>(row[i])));
    // One rounding a stage and one at the end, each of a value of at most sqrt(block) * norm.
    const double stages = std::log2(static_cast<double>(block)) + 1.0;
    const double tolerance = stages * kEps * norm * std::sqrt(static_cast<double>(block));
    for (size_t i = 0; i < width; ++i) REQUIRE(std::fabs(out[r * width + i] - expected[i]) <= tolerance);
  }
}

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("WalshHadamard: every target matches the definition") {
    testing::ForEachTarget([] {
      for (size_t block = 1; block <= 1024; block *= 2) {
        for (const size_t n_blocks : {1, 2, 3, 5}) CheckTransform(block, n_blocks);
      }
    });
  }

  TEST_CASE("WalshHadamard: the second column is +1, -1, ...: natural order, part of the file format") {
    std::vector<float> x = {0, 1, 0, 0};
    ops::WalshHadamard({x.data(), 4}, 1, 4, 4, {x.data(), 4});
    CHECK(x == std::vector<float>{0.5f, -0.5f, 0.5f, -0.5f});
  }

  TEST_CASE("WalshHadamard: twice is the identity, and in place gives the same bits") {
    testing::ForEachTarget([] {
      constexpr size_t kWidth = 576;
      const std::vector<float> x = RandomVector(kWidth, 7);
      std::vector<float> once(kWidth), in_place = x;
      ops::WalshHadamard({x.data(), kWidth}, 1, kWidth, 64, {once.data(), kWidth});
      ops::WalshHadamard({in_place.data(), kWidth}, 1, kWidth, 64, {in_place.data(), kWidth});
      CHECK(once == in_place);
      ops::WalshHadamard({once.data(), kWidth}, 1, kWidth, 64, {once.data(), kWidth});
      for (size_t i = 0; i < kWidth; ++i) REQUIRE(std::fabs(once[i] - x[i]) <= 14.0 * kEps * 8.0 * 3.5);
    });
  }

  TEST_CASE("WalshHadamard: all targets give the same bits") {
    constexpr size_t kWidth = 2048;
    const std::vector<float> x = RandomVector(kWidth, 9);
    std::vector<float> first;
    testing::ForEachTarget([&] {
      std::vector<float> out(kWidth);
      ops::WalshHadamard({x.data(), kWidth}, 1, kWidth, kWidth, {out.data(), kWidth});
      if (first.empty()) first = out;
      CHECK(first == out);
    });
  }

  TEST_CASE("LargestRotationBlock: the power of two in the width") {
    CHECK(ops::LargestRotationBlock(576) == 64);
    CHECK(ops::LargestRotationBlock(1536) == 512);
    CHECK(ops::LargestRotationBlock(2048) == 2048);
    CHECK(ops::LargestRotationBlock(7) == 1);
  }
}

}  // namespace linnet
