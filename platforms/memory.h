// Public header. What this process and this machine have of memory, and how fast it can be read.
#ifndef LINNET_PLATFORMS_MEMORY_H_
#define LINNET_PLATFORMS_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::platform {

/// Resident memory of this process in bytes; 0 where the system does not tell.
struct MemoryCounters {
  uint64_t resident_bytes = 0;       // anonymous + file + shared
  uint64_t anonymous_bytes = 0;      // heap, stacks, arenas
  uint64_t file_bytes = 0;           // resident pages of mapped files, such as weights
  uint64_t peak_resident_bytes = 0;  // since the start or the last reset
};

/// Errors: kUnsupported where the system does not tell.
Result<MemoryCounters> ReadMemoryCounters();

/// Resident pages of the program's own file and of shared libraries, which other processes share; what they wrote of
/// them is anonymous memory and not counted. 0 where the system does not tell.
uint64_t ResidentProgramBytes();

/// Makes peak_resident_bytes start again at the present value. False where the system does not allow it.
bool ResetPeakMemory();

/// Bytes that new allocations can use without swapping; 0 where the system does not tell.
uint64_t AvailableMemoryBytes();

/// Reads these regions in and keeps their pages in memory until they are unmapped.
/// Errors: kOutOfMemory with the bytes that are needed, the limit (RLIMIT_MEMLOCK) and what to do about it; nothing
/// stays locked then.
Status LockMemory(std::span<const std::span<const std::byte>> regions, Diagnostic* diagnostic);

struct ReadBandwidth {
  double bytes_per_s = 0.0;   // of the fastest pass
  double spread = 0.0;        // (slowest pass - fastest pass) / median, in time
  uint64_t buffer_bytes = 0;  // what one pass reads, over all threads
  uint32_t threads = 0;
  bool beyond_cache = true;  // false: there was no memory for a buffer of 4 times the last-level cache
};

/// Measures how fast `threads` threads together read memory: each sums its part of a buffer that is at least 4 times
/// the last-level cache and 256 MiB, but never more than a quarter of the available memory. Takes under two seconds.
/// Errors: kInvalidArgument (no threads), kOutOfMemory, kInternal (a thread cannot be started).
Result<ReadBandwidth> MeasureReadBandwidth(uint32_t threads, Diagnostic* diagnostic);

}  // namespace linnet::platform

#endif  // LINNET_PLATFORMS_MEMORY_H_
