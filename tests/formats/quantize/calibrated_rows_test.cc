#include "formats/quantize/calibrated_rows.h"

#include <doctest/doctest.h>

#include <vector>

#include "formats/quantize/quantize.h"
#include "ops/second_moments.h"
#include "tests/formats/quantize/quantized.h"
#include "tests/support/guarded.h"
#include "tests/support/tiny_model.h"

namespace linnet::formats {
namespace {

using testing::DequantizeTensor;
using testing::Quantized;
using testing::RandomVector;

constexpr float kDamping = 0.01f;

// Neighbouring inputs have much in common, and those of the second block are eight times as large.
std::vector<float> CorrelatedInputs(size_t n_rows, size_t width, size_t block) {
  std::vector<float> x = RandomVector(n_rows * width, 3);
  for (size_t r = 0; r < n_rows; ++r) {
    for (size_t k = 1; k < width; ++k) x[r * width + k] += 0.9f * x[r * width + k - 1];
    for (size_t k = block; k < 2 * block; ++k) x[r * width + k] *= 8.0f;
  }
  return x;
}

// [width, width] with the damping, by plain sums.
std::vector<double> DampedMoments(const std::vector<float>& x, size_t width) {
  const size_t n_rows = x.size() / width;
  std::vector<double> h(width * width);
  double trace = 0.0;
  for (size_t i = 0; i < width; ++i) {
    for (size_t j = 0; j < width; ++j) {
      for (size_t r = 0; r < n_rows; ++r) h[i * width + j] += double{x[r * width + i]} * x[r * width + j];
      h[i * width + j] /= static_cast<double>(n_rows);
    }
    trace += h[i * width + i];
  }
  for (size_t i = 0; i < width; ++i) h[i * width + i] += kDamping * trace / static_cast<double>(width);
  return h;
}

// Sum over rows of e h e^T for what a stored matrix misses.
double OutputError(const std::vector<float>& rows, const Quantized& stored, const std::vector<double>& h,
                   size_t width) {
  const std::vector<float> values = DequantizeTensor(stored.view);
  double sum = 0.0;
  for (size_t r = 0; r < rows.size() / width; ++r) {
    for (size_t i = 0; i < width; ++i) {
      for (size_t j = 0; j < width; ++j) {
        const double left = double{rows[r * width + i]} - values[r * width + i];
        sum += left * h[i * width + j] * (double{rows[r * width + j]} - values[r * width + j]);
      }
    }
  }
  return sum;
}

InputMoments FactoredMoments(const std::vector<float>& x, size_t width, size_t order_block, ops::ThreadPool& pool) {
  InputMoments moments;
  moments.Reset(width);
  moments.n_rows = x.size() / width;
  std::vector<float> scratch(ops::SecondMomentsScratchFloats(pool.n_threads()));
  ops::AddSecondMoments({x.data(), width}, moments.n_rows, width, moments.matrix.data(), scratch, pool);
  REQUIRE(moments.Factor(order_block, kDamping, scratch, pool));
  return moments;
}

TEST_SUITE("formats") {
  TEST_CASE("CalibratedRounding: blocks of large inputs come first, and everything is stored in its own place") {
    constexpr size_t kWidth = 128, kRows = 70;
    auto created = ops::ThreadPool::Create(2);
    REQUIRE(created.ok());
    ops::ThreadPool& pool = *created;
    const std::vector<float> inputs = CorrelatedInputs(600, kWidth, 32), rows = RandomVector(kRows * kWidth, 4);
    const std::vector<double> h = DampedMoments(inputs, kWidth);
    const InputMoments ordered = FactoredMoments(inputs, kWidth, 32, pool);
    CHECK(ordered.order[0] == 1);
    const InputMoments natural = FactoredMoments(inputs, kWidth, kWidth, pool);
    CHECK(natural.order == std::vector<uint32_t>{0});
    for (const QuantizeOptions& options : {QuantizeOptions{DType::kQ4, 32, 0}, QuantizeOptions{DType::kQ8, 0, 0}}) {
      CAPTURE(options.block_size);
      Quantized stored = testing::Quantize(rows, kWidth, options);  // to nearest
      const double nearest = OutputError(rows, stored, h, kWidth);
      double errors[2];
      for (const InputMoments* moments : {&natural, &ordered}) {
        std::vector<float> copy = rows;
        CalibratedErrors sums;
        CalibratedRounding rounding(pool);
        REQUIRE(rounding.Quantize(copy, kWidth, options, *moments, stored.data, stored.scales, &sums).ok());
        double& error = errors[moments == &ordered];
        error = OutputError(rows, stored, h, kWidth);
        CHECK(sums.output_error == doctest::Approx(error).epsilon(1e-3));
      }
      CHECK(errors[0] < 0.5 * nearest);
      CHECK(errors[1] < errors[0]);
    }
  }
}

}  // namespace
}  // namespace linnet::formats
