// The loops behind QuantizeRows, one a type. Inputs were checked: finite and at most kMaxQuantizedMagnitude.
#ifndef LINNET_FORMATS_QUANTIZE_ROW_KERNELS_H_
#define LINNET_FORMATS_QUANTIZE_ROW_KERNELS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/dtype.h"
#include "core/base/status.h"

namespace linnet::formats {

/// Four floats as the compiler's own vector type: one register with SSE and NEON, plain operations elsewhere. Loops are
/// written with it because compilers may not reorder float sums, so that they would stay scalar; and with one width for
/// all CPUs the sums, hence the choices that hang on them, are the same everywhere.
using Float4 = float __attribute__((vector_size(16)));

inline Float4 Load(const float* from) {
  Float4 value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
inline Float4 Min(Float4 a, Float4 b) { return a < b ? a : b; }
inline Float4 Max(Float4 a, Float4 b) { return a > b ? a : b; }
inline float Sum(Float4 a) { return (a[0] + a[2]) + (a[1] + a[3]); }

/// To nearest, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no bits behind the point. SSE2 has no rounding.
template <typename T>
T RoundToNearest(T x) {
  constexpr float kShift = 12582912.0f;
  return (x + kShift) - kShift;
}

/// The largest |x|.
inline float MaxMagnitude(const float* x, size_t n) {
  Float4 largest = {};
  size_t i = 0;
  for (; i + 4 <= n; i += 4) largest = Max(largest, Max(Load(x + i), -Load(x + i)));
  float magnitude = std::max({largest[0], largest[1], largest[2], largest[3]});
  for (; i < n; ++i) magnitude = std::max(magnitude, std::abs(x[i]));
  return magnitude;
}

/// What QuantizeRows refuses: value() is the index of the weight.
Status CheckWeights(std::span<const float> rows, DType dtype);

/// One row [columns] to int8 and one scale; returns the squared error.
double QuantizeRowQ8(const float* row, size_t columns, int8_t* out, float* scale);

/// One row [columns] to nibbles [columns / 2] and bf16 scales [columns / block_size]; returns the squared error.
double QuantizeRowQ4(const float* row, size_t columns, size_t block_size, uint8_t* out, uint16_t* scales);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_QUANTIZE_ROW_KERNELS_H_
