// Public header. How many int8 multiply-adds this machine can do: the ceiling of quantized matrix products.
#ifndef LINNET_PLATFORMS_DOT_PRODUCT_PEAK_H_
#define LINNET_PLATFORMS_DOT_PRODUCT_PEAK_H_

#include <cstdint>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::platform {

struct DotProductPeak {
  double multiply_adds_per_s = 0.0;  // all threads together, fastest of the passes
  double spread = 0.0;               // (slowest pass - fastest pass) / median, in time
  const char* instruction = "";      // "vpdpbusd, 512 bits"
  uint32_t threads = 0;
};

/// Measures `threads` threads that do nothing but int8 multiply-adds in registers, with the fastest instruction that
/// the kernels of quantized products use on this CPU as cpuinfo describes it (masks of the features count). Takes under
/// a second.
/// Errors: kInvalidArgument (no threads), kInternal (a thread cannot be started).
Result<DotProductPeak> MeasureDotProductPeak(uint32_t threads, Diagnostic* diagnostic);

}  // namespace linnet::platform

#endif  // LINNET_PLATFORMS_DOT_PRODUCT_PEAK_H_
