#include "tests/support/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> g_n_allocations = 0;

}  // namespace

void* operator new(size_t bytes) {
  ++g_n_allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace linnet::testing {

size_t AllocationCount() { return g_n_allocations; }

}  // namespace linnet::testing
