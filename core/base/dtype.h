// Public header. The element types of weights, caches and activations.
#ifndef LINNET_CORE_BASE_DTYPE_H_
#define LINNET_CORE_BASE_DTYPE_H_

#include <cstddef>
#include <cstdint>

namespace linnet {

/// The values are part of the file format and never change.
enum class DType : uint8_t {
  kF32 = 0,
  kF16 = 1,   // IEEE binary16
  kBF16 = 2,  // the upper half of f32
  kQ8 = 3,    // int8 symmetric, one f32 scale per output row (XNNPACK's qc8w)
  kQ4 = 4,    // int4 symmetric as q - 8, one bf16 scale per block along the input (XNNPACK's qb4w)
};

constexpr uint8_t kDTypeCount = 5;

/// "f32", "f16", "bf16", "q8", "q4".
constexpr const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kQ8:
      return "q8";
    case DType::kQ4:
      return "q4";
  }
  return "?";
}

constexpr bool IsQuantized(DType dtype) { return dtype == DType::kQ8 || dtype == DType::kQ4; }

/// Bits per stored weight, scales not counted.
constexpr unsigned DTypeBits(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 32;
    case DType::kF16:
    case DType::kBF16:
      return 16;
    case DType::kQ8:
      return 8;
    case DType::kQ4:
      return 4;
  }
  return 0;
}

}  // namespace linnet

#endif  // LINNET_CORE_BASE_DTYPE_H_
