#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "ops/compensated_rounding.h"
#include "ops/second_moments.h"
#include "tests/support/guarded.h"
#include "tests/support/ops_reference.h"
#include "tests/support/targets.h"

namespace linnet {
namespace {

using ops::kRoundingRows;
using testing::kEps;
using testing::RandomVector;

// Inputs whose columns depend on each other, as those of real layers do. [n_rows, width]
std::vector<float> CorrelatedRows(size_t n_rows, size_t width, uint64_t seed) {
  std::vector<float> x = RandomVector(n_rows * width, seed);
  for (size_t r = 0; r < n_rows; ++r) {
    for (size_t k = 1; k < width; ++k) x[r * width + k] += 0.7f * x[r * width + k - 1];
  }
  return x;
}

std::vector<double> ReferenceMoments(const std::vector<float>& x, size_t n_rows, size_t width) {
  std::vector<double> sums(width * width);
  for (size_t r = 0; r < n_rows; ++r) {
    for (size_t i = 0; i < width; ++i) {
      for (size_t j = 0; j < width; ++j) sums[i * width + j] += double{x[r * width + i]} * x[r * width + j];
    }
  }
  return sums;
}

struct Moments {
  std::vector<double> exact;  // H
  std::vector<float> full, factor;
};

Moments MakeMoments(size_t width, uint64_t seed, ops::ThreadPool& pool) {
  const size_t n_rows = 3 * width + 5;
  const std::vector<float> x = CorrelatedRows(n_rows, width, seed);
  Moments moments;
  moments.factor.resize(width * width);
  std::vector<float> scratch(ops::SecondMomentsScratchFloats(pool.n_threads()));
  ops::AddSecondMoments({x.data(), width}, n_rows, width, moments.factor.data(), scratch, pool);
  for (size_t i = 0; i < width; ++i) {
    for (size_t j = 0; j < i; ++j) moments.factor[i * width + j] = moments.factor[j * width + i];
  }
  moments.full = moments.factor;
  moments.exact.assign(moments.full.begin(), moments.full.end());
  REQUIRE(ops::FactorSecondMoments(moments.factor.data(), width, scratch, pool));
  return moments;
}

double Energy(const std::vector<double>& h, size_t width, const std::vector<double>& e) {
  double energy = 0.0;
  for (size_t i = 0; i < width; ++i) {
    for (size_t j = 0; j < width; ++j) energy += e[i] * h[i * width + j] * e[j];
  }
  return energy;
}

// The inverse of a positive definite matrix by Gauss-Jordan elimination.
std::vector<double> Inverse(std::vector<double> a, size_t n) {
  std::vector<double> inverse(n * n);
  for (size_t i = 0; i < n; ++i) inverse[i * n + i] = 1.0;
  for (size_t p = 0; p < n; ++p) {
    const double pivot = a[p * n + p];
    for (size_t j = 0; j < n; ++j) a[p * n + j] /= pivot, inverse[p * n + j] /= pivot;
    for (size_t i = 0; i < n; ++i) {
      const double factor = a[i * n + p];
      if (i == p) continue;
      for (size_t j = 0; j < n; ++j) {
        a[i * n + j] -= factor * a[p * n + j];
        inverse[i * n + j] -= factor * inverse[p * n + j];
      }
    }
  }
  return inverse;
}

// GPTQ as its paper writes it: by the inverse, one column after another, the rest of the row moved after each, and the
// column taken out of the inverse. [width] levels for one row and one scale.
std::vector<int> ReferenceLevels(std::vector<double> inverse, size_t width, std::vector<double> w, double scale,
                                 double low, double high) {
  std::vector<int> levels(width);
  for (size_t j = 0; j < width; ++j) {
    const double level = std::fmin(high, std::fmax(low, std::nearbyint(w[j] / scale)));
    levels[j] = static_cast<int>(level);
    const double error = (w[j] - level * scale) / inverse[j * width + j];
    for (size_t k = j; k < width; ++k) w[k] -= error * inverse[j * width + k];
    const std::vector<double> column(inverse.begin() + static_cast<ptrdiff_t>(j * width),
                                     inverse.begin() + static_cast<ptrdiff_t>((j + 1) * width));
    for (size_t i = j + 1; i < width; ++i) {
      for (size_t k = j + 1; k < width; ++k) inverse[i * width + k] -= column[i] * column[k] / column[j];
    }
  }
  return levels;
}

// A tile's memory. Row r, column k at [k * kRoundingRows + r].
struct Tile {
  Tile(size_t width, size_t block, uint64_t seed)
      : weights(RandomVector(width * kRoundingRows, seed)),
        errors(width * kRoundingRows),
        scales((width / block + 1) * kRoundingRows),
        scratch(ops::RoundingScratchFloats()),
        levels(width * kRoundingRows) {}
  ops::RoundingTile view() {
    return {.weights = weights.data(),
            .errors = errors.data(),
            .levels = levels.data(),
            .scales = scales.data(),
            .scratch = scratch.data()};
  }
  std::vector<double> Errors(size_t width, size_t row) const {
    std::vector<double> e(width);
    for (size_t k = 0; k < width; ++k) e[k] = errors[k * kRoundingRows + row];
    return e;
  }

