#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <vector>

#include "platforms/cpu.h"
#include "platforms/memory.h"
#include "platforms/posix/descriptor.h"
#include "platforms/posix/parallel_passes.h"

namespace linnet::platform {
namespace {

constexpr uint64_t kMinBufferBytes = uint64_t{256} << 20;
// What a cache keeps from the last pass is then under a quarter of the buffer, and next to nothing where it replaces
// the least recently used line.
constexpr uint64_t kCacheMultiple = 4;
constexpr uint64_t kPartAlignment = 4096;  // no two threads share a page

// Anonymous memory, unmapped at the end.
struct Buffer {
  explicit Buffer(uint64_t size)
      : bytes(size),
        data(mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (valid()) munmap(data, static_cast<size_t>(bytes));
  }
  bool valid() const { return data != MAP_FAILED; }

  uint64_t bytes;
  void* data;
};

// Eight sums hide the additions' latency; the compiler makes vectors of them.
uint64_t Sum(const uint64_t* values, size_t count) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += values[i + j];
  }
  return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

struct Reading {
  uint64_t* values;
  size_t count;                       // of one thread's part
  std::atomic<uint64_t> checksum{0};  // keeps the reads from being removed
};

// Every thread touches its own pages first: the kernel then places them in its node's memory.
void FillPart(void* context, uint32_t thread) {
  auto& reading = *static_cast<Reading*>(context);
  std::fill_n(reading.values + thread * reading.count, reading.count, uint64_t{1});
}

void ReadPart(void* context, uint32_t thread) {
  auto& reading = *static_cast<Reading*>(context);
  reading.checksum.fetch_add(Sum(reading.values + thread * reading.count, reading.count), std::memory_order_relaxed);
}

uint64_t ChooseBufferBytes(uint64_t cache_bytes) {
  const uint64_t wanted = std::max(kMinBufferBytes, kCacheMultiple * cache_bytes);
  const uint64_t available = AvailableMemoryBytes();
  return available == 0 ? wanted : std::min(wanted, available / 4);
}

}  // namespace

Result<ReadBandwidth> MeasureReadBandwidth(uint32_t threads, Diagnostic* diagnostic) {
  if (threads == 0 || threads > kMaxPassThreads) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "bad thread count", "threads: expected 1 to %u, found %u",
                kMaxPassThreads, threads);
  }
  const uint64_t cache_bytes = DescribeCpu().last_level_cache_bytes();
  const uint64_t part_bytes = ChooseBufferBytes(cache_bytes) / threads / kPartAlignment * kPartAlignment;
  if (part_bytes == 0)
    return Fail(diagnostic, StatusCode::kOutOfMemory, "no memory", "memory: expected some to be free");
  const Buffer buffer(part_bytes * threads);
  if (!buffer.valid()) {
    return Fail(diagnostic, StatusCode::kOutOfMemory, "no memory for the buffer", "memory: expected %llu bytes: %s",
                static_cast<unsigned long long>(buffer.bytes), ErrnoText(errno).c_str());
  }
  Reading reading = {static_cast<uint64_t*>(buffer.data), static_cast<size_t>(part_bytes / sizeof(uint64_t))};
  LINNET_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                          TimePasses({FillPart, ReadPart, &reading}, threads, {}, diagnostic));
  ReadBandwidth result;
  // The fastest: others on this machine only ever make a pass slower, and a limit that work exceeds is none.
  result.bytes_per_s = static_cast<double>(buffer.bytes) / std::max(seconds.front(), 1e-9);
  result.spread = (seconds.back() - seconds.front()) / MedianSeconds(seconds);
  result.buffer_bytes = buffer.bytes;
  result.threads = threads;
  result.beyond_cache = buffer.bytes >= kCacheMultiple * cache_bytes;
  return result;
}

}  // namespace linnet::platform
