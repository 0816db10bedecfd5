#include "ops/thread_pool.h"

#include <pthreadpool.h>

#include <utility>

namespace linnet::ops {

Result<ThreadPool> ThreadPool::Create(size_t n_threads) {
  if (n_threads < 1 || n_threads > kMaxThreads) {
    return Status(StatusCode::kInvalidArgument, "the number of threads is out of range",
                  static_cast<int64_t>(n_threads));
  }
  pthreadpool* handle = pthreadpool_create(n_threads);
  if (handle == nullptr) return Status(StatusCode::kOutOfMemory, "the threads cannot be started");
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
