// The operations again, as plain loops in f64: what the kernels are tested against.
#ifndef LINNET_TESTS_SUPPORT_OPS_REFERENCE_H_
#define LINNET_TESTS_SUPPORT_OPS_REFERENCE_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/model_config.h"

namespace linnet::testing {

inline constexpr double kEps = std::numeric_limits<float>::epsilon();

inline double Mean(const float* x, size_t n) {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += x[i];
  return sum / static_cast<double>(n);
}

inline double MeanSquare(const float* x, size_t n, double center) {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += (x[i] - center) * (x[i] - center);
  return sum / static_cast<double>(n);
}

inline double ReferenceSigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

inline double ReferenceActivation(Activation kind, double x) {
  switch (kind) {
    case Activation::kRelu:
      return std::fmax(x, 0.0);
    case Activation::kSquaredRelu:
      return x > 0.0 ? x * x : 0.0;
    case Activation::kGelu:
      return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kSilu:
      return x * ReferenceSigmoid(x);
    case Activation::kSigmoid:
      return ReferenceSigmoid(x);
    case Activation::kClampedSwiglu:
      break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

/// The definition: entry (i, j) of the natural-order matrix is -1 to the number of common bits.
inline std::vector<double> ReferenceWalshHadamard(const float* x, size_t width, size_t block) {
  std::vector<double> out(width, 0.0);
  for (size_t i = 0; i < width; ++i) {
    const size_t begin = i / block * block;
    for (size_t j = 0; j < block; ++j) {
      const bool negative = std::popcount((i - begin) & j) % 2 == 1;
      out[i] += negative ? -static_cast<double>(x[begin + j]) : static_cast<double>(x[begin + j]);
    }
    out[i] /= std::sqrt(static_cast<double>(block));
  }
  return out;
}

/// f16 bits to their value.
inline double ReferenceF16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double sign = bits >> 15 != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

}  // namespace linnet::testing

#endif  // LINNET_TESTS_SUPPORT_OPS_REFERENCE_H_
