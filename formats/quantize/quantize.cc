#include "formats/quantize/quantize.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "core/base/float16.h"
#include "formats/quantize/row_kernels.h"
#include "ops/convert_float.h"
#include "ops/walsh_hadamard.h"

namespace linnet::formats {
namespace {

// 0x7f800000 and above are infinities and NaN.
bool IsWithin(float value, uint32_t limit_bits) { return (std::bit_cast<uint32_t>(value) & 0x7fffffffu) < limit_bits; }

// Counts first, which vectorizes; the index is looked for only where there is one to name.
Status CheckMagnitudes(std::span<const float> rows, uint32_t limit_bits, const char* message) {
  size_t n_outside = 0;
  for (const float value : rows) n_outside += IsWithin(value, limit_bits) ? 0 : 1;
  if (n_outside == 0) return Status::Ok();
  size_t index = 0;
  while (IsWithin(rows[index], limit_bits)) ++index;
  return {StatusCode::kInvalidModel, message, static_cast<int64_t>(index)};
}

constexpr uint32_t kInfinityBits = 0x7f800000u;

Status CheckRows(std::span<const float> rows, DType dtype) {
  LINNET_RETURN_IF_ERROR(CheckMagnitudes(rows, kInfinityBits, "a weight is not a finite number"));
  switch (dtype) {
    case DType::kF32:
      return Status::Ok();
    case DType::kF16:  // 65520 and above round to infinity
      return CheckMagnitudes(rows, std::bit_cast<uint32_t>(65520.0f), "a weight does not fit f16");
    case DType::kBF16:  // as do the last half step of f32's range
      return CheckMagnitudes(rows, 0x7f7f8000u, "a weight does not fit bf16");
    case DType::kQ8:
    case DType::kQ4:
      return CheckMagnitudes(rows, std::bit_cast<uint32_t>(kMaxQuantizedMagnitude),
                             "a weight is too large to be quantized");
  }
  return {StatusCode::kInternal, "unknown weight type"};
}

// Four chains, since compilers may not reorder a sum of floats.
double SquaredSum(std::span<const float> x) {
  double sums[4] = {};
  size_t i = 0;
  for (; i + 4 <= x.size(); i += 4) {
    for (size_t j = 0; j < 4; ++j) sums[j] += static_cast<double>(x[i + j]) * x[i + j];
  }
  for (; i < x.size(); ++i) sums[0] += static_cast<double>(x[i]) * x[i];
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

template <typename Widen>
double SixteenBitError(std::span<const float> rows, const uint16_t* stored, Widen widen) {
  double sum = 0.0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double error = static_cast<double>(widen(stored[i])) - rows[i];
    sum += error * error;
  }
  return sum;
}

double ConvertSixteenBit(std::span<const float> rows, DType dtype, uint16_t* out) {
  if (dtype == DType::kF16) {
    ops::F32ToF16(rows.data(), rows.size(), out);
    return SixteenBitError(rows, out, F32FromF16);
  }
  ops::F32ToBF16(rows.data(), rows.size(), out);
  return SixteenBitError(rows, out, F32FromBF16);
}

double ConvertRows(std::span<const float> rows, size_t columns, const QuantizeOptions& options,
                   std::span<std::byte> data, std::span<std::byte> scales) {
  const size_t n_rows = rows.size() / columns;
  double squared_error = 0.0;
  switch (options.dtype) {
    case DType::kF32:
      std::memcpy(data.data(), rows.data(), rows.size_bytes());
      break;
    case DType::kF16:
    case DType::kBF16:
      squared_error = ConvertSixteenBit(rows, options.dtype, reinterpret_cast<uint16_t*>(data.data()));
      break;
    case DType::kQ8:
      for (size_t r = 0; r < n_rows; ++r) {
        squared_error +=
            QuantizeRowQ8(rows.data() + r * columns, columns, reinterpret_cast<int8_t*>(data.data()) + r * columns,
                          reinterpret_cast<float*>(scales.data()) + r);
      }
      break;
    case DType::kQ4: {
      const size_t n_blocks = columns / options.block_size;
      for (size_t r = 0; r < n_rows; ++r) {
        squared_error += QuantizeRowQ4(rows.data() + r * columns, columns, options.block_size,
                                       reinterpret_cast<uint8_t*>(data.data()) + r * columns / 2,
                                       reinterpret_cast<uint16_t*>(scales.data()) + r * n_blocks);
      }
      break;
    }
  }
  return squared_error;
}

size_t ScaleBytes(size_t n_rows, size_t columns, const QuantizeOptions& options) {
  if (options.dtype == DType::kQ8) return n_rows * sizeof(float);
  if (options.dtype == DType::kQ4) return n_rows * (columns / options.block_size) * sizeof(uint16_t);
  return 0;
}

}  // namespace

double ErrorSums::RelativeRms() const {
  return squared_weights > 0.0 ? std::sqrt(squared_error / squared_weights) : 0.0;
}

Status CheckWeights(std::span<const float> rows, DType dtype) { return CheckRows(rows, dtype); }

Status QuantizeRows(std::span<float> rows, size_t columns, const QuantizeOptions& options, std::span<std::byte> data,
                    std::span<std::byte> scales, ErrorSums* sums) {
  LINNET_CHECK(columns > 0 && rows.size() % columns == 0);
  const size_t n_rows = rows.size() / columns;
  LINNET_CHECK(data.size() == rows.size() * DTypeBits(options.dtype) / 8);
  LINNET_CHECK(scales.size() == ScaleBytes(n_rows, columns, options));
  LINNET_RETURN_IF_ERROR(CheckRows(rows, options.dtype));
  if (options.rotation_block > 1) {
    const ops::Rows in_place(rows.data(), columns);
    ops::WalshHadamard(in_place, n_rows, columns, options.rotation_block, in_place);
  }
  sums->squared_weights += SquaredSum(rows);
  sums->squared_error += ConvertRows(rows, columns, options, data, scales);
  return Status::Ok();
}

}  // namespace linnet::formats
