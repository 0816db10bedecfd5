#include "formats/quantize/q4_grid.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "core/base/float16.h"

namespace linnet::formats {
namespace {

constexpr uint8_t kZeroPair = 0x88;  // two levels of 8: zeros

// Sum of q * q over a block.
double SquaredLevels(std::span<const uint8_t> levels) {
  int32_t sum = 0;
  for (const uint8_t pair : levels) {
    const int32_t low = (pair & 15) - 8, high = (pair >> 4) - 8;
    sum += low * low + high * high;
  }
  return sum;
}

}  // namespace

Status StoreQ4Grid(std::span<const uint8_t> levels, std::span<const float> scales, size_t block_size,
                   std::span<std::byte> data, std::span<std::byte> bf16_scales, ErrorSums* sums) {
  const size_t block_bytes = block_size / 2;
  LINNET_CHECK(levels.size() == scales.size() * block_bytes && data.size() == levels.size());
  LINNET_CHECK(bf16_scales.size() == scales.size() * sizeof(uint16_t));
  for (size_t b = 0; b < scales.size(); ++b) {
    const float scale = scales[b];
    const auto index = static_cast<int64_t>(b * block_size);
    if (!std::isfinite(scale)) return {StatusCode::kInvalidModel, "a weight is not a finite number", index};
    if (std::abs(scale) > kMaxQuantizedMagnitude / 8) {
      return {StatusCode::kInvalidModel, "a weight is too large to be quantized", index};
    }
    const std::span<const uint8_t> block = levels.subspan(b * block_bytes, block_bytes);
    const double weights = SquaredLevels(block) * scale * scale;
    const bool zero = std::abs(scale) < kMinScale;
    const uint16_t stored = BF16FromF32(zero ? kMinScale : scale);
    if (zero) {
      std::memset(data.data() + b * block_bytes, kZeroPair, block_bytes);
    } else {
      std::memcpy(data.data() + b * block_bytes, block.data(), block_bytes);
    }
    std::memcpy(bf16_scales.data() + b * sizeof(stored), &stored, sizeof(stored));
    const double error = zero ? 0.0 : static_cast<double>(F32FromBF16(stored)) - scale;
    sums->squared_weights += weights;
    sums->squared_error += zero ? weights : SquaredLevels(block) * error * error;
  }
  return Status::Ok();
}

}  // namespace linnet::formats
