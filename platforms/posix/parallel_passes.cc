#include "platforms/posix/parallel_passes.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>

#include "platforms/clock.h"
#include "platforms/posix/descriptor.h"

namespace linnet::platform {
namespace {

// The leader opens a pass by raising `generation`; every thread does its part and counts itself in `done`.
struct Shared {
  PassWork work;
  std::atomic<uint64_t> generation{0};
  std::atomic<uint32_t> done{0};
  std::atomic<bool> stop{false};
};

struct Member {
  Shared* shared;
  uint32_t thread;
};

void Prepare(const Member& member) {
  const PassWork& work = member.shared->work;
  if (work.prepare != nullptr) work.prepare(work.context, member.thread);
  member.shared->done.fetch_add(1, std::memory_order_release);
}

void RunPart(const Member& member) {
  const PassWork& work = member.shared->work;
  work.run(work.context, member.thread);
  member.shared->done.fetch_add(1, std::memory_order_release);
}

void* Work(void* argument) {
  const Member& member = *static_cast<const Member*>(argument);
  Shared& shared = *member.shared;
  Prepare(member);
  for (uint64_t seen = 0;; ++seen) {
    while (shared.generation.load(std::memory_order_acquire) == seen) sched_yield();
    if (shared.stop.load(std::memory_order_relaxed)) return nullptr;
    RunPart(member);
  }
}

void WaitForAll(Shared& shared, size_t count) {
  while (shared.done.load(std::memory_order_acquire) != count) sched_yield();
  shared.done.store(0, std::memory_order_relaxed);
}

// The first pass is a warm-up and says how many follow.
std::vector<double> RunPasses(const Member& leader, size_t threads, const PassLimits& limits) {
  Shared& shared = *leader.shared;
  Prepare(leader);
  WaitForAll(shared, threads);
  std::vector<double> seconds;
  size_t passes = 0;
  for (size_t pass = 0; pass <= passes; ++pass) {
    const uint64_t start = MonotonicNanoseconds();
    shared.generation.fetch_add(1, std::memory_order_release);
    RunPart(leader);
    WaitForAll(shared, threads);
    const double elapsed = SecondsSince(start);
    if (pass > 0) {
      seconds.push_back(elapsed);
    } else {
      const double fitting = limits.target_seconds / std::max(elapsed, 1e-6);
      passes = static_cast<size_t>(
          std::clamp(fitting, static_cast<double>(limits.min_passes), static_cast<double>(limits.max_passes)));
    }
  }
  return seconds;
}

}  // namespace

Result<std::vector<double>> TimePasses(const PassWork& work, uint32_t threads, const PassLimits& limits,
                                       Diagnostic* diagnostic) {
  if (threads == 0 || threads > kMaxPassThreads) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "bad thread count", "threads: expected 1 to %u, found %u",
                kMaxPassThreads, threads);
  }
  Shared shared;
  shared.work = work;
  std::vector<Member> members;
  for (uint32_t i = 0; i < threads; ++i) members.push_back({&shared, i});
  std::vector<pthread_t> started;
  int error = 0;
  for (uint32_t i = 1; i < threads && error == 0; ++i) {
    pthread_t thread;
    error = pthread_create(&thread, nullptr, Work, &members[i]);
    if (error == 0) started.push_back(thread);
  }
  std::vector<double> seconds;
  if (error == 0) seconds = RunPasses(members[0], threads, limits);
  shared.stop.store(true, std::memory_order_relaxed);
  shared.generation.fetch_add(1, std::memory_order_release);
  for (const pthread_t thread : started) pthread_join(thread, nullptr);
  if (error != 0) {
    return Fail(diagnostic, StatusCode::kInternal, "cannot start a thread", "thread %zu of %u: %s", started.size() + 2,
                threads, ErrnoText(error).c_str());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

double MedianSeconds(const std::vector<double>& sorted_seconds) {
  return std::max(sorted_seconds[sorted_seconds.size() / 2], 1e-9);
}

}  // namespace linnet::platform