  std::vector<float> weights, errors, scales, scratch;
  std::vector<int8_t> levels;
};

ops::RoundingProblem Problem(const Moments& moments, size_t width, size_t block) {
  return {.factor = moments.factor.data(), .width = width, .block = block, .min_scale = 1e-20f};
}

double TotalError(const Moments& moments, size_t width, const Tile& tile) {
  double error = 0.0;
  for (size_t r = 0; r < kRoundingRows; ++r) error += Energy(moments.exact, width, tile.Errors(width, r));
  return error;
}

ops::ThreadPool Pool(size_t n_threads) {
  auto pool = ops::ThreadPool::Create(n_threads);
  REQUIRE(pool.ok());
  return std::move(pool).value();
}

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("AddSecondMoments: every target matches the f64 reference") {
    testing::ForEachTarget([] {
      ops::ThreadPool pool = Pool(2);
      std::vector<float> scratch(ops::SecondMomentsScratchFloats(2));
      for (const size_t width : {1, 5, 31, 96, 97, 200}) {
        for (const size_t n_rows : {1, 7, 300}) {
          CAPTURE(width);
          CAPTURE(n_rows);
          const std::vector<float> x = RandomVector(n_rows * width, width + n_rows);
          std::vector<float> sums(width * width, 1.0f);
          ops::AddSecondMoments({x.data(), width}, n_rows, width, sums.data(), scratch, pool);
          const std::vector<double> expected = ReferenceMoments(x, n_rows, width);
          for (size_t i = 0; i < width; ++i) {
            for (size_t j = i; j < width; ++j) {
              // A sum's rounding error is below n * eps times the sum of magnitudes, which the diagonal bounds.
              const double bound = std::sqrt(expected[i * width + i] * expected[j * width + j]) + 1.0;
              const double tolerance = static_cast<double>(n_rows + 2) * kEps * bound;
              REQUIRE(std::fabs(sums[i * width + j] - 1.0 - expected[i * width + j]) <= tolerance);
            }
          }
        }
      }
    });
  }

  TEST_CASE("FactorSecondMoments: V V^T is the matrix, and both triangles hold V") {
    testing::ForEachTarget([] {
      ops::ThreadPool pool = Pool(2);
      for (const size_t width : {1, 2, 33, 96, 97, 250}) {
        CAPTURE(width);
        const Moments moments = MakeMoments(width, width, pool);
        const auto v = [&](size_t i, size_t j) { return double{moments.factor[i * width + j]}; };
        for (size_t i = 0; i < width; ++i) {
          for (size_t j = i; j < width; ++j) {
            REQUIRE(moments.factor[i * width + j] == moments.factor[j * width + i]);
            double sum = 0.0;
            for (size_t t = j; t < width; ++t) sum += v(i, t) * v(j, t);
            const double bound = std::sqrt(moments.exact[i * width + i] * moments.exact[j * width + j]);
            REQUIRE(std::fabs(sum - moments.exact[i * width + j]) <= static_cast<double>(width + 2) * kEps * bound);
          }
        }
      }
    });
  }

  TEST_CASE("FactorSecondMoments: a matrix that is not positive definite is refused") {
    ops::ThreadPool pool = Pool(1);
    std::vector<float> scratch(ops::SecondMomentsScratchFloats(1));
    std::vector<float> indefinite = {1, 2, 2, 1}, broken = {1, NAN, NAN, 1};
    CHECK_FALSE(ops::FactorSecondMoments(indefinite.data(), 2, scratch, pool));
    CHECK_FALSE(ops::FactorSecondMoments(broken.data(), 2, scratch, pool));
  }

