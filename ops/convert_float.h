// Public header. Conversions between f32 and the 16-bit formats.
#ifndef LINNET_OPS_CONVERT_FLOAT_H_
#define LINNET_OPS_CONVERT_FLOAT_H_

#include <cstddef>
#include <cstdint>

namespace linnet::ops {

/// To nearest, ties to even; values beyond f16's range become infinities, subnormals are kept, NaN stays NaN.
/// No overlap of x and out; any alignment of its type.
void F32ToF16(const float* x, size_t n, uint16_t* out);
void F32ToBF16(const float* x, size_t n, uint16_t* out);

/// Exact.
void F16ToF32(const uint16_t* x, size_t n, float* out);
void BF16ToF32(const uint16_t* x, size_t n, float* out);

}  // namespace linnet::ops

#endif  // LINNET_OPS_CONVERT_FLOAT_H_
