// Public header. The PartRunner of this library: the same plan, executor and kernels as a session's.
#ifndef LINNET_CORE_PART_RUNNER_H_
#define LINNET_CORE_PART_RUNNER_H_

#include "core/base/part_runner.h"
#include "ops/thread_pool.h"

namespace linnet {

class ExecutorPartRunner final : public PartRunner {
 public:
  /// `pool` outlives the runner.
  explicit ExecutorPartRunner(ops::ThreadPool& pool) : pool_(pool) {}

  Status Run(const ModelConfig& config, std::span<const TensorView> tensors, const PartRun& run) override;

 private:
  ops::ThreadPool& pool_;
};

}  // namespace linnet

#endif  // LINNET_CORE_PART_RUNNER_H_
