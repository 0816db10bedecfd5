// Memory for a session or for packed weights, aligned to a cache line.
#ifndef LINNET_CORE_ALIGNED_MEMORY_H_
#define LINNET_CORE_ALIGNED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>

namespace linnet {

inline constexpr size_t kMemoryAlignment = 64;

struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{kMemoryAlignment}); }
};
using AlignedMemory = std::unique_ptr<std::byte[], AlignedDelete>;

/// Null where there is no memory.
inline AlignedMemory AllocateAligned(uint64_t bytes) {
  // A plan may be larger than a 32-bit address space.
  if (bytes > std::numeric_limits<size_t>::max() / 2) return nullptr;
  return AlignedMemory(new (std::align_val_t{kMemoryAlignment}, std::nothrow) std::byte[bytes]);
}

}  // namespace linnet

#endif  // LINNET_CORE_ALIGNED_MEMORY_H_