  TEST_CASE("FactorSecondMoments: the bits do not depend on the threads") {
    ops::ThreadPool one = Pool(1), three = Pool(3);
    const Moments a = MakeMoments(333, 1, one), b = MakeMoments(333, 1, three);
    CHECK(a.full == b.full);
    CHECK(a.factor == b.factor);
  }

  TEST_CASE("RoundTile: levels equal those of the paper's form with the inverse") {
    testing::ForEachTarget([] {
      ops::ThreadPool pool = Pool(1);
      for (const size_t width : {32, 64, 70}) {
        CAPTURE(width);
        const Moments moments = MakeMoments(width, width, pool);
        const std::vector<double> inverse = Inverse(moments.exact, width);
        Tile tile(width, 32, width + 1);
        std::fill(tile.scales.begin(), tile.scales.end(), 0.25f);
        ops::RoundingProblem problem = Problem(moments, width, 32);
        problem.search_scales = false;
        ops::RoundTile(problem, tile.view());
        size_t different = 0;
        for (const size_t row : {0, 1, 17, 63}) {
          std::vector<double> w(width);
          for (size_t k = 0; k < width; ++k) w[k] = tile.weights[k * kRoundingRows + row];
          const std::vector<int> expected = ReferenceLevels(inverse, width, w, 0.25, -8.0, 7.0);
          for (size_t k = 0; k < width; ++k) {
            different += expected[k] != tile.levels[k * kRoundingRows + row] ? 1 : 0;
            REQUIRE(tile.errors[k * kRoundingRows + row] ==
                    tile.weights[k * kRoundingRows + row] - 0.25f * tile.levels[k * kRoundingRows + row]);
          }
        }
        CHECK(different == 0);
      }
    });
  }

  TEST_CASE("RoundTile: the error told is that of the errors left, and below round to nearest's") {
    testing::ForEachTarget([] {
      ops::ThreadPool pool = Pool(1);
      for (const size_t block : {32, 64, 128}) {
        CAPTURE(block);
        constexpr size_t kWidth = 256;
        const Moments moments = MakeMoments(kWidth, block, pool);
        Tile tile(kWidth, block, block + 7);
        const double told = ops::RoundTile(Problem(moments, kWidth, block), tile.view());
        const double exact = TotalError(moments, kWidth, tile);
        // Relative: kWidth products a sum, each sum squared.
        CHECK(std::fabs(told - exact) <= 4.0 * kWidth * kEps * exact);

        Tile nearest = tile;
        for (size_t i = 0; i < tile.weights.size(); ++i) {
          const float scale = tile.scales[i / (block * kRoundingRows) * kRoundingRows + i % kRoundingRows];
          const float level = std::fmin(7.0f, std::fmax(-8.0f, std::nearbyint(tile.weights[i] / scale)));
          nearest.errors[i] = tile.weights[i] - level * scale;
        }
        CHECK(exact < 0.6 * TotalError(moments, kWidth, nearest));
      }
    });
  }

  TEST_CASE("RoundTile: scales are bf16, and zeros take the smallest") {
    ops::ThreadPool pool = Pool(1);
    const Moments moments = MakeMoments(64, 9, pool);
    Tile tile(64, 32, 11);
    for (size_t k = 0; k < 64; ++k) tile.weights[k * kRoundingRows] = 0.0f;
    ops::RoundTile(Problem(moments, 64, 32), tile.view());
    for (size_t i = 0; i < 2 * kRoundingRows; ++i) {
      uint32_t bits;
      std::memcpy(&bits, &tile.scales[i], sizeof(bits));
      REQUIRE((bits & 0xffffu) == (i % kRoundingRows == 0 ? bits & 0xffffu : 0u));
    }
    CHECK(tile.scales[0] == 1e-20f);
    CHECK(tile.levels[0] == 0);
  }

  TEST_CASE("TileEnergy: it is w H w^T") {
    testing::ForEachTarget([] {
      ops::ThreadPool pool = Pool(1);
      const Moments moments = MakeMoments(100, 2, pool);
      Tile tile(100, 32, 3);
      const double told = ops::TileEnergy(Problem(moments, 100, 32), tile.view());
      tile.errors = tile.weights;
      const double exact = TotalError(moments, 100, tile);
      CHECK(std::fabs(told - exact) <= 400.0 * kEps * exact);
    });
  }
}

}  // namespace linnet
