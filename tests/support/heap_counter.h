// Counts the whole process's calls for memory: a program that links heap_counter.cc has malloc and its kin replaced,
// which operator new, XNNPACK, pthreadpool and cpuinfo come down to, and mmap and its kin beside them.
#ifndef LINNET_TESTS_SUPPORT_HEAP_COUNTER_H_
#define LINNET_TESTS_SUPPORT_HEAP_COUNTER_H_

#include <cstdint>

namespace linnet::testing {

/// False under a sanitizer, without glibc, and where LINNET_STATIC_TEST says that the program is a static one, which
/// cannot replace malloc: then nothing is counted.
bool HeapIsCounted();

/// Calls so far that took or gave back memory, by any thread: heap and mappings.
int64_t MemoryCalls();

/// Bytes that the heap's users hold now, each block with what the allocator rounded it up to.
int64_t HeapBytes();

}  // namespace linnet::testing

#endif  // LINNET_TESTS_SUPPORT_HEAP_COUNTER_H_
