// Public header. Checks for broken invariants of our own; input never reaches them.
#ifndef LINNET_CORE_BASE_CHECK_H_
#define LINNET_CORE_BASE_CHECK_H_

namespace linnet {

/// Stops the program: an invariant of Linnet's own code does not hold. Never called for bad input.
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace linnet

/// On in every build: only for invariants of our own.
#define LINNET_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::linnet::CheckFailed(#condition, __FILE__, __LINE__))

/// On in debug builds: what kernels trust because it was checked at load.
#ifdef NDEBUG
#define LINNET_DCHECK(condition) static_cast<void>(sizeof(condition))
#else
#define LINNET_DCHECK(condition) LINNET_CHECK(condition)
#endif

#endif  // LINNET_CORE_BASE_CHECK_H_
