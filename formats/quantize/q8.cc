#include "formats/quantize/quantize.h"
#include "formats/quantize/row_kernels.h"

namespace linnet::formats {

namespace {

constexpr float kMaxLevel = 127.0f;

// Four weights at once; returns their errors.
Float4 QuantizeFour(const float* w, float scale, float inverse, int8_t* out) {
  const Float4 low = {-kMaxLevel, -kMaxLevel, -kMaxLevel, -kMaxLevel};
  const Float4 weights = Load(w);
  const Float4 q = RoundToNearest(Min(-low, Max(low, weights * inverse)));
  for (size_t j = 0; j < 4; ++j) out[j] = static_cast<int8_t>(q[j]);
  return q * scale - weights;
}

float QuantizeOne(float w, float scale, float inverse, int8_t* out) {
  const float q = RoundToNearest(std::min(kMaxLevel, std::max(-kMaxLevel, w * inverse)));
  *out = static_cast<int8_t>(q);
  return q * scale - w;
}

}  // namespace

double QuantizeRowQ8(const float* row, size_t columns, int8_t* out, float* scale) {
  *scale = std::max(MaxMagnitude(row, columns) / kMaxLevel, kMinScale);
  const float inverse = 1.0f / *scale;
  double squared_error = 0.0;
  // f32 partial sums over a part of the row, so that they stay exact enough for any width.
  constexpr size_t kPart = 1024;
  for (size_t begin = 0; begin < columns; begin += kPart) {
    const size_t end = std::min(columns, begin + kPart);
    Float4 sums = {};
    size_t i = begin;
    for (; i + 4 <= end; i += 4) {
      const Float4 errors = QuantizeFour(row + i, *scale, inverse, out + i);
      sums += errors * errors;
    }
    squared_error += Sum(sums);
    for (; i < end; ++i) {
      const float error = QuantizeOne(row[i], *scale, inverse, out + i);
      squared_error += error * error;
    }
  }
  return squared_error;
}

}  // namespace linnet::formats
