// Public header. Time that never goes back.
#ifndef LINNET_PLATFORMS_CLOCK_H_
#define LINNET_PLATFORMS_CLOCK_H_

#include <cstdint>

namespace linnet::platform {

/// Nanoseconds since an arbitrary point; does not jump with the wall clock.
uint64_t MonotonicNanoseconds();

/// Seconds since `start_ns` of MonotonicNanoseconds.
inline double SecondsSince(uint64_t start_ns) { return static_cast<double>(MonotonicNanoseconds() - start_ns) * 1e-9; }

}  // namespace linnet::platform

#endif  // LINNET_PLATFORMS_CLOCK_H_
