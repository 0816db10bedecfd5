// Public header. Arithmetic on sizes that come from a file.
#ifndef LINNET_CORE_BASE_CHECKED_H_
#define LINNET_CORE_BASE_CHECKED_H_

#include <cstddef>
#include <cstdint>

#include "core/base/status.h"

namespace linnet {

/// a + b and a * b, or kInvalidModel where the result does not fit.
inline Result<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return Status(StatusCode::kInvalidModel, "a size overflows 64 bits");
  return sum;
}
inline Result<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return Status(StatusCode::kInvalidModel, "a size overflows 64 bits");
  return product;
}

/// The next multiple of `alignment` (a power of two) that is not below `value`; the caller knows that it fits.
constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) { return (value + alignment - 1) & ~(alignment - 1); }
constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
constexpr bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace linnet

#endif  // LINNET_CORE_BASE_CHECKED_H_
