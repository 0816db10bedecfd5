#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <span>
#include <vector>

#include "platforms/clock.h"
#include "platforms/cpu.h"
#include "platforms/memory.h"
#include "platforms/posix/descriptor.h"

namespace linnet::platform {
namespace {

constexpr uint64_t kMinBufferBytes = uint64_t{256} << 20;
// What a cache keeps from the last pass is then under a quarter of the buffer, and next to nothing where it replaces
// the least recently used line.
constexpr uint64_t kCacheMultiple = 4;
constexpr size_t kMinPasses = 5;
constexpr size_t kMaxPasses = 25;
constexpr double kTargetSeconds = 1.0;
constexpr uint64_t kPartAlignment = 4096;  // no two threads share a page
constexpr uint32_t kMaxThreads = 1024;

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

// The leader opens a pass by raising `generation`; every thread reads its part and counts itself in `done`.
struct Shared {
  std::atomic<uint64_t> generation{0};
  std::atomic<uint32_t> done{0};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> checksum{0};  // keeps the reads from being removed
};

struct Part {
  Shared* shared;
  uint64_t* values;
  size_t count;
};

void ReadPart(const Part& part) {
  part.shared->checksum.fetch_add(Sum(part.values, part.count), std::memory_order_relaxed);
  part.shared->done.fetch_add(1, std::memory_order_release);
}

void* Work(void* argument) {
  const Part& part = *static_cast<const Part*>(argument);
  Shared& shared = *part.shared;
  // Every thread touches its own pages first: the kernel then places them in its node's memory.
  std::fill(part.values, part.values + part.count, uint64_t{1});
  part.shared->done.fetch_add(1, std::memory_order_release);
  for (uint64_t seen = 0;; ++seen) {
    while (shared.generation.load(std::memory_order_acquire) == seen) sched_yield();
    if (shared.stop.load(std::memory_order_relaxed)) return nullptr;
    ReadPart(part);
  }
}

void WaitForAll(Shared& shared, size_t count) {
  while (shared.done.load(std::memory_order_acquire) != count) sched_yield();
  shared.done.store(0, std::memory_order_relaxed);
}

// Times of the passes in seconds. The first pass is a warm-up and says how many follow.
std::vector<double> RunPasses(Shared& shared, std::span<const Part> parts) {
  std::fill(parts[0].values, parts[0].values + parts[0].count, uint64_t{1});
  shared.done.fetch_add(1, std::memory_order_release);
  WaitForAll(shared, parts.size());
  std::vector<double> seconds;
  size_t passes = 0;
  for (size_t pass = 0; pass <= passes; ++pass) {
    const uint64_t start = MonotonicNanoseconds();
    shared.generation.fetch_add(1, std::memory_order_release);
    ReadPart(parts[0]);
    WaitForAll(shared, parts.size());
    const double elapsed = SecondsSince(start);
    if (pass > 0) {
      seconds.push_back(elapsed);
    } else {
      passes = static_cast<size_t>(
          std::clamp(kTargetSeconds / std::max(elapsed, 1e-6), double{kMinPasses}, double{kMaxPasses}));
    }
  }
  return seconds;
}

Result<std::vector<double>> TimePasses(std::span<Part> parts, Diagnostic* diagnostic) {
  Shared& shared = *parts[0].shared;
  std::vector<pthread_t> threads;
  int error = 0;
  for (Part& part : parts.subspan(1)) {
    pthread_t thread;
    error = pthread_create(&thread, nullptr, Work, &part);
    if (error != 0) break;
    threads.push_back(thread);
  }
  std::vector<double> seconds;
  if (error == 0) seconds = RunPasses(shared, parts);
  shared.stop.store(true, std::memory_order_relaxed);
  shared.generation.fetch_add(1, std::memory_order_release);
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  if (error != 0) {
    return Fail(diagnostic, StatusCode::kInternal, "cannot start a thread", "thread %zu of %zu: %s", threads.size() + 2,
                parts.size(), ErrnoText(error).c_str());
  }
  return seconds;
}

uint64_t ChooseBufferBytes(uint64_t cache_bytes) {
  const uint64_t wanted = std::max(kMinBufferBytes, kCacheMultiple * cache_bytes);
  const uint64_t available = AvailableMemoryBytes();
  return available == 0 ? wanted : std::min(wanted, available / 4);
}

}  // namespace

Result<ReadBandwidth> MeasureReadBandwidth(uint32_t threads, Diagnostic* diagnostic) {
  if (threads == 0 || threads > kMaxThreads) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "bad thread count", "threads: expected 1 to %u, found %u",
                kMaxThreads, threads);
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
  Shared shared;
  std::vector<Part> parts;
  const size_t count = static_cast<size_t>(part_bytes / sizeof(uint64_t));
  for (uint32_t i = 0; i < threads; ++i)
    parts.push_back({&shared, static_cast<uint64_t*>(buffer.data) + i * count, count});
  LINNET_ASSIGN_OR_RETURN(std::vector<double> seconds, TimePasses(parts, diagnostic));
  std::sort(seconds.begin(), seconds.end());
  const double median = std::max(seconds[seconds.size() / 2], 1e-9);
  ReadBandwidth result;
  result.bytes_per_s = static_cast<double>(buffer.bytes) / median;
  result.spread = (seconds.back() - seconds.front()) / median;
  result.buffer_bytes = buffer.bytes;
  result.threads = threads;
  result.beyond_cache = buffer.bytes >= kCacheMultiple * cache_bytes;
  return result;
}

}  // namespace linnet::platform
