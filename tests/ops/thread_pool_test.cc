#include "ops/thread_pool.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <vector>

namespace linnet::ops {
namespace {

/// Leaves the process `bytes` of address space above what it has, until it ends.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(uint64_t bytes) {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &previous_);
    rlimit limit = previous_;
    limit.rlim_cur = pages * 4096 + bytes;  // pages of 4 KiB or more
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &previous_); }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;

 private:
  rlimit previous_ = {};
};

TEST_SUITE("ops") {
  TEST_CASE("ThreadPool: every index runs once, on a thread of the pool") {
    for (const size_t n_threads : {1, 2, 5}) {
      CAPTURE(n_threads);
      auto pool = ThreadPool::Create(n_threads);
      REQUIRE(pool.ok());
      std::vector<std::atomic<int>> runs(100);
      std::atomic<size_t> strangers{0};
      pool.value().ParallelFor(runs.size(), [&](size_t index, size_t thread) {
        ++runs[index];
        if (thread >= n_threads) ++strangers;
      });
      for (const auto& count : runs) CHECK(count == 1);
      CHECK(strangers == 0);
    }
  }

  TEST_CASE("ThreadPool: a number of threads out of range is refused") {
    CHECK(ThreadPool::Create(0).status().code() == StatusCode::kInvalidArgument);
    CHECK(ThreadPool::Create(ThreadPool::kMaxThreads + 1).status().code() == StatusCode::kInvalidArgument);
  }

  TEST_CASE("ThreadPool: threads that the system refuses are an error, not a wait without end") {
    {
      const AddressSpaceLimit limit(uint64_t{64} << 20);
      CHECK(ThreadPool::Create(ThreadPool::kMaxThreads).status().code() == StatusCode::kOutOfMemory);
    }
    CHECK(ThreadPool::Create(4).ok());
  }
}

}  // namespace
}  // namespace linnet::ops
