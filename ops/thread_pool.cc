#include "ops/thread_pool.h"

#include <pthread.h>
#include <pthreadpool.h>

#include <array>
#include <mutex>
#include <utility>

namespace linnet::ops {
namespace {

void* PassGate(void* gate) {
  const std::lock_guard lock(*static_cast<std::mutex*>(gate));
  return nullptr;
}

// Whether the system has room for `count` threads at once. pthreadpool does not look whether its threads started and
// waits for ever for those that did not; the C library keeps the stacks of these for the pool's own.
bool ThreadsCanStart(size_t count) {
  std::array<pthread_t, ThreadPool::kMaxThreads> threads;
  std::mutex gate;
  gate.lock();  // all of them stay until the last one has started
  size_t started = 0;
  while (started < count && pthread_create(&threads[started], nullptr, PassGate, &gate) == 0) ++started;
  gate.unlock();
  for (size_t i = 0; i < started; ++i) pthread_join(threads[i], nullptr);
  return started == count;
}

}  // namespace

Result<ThreadPool> ThreadPool::Create(size_t n_threads) {
  if (n_threads < 1 || n_threads > kMaxThreads) {
    return Status(StatusCode::kInvalidArgument, "the number of threads is out of range",
                  static_cast<int64_t>(n_threads));
  }
  pthreadpool* handle = ThreadsCanStart(n_threads - 1) ? pthreadpool_create(n_threads) : nullptr;
  if (handle == nullptr) {
    return Status(StatusCode::kOutOfMemory, "the threads cannot be started: the system allows no more of them");
  }
  return ThreadPool(handle, n_threads);
}

ThreadPool::ThreadPool(ThreadPool&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), n_threads_(other.n_threads_) {}

ThreadPool& ThreadPool::operator=(ThreadPool&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(n_threads_, other.n_threads_);
  return *this;
}

ThreadPool::~ThreadPool() {
  if (handle_ != nullptr) pthreadpool_destroy(handle_);
}

void ThreadPool::Run(size_t count, Task task, void* context) {
  pthreadpool_parallelize_1d_with_thread(handle_, task, context, count, /*flags=*/0);
}

}  // namespace linnet::ops
