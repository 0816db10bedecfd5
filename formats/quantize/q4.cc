#include "core/base/float16.h"
#include "formats/quantize/quantize.h"
#include "formats/quantize/row_kernels.h"
#include "ops/compensated_rounding.h"

namespace linnet::formats {
namespace {

// As bf16 stores it, and no nearer to zero than what kernels take.
float StoredScale(float value) {
  const float stored = F32FromBF16(BF16FromF32(value));
  return std::abs(stored) < kMinScale ? std::copysign(kMinScale, stored) : stored;
}

// The weight of largest magnitude; the negative one of two.
float Largest(const float* w, size_t n) {
  Float4 high = {}, low = {};
  for (size_t i = 0; i < n; i += 4) {
    high = Max(high, Load(w + i));
    low = Min(low, Load(w + i));
  }
  const float largest = std::max({high[0], high[1], high[2], high[3]});
  const float smallest = std::min({low[0], low[1], low[2], low[3]});
  return largest > -smallest ? largest : smallest;
}

Float4 Levels(const float* w, float inverse) {
  constexpr Float4 kLow = {-8.0f, -8.0f, -8.0f, -8.0f}, kHigh = {7.0f, 7.0f, 7.0f, 7.0f};
  return RoundToNearest(Min(kHigh, Max(kLow, Load(w) * inverse)));
}

// n is a block size, hence a multiple of 8: two sums hide the latency of an addition.
float SquaredError(const float* w, size_t n, float scale) {
  const float inverse = 1.0f / scale;
  Float4 even = {}, odd = {};
  for (size_t i = 0; i < n; i += 8) {
    const Float4 a = Levels(w + i, inverse) * scale - Load(w + i);
    const Float4 b = Levels(w + i + 4, inverse) * scale - Load(w + i + 4);
    even += a * a;
    odd += b * b;
  }
  return Sum(even + odd);
}

// The scale that fits the levels of `scale` best: sum(w q) / sum(q q).
float LeastSquaresScale(const float* w, size_t n, float scale) {
  const float inverse = 1.0f / scale;
  Float4 products = {}, squares = {};
  for (size_t i = 0; i < n; i += 4) {
    const Float4 q = Levels(w + i, inverse);
    products += Load(w + i) * q;
    squares += q * q;
  }
  return Sum(squares) > 0.0f ? Sum(products) / Sum(squares) : scale;
}

struct ScaleChoice {
  float scale = 0.0f;
  float squared_error = 0.0f;
};

// Scales are tried as bf16 stores them. The first of equals wins, so that the choice is the same everywhere.
ScaleChoice ChooseScale(const float* w, size_t n) {
  const float largest = 0.0f - Largest(w, n);  // positive for zeros
  ScaleChoice best;  // a start that also serves weights whose squared errors are below f32's range
  best.scale = StoredScale(largest / 8.0f);
  best.squared_error = SquaredError(w, n, best.scale);
  const auto attempt = [&](float candidate) {
    const float scale = StoredScale(candidate);
    const float squared_error = SquaredError(w, n, scale);
    if (squared_error < best.squared_error) best = {scale, squared_error};
  };
  for (const float divisor : ops::kScaleDivisors) attempt(largest / divisor);
  attempt(LeastSquaresScale(w, n, best.scale));
  return best;
}

}  // namespace

double QuantizeRowQ4(const float* row, size_t columns, size_t block_size, uint8_t* out, uint16_t* scales) {
  double squared_error = 0.0;
  for (size_t block = 0; block < columns / block_size; ++block) {
    const float* w = row + block * block_size;
    const ScaleChoice choice = ChooseScale(w, block_size);
    const float inverse = 1.0f / choice.scale;
    uint8_t* bytes = out + block * block_size / 2;
    for (size_t i = 0; i < block_size; i += 4) {
      const Float4 q = Levels(w + i, inverse) + 8.0f;
      bytes[i / 2] = static_cast<uint8_t>(static_cast<int>(q[0]) | (static_cast<int>(q[1]) << 4));
      bytes[i / 2 + 1] = static_cast<uint8_t>(static_cast<int>(q[2]) | (static_cast<int>(q[3]) << 4));
    }
    scales[block] = BF16FromF32(choice.scale);
    squared_error += choice.squared_error;
  }
  return squared_error;
}

}  // namespace linnet::formats
