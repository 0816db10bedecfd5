#include "tests/support/heap_counter.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#if defined(__GLIBC__) && !defined(LINNET_STATIC_TEST) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define LINNET_COUNTS_HEAP_CALLS 1

#include <malloc.h>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

std::atomic<int64_t> calls = 0;
std::atomic<int64_t> bytes = 0;

void* Count(void* block) {
  ++calls;
  if (block != nullptr) bytes += static_cast<int64_t>(malloc_usable_size(block));
  return block;
}
void Forget(void* block) {
  if (block != nullptr) bytes -= static_cast<int64_t>(malloc_usable_size(block));
}
void* Map(void* address, size_t length, int protection, int flags, int descriptor, int64_t offset) {
  ++calls;
#ifdef SYS_mmap2
  const auto pages = static_cast<long>(offset >> 12);  // mmap2 counts in 4 KiB, whatever the page is
  return reinterpret_cast<void*>(syscall(SYS_mmap2, address, length, protection, flags, descriptor, pages));
#else
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, descriptor, offset));
#endif
}

}  // namespace

extern "C" {
void* malloc(size_t size) { return Count(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) { return Count(__libc_calloc(count, size)); }
void* realloc(void* old, size_t size) {
  Forget(old);
  return Count(__libc_realloc(old, size));
}
void* reallocarray(void* old, size_t count, size_t size) {
  size_t total = 0;
  if (__builtin_mul_overflow(count, size, &total)) return errno = ENOMEM, nullptr;
  return realloc(old, total);
}
void* memalign(size_t alignment, size_t size) { return Count(__libc_memalign(alignment, size)); }
void* aligned_alloc(size_t alignment, size_t size) { return Count(__libc_memalign(alignment, size)); }
void* valloc(size_t size) { return Count(__libc_memalign(static_cast<size_t>(sysconf(_SC_PAGESIZE)), size)); }
int posix_memalign(void** out, size_t alignment, size_t size) {
  *out = Count(__libc_memalign(alignment, size));
  return *out == nullptr ? ENOMEM : 0;
}
void free(void* block) {
  ++calls;
  Forget(block);
  __libc_free(block);
}
void* mmap(void* address, size_t length, int protection, int flags, int descriptor, off_t offset) {
  return Map(address, length, protection, flags, descriptor, offset);
}
void* mmap64(void* address, size_t length, int protection, int flags, int descriptor, off64_t offset) {
  return Map(address, length, protection, flags, descriptor, offset);
}
int munmap(void* address, size_t length) {
  ++calls;
  return static_cast<int>(syscall(SYS_munmap, address, length));
}
}
#endif

namespace linnet::testing {

#ifdef LINNET_COUNTS_HEAP_CALLS
bool HeapIsCounted() { return true; }
int64_t MemoryCalls() { return calls; }
int64_t HeapBytes() { return bytes; }
#else
bool HeapIsCounted() { return false; }
int64_t MemoryCalls() { return 0; }
int64_t HeapBytes() { return 0; }
#endif

}  // namespace linnet::testing
