#include "core/part_runner.h"

#include <algorithm>
#include <vector>

#include "core/aligned_memory.h"
#include "core/executor.h"
#include "core/packed_weights.h"
#include "core/plan.h"

namespace linnet {
namespace {

constexpr uint32_t kLogitRows = 32;  // enough for a product with the head to reuse its weights

// Tells the sink the tensor that a product belongs to.
struct Watch {
  const Plan& plan;
  const ProductInputSink& sink;

  static void Observe(void* context, uint32_t matrix, const ops::LinearInput& input, size_t n_rows) {
    const Watch& watch = *static_cast<const Watch*>(context);
    if (input.f32 == nullptr) return;
    const PackedMatrix& packed = watch.plan.packed.matrices[matrix];
    watch.sink.function(watch.sink.context, packed.tensor, packed.group, input.f32, n_rows);
  }
};

// One run's windows.
class WindowLoop {
 public:
  WindowLoop(Executor& executor, const ExecutionPlan& plan, const PartRun& run, size_t width)
      : executor_(executor), plan_(plan), run_(run), width_(width), counting_ids_(plan.max_tokens) {}

  Status Run() {
    const size_t n_rows = run_.stream.size() / width_;
    for (size_t row = 0; row < n_rows;) {
      const auto pos = static_cast<uint32_t>(row % run_.window);
      const size_t n = std::min<size_t>(plan_.max_tokens, run_.window - pos);
      LINNET_RETURN_IF_ERROR(Chunk(row, pos, n));
      row += n;
      const PartProgress& progress = run_.progress;
      if (progress.function != nullptr && !progress.function(progress.context, row, n_rows)) {
        return {StatusCode::kCancelled, "the run of a part was stopped"};
      }
    }
    return Status::Ok();
  }

 private:
  Status Chunk(size_t row, uint32_t pos, size_t n) {
    float* stream = run_.stream.data() + row * width_;
    Pass pass = {.ids = std::span<const int32_t>(counting_ids_).first(n),
                 .first_pos = pos,
                 .sequence_tokens = run_.window,
                 .stream = stream};
    if (!run_.ids.empty()) {
      pass.ids = run_.ids.subspan(row, n);
      pass.stream = nullptr;
    }
    LINNET_RETURN_IF_ERROR(executor_.RunBody(plan_, pass, 0));
    std::copy_n(executor_.stream(plan_), n * width_, stream);
    if (run_.logits.function == nullptr) return Status::Ok();
    for (size_t first = 0; first < n; first += plan_.max_logit_rows) {
      const size_t count = std::min<size_t>(plan_.max_logit_rows, n - first);
      LINNET_RETURN_IF_ERROR(executor_.RunHead(plan_, static_cast<uint32_t>(first), static_cast<uint32_t>(count)));
      run_.logits.function(run_.logits.context, row + first, executor_.logits(plan_), count);
    }
    return Status::Ok();
  }

  Executor& executor_;
  const ExecutionPlan& plan_;
  const PartRun& run_;
  const size_t width_;
  std::vector<int32_t> counting_ids_;
};

}  // namespace

Status ExecutorPartRunner::Run(const ModelConfig& config, std::span<const TensorView> tensors, const PartRun& run) {
  const ModelView model(&config, tensors);
  SessionOptions options;
  options.context_tokens = run.window;
  options.n_threads = static_cast<uint32_t>(pool_.n_threads());
  options.logit_rows = run.logits.function == nullptr ? 1 : kLogitRows;
  LINNET_ASSIGN_OR_RETURN(const Plan plan, MakePlan(model, options));
  const AlignedMemory packed = AllocateAligned(plan.packed.total_bytes);
  const AlignedMemory memory = AllocateAligned(plan.memory.session);
  if (packed == nullptr || memory == nullptr) {
    return {StatusCode::kOutOfMemory, "no memory to run a part of the model",
            static_cast<int64_t>(plan.packed.total_bytes + plan.memory.session)};
  }
  const std::span<std::byte> region(packed.get(), plan.packed.total_bytes);
  LINNET_RETURN_IF_ERROR(PackWeights(model, plan.packed, region, {}));
  LINNET_ASSIGN_OR_RETURN(
      Executor executor,
      Executor::Create(model, plan, region, Executor::Memory::Place(plan.memory, memory.get()), pool_));
  Watch watch = {plan, run.inputs};
  if (run.inputs.function != nullptr) executor.set_product_observer({Watch::Observe, &watch});
  return WindowLoop(executor, plan.prefill, run, config.model_dim).Run();
}

}  // namespace linnet
