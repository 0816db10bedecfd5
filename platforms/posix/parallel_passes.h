// The frame of measurements by several threads: they start each pass together and the pass ends with the last of them.
#ifndef LINNET_PLATFORMS_POSIX_PARALLEL_PASSES_H_
#define LINNET_PLATFORMS_POSIX_PARALLEL_PASSES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::platform {

struct PassWork {
  void (*prepare)(void* context, uint32_t thread) = nullptr;  // once in each thread, before the first pass; may be null
  void (*run)(void* context, uint32_t thread) = nullptr;      // one thread's part of a pass
  void* context = nullptr;
};

struct PassLimits {
  size_t min_passes = 5;
  size_t max_passes = 25;
  double target_seconds = 1.0;  // of all passes; a warm-up pass before them says how many fit
};

constexpr uint32_t kMaxPassThreads = 1024;

/// Times of the passes in seconds, sorted, at least one. The caller's thread is thread 0.
/// Errors: kInvalidArgument (no threads, or more than kMaxPassThreads), kInternal (a thread cannot be started).
Result<std::vector<double>> TimePasses(const PassWork& work, uint32_t threads, const PassLimits& limits,
                                       Diagnostic* diagnostic);

/// The middle of TimePasses' result, above zero.
double MedianSeconds(const std::vector<double>& sorted_seconds);

}  // namespace linnet::platform

#endif  // LINNET_PLATFORMS_POSIX_PARALLEL_PASSES_H_
