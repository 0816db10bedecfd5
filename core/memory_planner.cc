#include <algorithm>

#include "core/base/checked.h"
#include "core/plan.h"

namespace linnet {
namespace {

constexpr uint64_t kBufferAlignment = 64;  // a cache line, and XNNPACK's alignment

bool LifetimesMeet(const PlanBuffer& a, const PlanBuffer& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

// The lowest offset at which `buffer` meets none of `placed`, which are ordered by offset.
uint64_t LowestFreeOffset(const PlanBuffer& buffer, const std::vector<const PlanBuffer*>& placed) {
  uint64_t offset = 0;
  for (const PlanBuffer* other : placed) {
    if (!LifetimesMeet(buffer, *other)) continue;
    if (offset + buffer.bytes <= other->offset) break;
    offset = std::max(offset, AlignUp(other->offset + other->bytes, kBufferAlignment));
  }
  return offset;
}

}  // namespace

uint64_t AssignOffsets(std::vector<PlanBuffer>& buffers, BufferUse use) {
  std::vector<PlanBuffer*> order;
  for (PlanBuffer& buffer : buffers) {
    if (buffer.use == use) order.push_back(&buffer);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const PlanBuffer* a, const PlanBuffer* b) { return a->bytes > b->bytes; });
  std::vector<const PlanBuffer*> placed;
  uint64_t region_bytes = 0;
  for (PlanBuffer* buffer : order) {
    buffer->offset = LowestFreeOffset(*buffer, placed);
    region_bytes = std::max(region_bytes, AlignUp(buffer->offset + buffer->bytes, kBufferAlignment));
    const auto at = std::upper_bound(placed.begin(), placed.end(), buffer,
                                     [](const PlanBuffer* a, const PlanBuffer* b) { return a->offset < b->offset; });
    placed.insert(at, buffer);
  }
  return region_bytes;
}

}  // namespace linnet
