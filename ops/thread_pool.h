// Public header. One pool of threads for XNNPACK's and Linnet's own kernels.
#ifndef LINNET_OPS_THREAD_POOL_H_
#define LINNET_OPS_THREAD_POOL_H_

#include <cstddef>
#include <memory>

#include "core/base/status.h"

struct pthreadpool;

namespace linnet::ops {

/// Owns the threads; move-only. The caller of ParallelFor works as thread 0, so that a pool of one starts none.
/// Waiting threads spin briefly, then sleep. Not reentrant: one parallel region at a time.
class ThreadPool {
 public:
  static constexpr size_t kMaxThreads = 256;  // far above any device's fast cluster

  /// Errors: kInvalidArgument unless 1 <= n_threads <= kMaxThreads; kOutOfMemory when threads cannot be started.
  static Result<ThreadPool> Create(size_t n_threads);

  ThreadPool(ThreadPool&&) noexcept;
  ThreadPool& operator=(ThreadPool&&) noexcept;
  ~ThreadPool();

  size_t n_threads() const { return n_threads_; }
  pthreadpool* handle() const { return handle_; }

  /// Calls function(index, thread) for every index in [0, count), each once, on some thread in [0, n_threads), and
  /// waits for all. Which thread takes which index is not fixed: results must not depend on it. No heap call.
  template <typename Function>
  void ParallelFor(size_t count, const Function& function) {
    if (count == 0) return;
    if (count == 1 || n_threads_ == 1) {
      for (size_t i = 0; i < count; ++i) function(i, size_t{0});
      return;
    }
    Run(count, &Trampoline<Function>, const_cast<Function*>(&function));
  }

 private:
  using Task = void (*)(void* context, size_t thread, size_t index);

  template <typename Function>
  static void Trampoline(void* context, size_t thread, size_t index) {
    (*static_cast<const Function*>(context))(index, thread);
  }

  ThreadPool(pthreadpool* handle, size_t n_threads) : handle_(handle), n_threads_(n_threads) {}
  void Run(size_t count, Task task, void* context);

  pthreadpool* handle_ = nullptr;
  size_t n_threads_ = 1;
};

}  // namespace linnet::ops

#endif  // LINNET_OPS_THREAD_POOL_H_
