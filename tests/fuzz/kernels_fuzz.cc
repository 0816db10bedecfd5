// Kernels: every instruction set of this CPU against the plainest one, on values of any bits.
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "hwy/targets.h"
#include "ops/activation.h"
#include "ops/norm.h"
#include "ops/quantize_activations.h"
#include "ops/walsh_hadamard.h"
#include "tests/fuzz/fuzz.h"

namespace linnet::fuzz {
namespace {

using namespace linnet::ops;

constexpr size_t kMaxRows = 3;
constexpr size_t kMaxWidth = 300;
constexpr double kEps = std::numeric_limits<float>::epsilon();

struct Shape {
  size_t n_rows, width;
  size_t size() const { return n_rows * width; }
};

Shape TakeShape(Input& input) { return {1 + input.TakeBelow(kMaxRows), 1 + input.TakeBelow(kMaxWidth)}; }

/// Any bits: infinities, NaN and subnormal numbers too.
std::vector<float> TakeAny(Input& input, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = input.Take<float>();
  return values;
}

/// Magnitudes of activations, 2^-16 to 2^16, where the tolerances hold: no sum or square overflows or vanishes.
std::vector<float> TakeTame(Input& input, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) {
    uint32_t bits = input.Take<uint32_t>();
    const uint32_t exponent = 127 - 16 + ((bits >> 23) & 31);
    bits = (bits & 0x807fffffu) | (exponent << 23);
    std::memcpy(&value, &bits, sizeof(value));
  }
  return values;
}

bool SameFloat(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Runs `compute` on every target and gives `compare` its result and the plainest target's.
template <typename Compute, typename Compare>
void OnEveryTarget(const Compute& compute, const Compare& compare) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();  // the best first
  hwy::SetSupportedTargetsForTest(targets.back());
  const auto plainest = compute();
  for (const int64_t target : targets) {
    hwy::SetSupportedTargetsForTest(target);
    compare(compute(), plainest);
  }
  hwy::SetSupportedTargetsForTest(0);
}

/// a[i] and b[i] differ by at most tolerance(i).
template <typename Tolerance>
auto Within(const Tolerance& tolerance) {
  return [tolerance](const std::vector<float>& a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      LINNET_CHECK(SameFloat(a[i], b[i]) || std::abs(double{a[i]} - b[i]) <= tolerance(i));
    }
  };
}

/// The relative error of 1 / sqrt(mean of squares + eps) is at most that of the sum, n eps; gain and product add a few.
/// Two targets err by twice that.
void RunRmsNorm(Input& input) {
  const Shape shape = TakeShape(input);
  NormParams params;
  params.eps = 1e-6f;
  params.gain_plus_one = input.TakeBool();
  const std::vector<float> x = TakeTame(input, shape.size()), gain = TakeTame(input, shape.width);
  const std::vector<float> bias = TakeTame(input, shape.width);
  params.gain = gain.data();
  params.bias = bias.data();
  const auto compute = [&] {
    std::vector<float> out(shape.size());
    RmsNorm({x.data(), shape.width}, shape.n_rows, shape.width, params, {out.data(), shape.width});
    return out;
  };
  std::vector<double> inverse(shape.n_rows);
  for (size_t r = 0; r < shape.n_rows; ++r) {
    double sum = 0;
    for (size_t i = 0; i < shape.width; ++i) sum += double{x[r * shape.width + i]} * x[r * shape.width + i];
    inverse[r] = 1 / std::sqrt(sum / static_cast<double>(shape.width) + params.eps);
  }
  OnEveryTarget(compute, Within([&](size_t i) {
                  const size_t column = i % shape.width;
                  const double product = (std::abs(gain[column]) + 1) * std::abs(x[i]) * inverse[i / shape.width];
                  const double n = static_cast<double>(shape.width);
                  return 2 * kEps * ((n + 8) * product + std::abs(bias[column]));
                }));
}

/// Each target is within 4 ulp of the exact value plus 2e-7 of the argument (ops/activation.h), times the factor.
void RunActivation(Input& input) {
  const Shape shape = TakeShape(input);
  ActivationSpec spec;
  spec.kind = static_cast<Activation>(input.TakeBelow(static_cast<size_t>(Activation::kClampedSwiglu) + 1));
  spec.clamp = 7.0f;
  const std::vector<float> x = TakeTame(input, 2 * shape.size());
  const auto compute = [&] {
    std::vector<float> out(shape.size());
    GatedActivation(spec, {x.data(), 2 * shape.width}, shape.n_rows, shape.width, {out.data(), shape.width});
    return out;
  };
  OnEveryTarget(compute, Within([&](size_t i) {
                  const size_t at = i / shape.width * 2 * shape.width + i % shape.width;
                  // kSquaredRelu squares its argument, kSigmoid is at most 1, every other is at most its argument.
                  const double gate = std::abs(double{x[at]}), up = std::abs(double{x[at + shape.width]}) + 1;
                  return 2 * (6 * kEps + 2e-7) * std::max(gate, 1.0) * std::max(gate, 1.0) * up;
                }));
}

size_t TakeBlock(Input& input, size_t width) {
  return size_t{1} << input.TakeBelow(static_cast<size_t>(std::countr_zero(LargestRotationBlock(width))) + 1);
}

/// The order of the sums is the same on every target, so the bits are too.
void RunRotation(Input& input) {
  Shape shape = TakeShape(input);
  shape.width *= size_t{1} << input.TakeBelow(4);
  const size_t block = TakeBlock(input, shape.width);
  const std::vector<float> x = TakeAny(input, shape.size());
  const auto compute = [&] {
    std::vector<float> out(shape.size());
    WalshHadamard({x.data(), shape.width}, shape.n_rows, shape.width, block, {out.data(), shape.width});
    return out;
  };
  OnEveryTarget(compute, Within([](size_t) { return 0.0; }));
}

struct Quantized {
  std::vector<int8_t> values;
  std::vector<RowQuantization> params;
};

void RunQuantize(Input& input) {
  Shape shape = TakeShape(input);
  shape.width *= size_t{1} << input.TakeBelow(4);
  const QuantizeShape quantize = {shape.n_rows, shape.width, input.TakeBool() ? TakeBlock(input, shape.width) : 0};
  const std::vector<float> x = input.TakeBool() ? TakeAny(input, shape.size()) : TakeTame(input, shape.size());
  std::vector<float> scratch(shape.width);
  const auto compute = [&] {
    Quantized out = {std::vector<int8_t>(shape.size()), std::vector<RowQuantization>(shape.n_rows)};
    QuantizeRows(quantize, {x.data(), shape.width}, scratch, {{out.values.data(), shape.width}, out.params.data()});
    return out;
  };
  OnEveryTarget(compute, [](const Quantized& a, const Quantized& b) {
    LINNET_CHECK(a.values == b.values);
    for (size_t r = 0; r < a.params.size(); ++r) {
      LINNET_CHECK(a.params[r].zero_point == b.params[r].zero_point);
      LINNET_CHECK(SameFloat(a.params[r].scale, b.params[r].scale));
    }
  });
}

void Run(Input input) {
  switch (input.Take<uint8_t>() % 4) {
    case 0:
      return RunRmsNorm(input);
    case 1:
      return RunActivation(input);
    case 2:
      return RunRotation(input);
    default:
      return RunQuantize(input);
  }
}

}  // namespace
}  // namespace linnet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  linnet::fuzz::Run({data, size});
  return 0;
}
