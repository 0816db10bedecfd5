// Counts heap calls: a program that links allocation_counter.cc has operator new and delete replaced.
#ifndef LINNET_TESTS_SUPPORT_ALLOCATION_COUNTER_H_
#define LINNET_TESTS_SUPPORT_ALLOCATION_COUNTER_H_

#include <cstddef>

namespace linnet::testing {

/// Calls of operator new in this process so far, by any thread.
size_t AllocationCount();

}  // namespace linnet::testing

#endif  // LINNET_TESTS_SUPPORT_ALLOCATION_COUNTER_H_
