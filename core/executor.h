// Runs the steps of a plan. Nothing is decided and nothing is allocated here.
#ifndef LINNET_CORE_EXECUTOR_H_
#define LINNET_CORE_EXECUTOR_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/checked.h"
#include "core/base/model_view.h"
#include "core/plan.h"
#include "ops/matrix_product.h"
#include "ops/rows.h"
#include "ops/thread_pool.h"

namespace linnet {

/// What one run of a plan is about.
struct Pass {
  std::span<const int32_t> ids;   // [n_tokens], each < vocab_size
  uint32_t first_pos = 0;         // absolute position of ids[0]
  uint32_t sequence_tokens = 0;   // length that dynamic rotary scalings see: the end of the whole prompt
  const float* stream = nullptr;  // [n_tokens, model_dim]: taken in place of the tokens' embedding; ids count only
};

class Executor;

/// Called after every step of a run with its index in the plan: for traces and profiles. `executor` gives the buffers.
struct StepObserver {
  void (*function)(void* context, const Executor& executor, const ExecutionPlan& plan, size_t step) = nullptr;
  void* context = nullptr;
};

/// Called before every matrix product with its index in the packed layout and what it will read: for calibration.
struct ProductObserver {
  void (*function)(void* context, uint32_t matrix, const ops::LinearInput& input, size_t n_rows) = nullptr;
  void* context = nullptr;
};

/// Owns the matrix operators; refers to model, plan, packed weights, memory and pool, which outlive it. Move-only.
class Executor {
 public:
  struct Memory {
    std::byte* kv = nullptr;                           // plan.memory.kv_cache bytes, aligned to 64
    std::array<std::byte*, kBufferUses> regions = {};  // one a BufferUse

    /// Cuts plan.memory.session bytes, aligned to 64.
    static Memory Place(const MemoryPlan& plan, std::byte* memory);
  };

  /// Errors: kInvalidModel where packed bytes do not fit this CPU; kOutOfMemory.
  static Result<Executor> Create(const ModelView& model, const Plan& plan, std::span<const std::byte> packed,
                                 const Memory& memory, ops::ThreadPool& pool);

  /// Computes the residual stream of pass.ids.size() <= plan.max_tokens tokens and extends the KV cache. Of the rows
  /// before `first_row` the stream's last layer may be left out (never with an observer).
  /// Errors: kInternal only.
  Status RunBody(const ExecutionPlan& plan, const Pass& pass, uint32_t first_row);
  /// Logits of rows [first_row, first_row + n_rows) of the stream that RunBody left; n_rows <= plan.max_logit_rows.
  /// They lie at logits(plan), [n_rows, vocab_size], until the next run.
  Status RunHead(const ExecutionPlan& plan, uint32_t first_row, uint32_t n_rows);
  /// The residual stream's buffer: for callers of RunHead that bring their own rows.
  float* stream(const ExecutionPlan& plan) { return Pointer<float>(plan, plan.stream); }
  const float* logits(const ExecutionPlan& plan) const { return Pointer<float>(plan, plan.logits); }
  /// A buffer of f32 rows as the last step left it, the residual stream for example; for observers.
  const float* f32(const ExecutionPlan& plan, BufferId buffer) const { return Pointer<float>(plan, buffer); }
  /// Tokens and their position in the run in progress.
  const Pass& pass() const { return current_.pass; }
  void set_observer(StepObserver observer) { observer_ = observer; }
  void set_product_observer(ProductObserver observer) { product_observer_ = observer; }

 private:
  // The run in progress.
  struct Current {
    const ExecutionPlan* plan = nullptr;
    Pass pass;
    uint32_t n_rows = 0;      // rows that steps work on
    uint32_t stream_row = 0;  // first row of the stream that they see: not 0 in the plan's tail and in the head only
  };

  Executor(const ModelView& model, const Plan& plan, const Memory& memory, ops::ThreadPool& pool);

  template <typename T>
  T* Pointer(const ExecutionPlan& plan, BufferId buffer) const {
    const PlanBuffer& place = plan.buffers[buffer];
    return reinterpret_cast<T*>(memory_.regions[static_cast<size_t>(place.use)] + place.offset);
  }
  // A buffer of the run in progress; the stream from the row that the head is at.
  template <typename T>
  T* At(BufferId buffer) const {
    T* pointer = Pointer<T>(*current_.plan, buffer);
    return buffer == current_.plan->stream ? pointer + size_t{current_.stream_row} * model_dim() : pointer;
  }
  ops::Rows RowsAt(BufferId buffer, size_t width) const;
  float* ThreadScratch(BufferId buffer, size_t thread) const;
  const TensorView& tensor(TensorIndex index) const { return model_->tensors()[static_cast<size_t>(index)]; }
  const float* Values(TensorIndex index) const { return index == kNoTensor ? nullptr : tensor(index).f32(); }
  const AttentionSpec& attention(uint32_t layer) const { return model_->config().layer(layer).attention; }
  std::byte* KvLayer(uint32_t layer) const { return memory_.kv + plan_->kv_offsets[layer]; }
  ops::LinearInput Input(const RowsBuffer& rows) const;
  uint32_t model_dim() const { return model_->config().model_dim; }

  // Calls function(first_row, n_rows, thread) over blocks of rows; a single row stays on this thread.
  template <typename Function>
  void ForRows(size_t n_rows, const Function& function) {
    constexpr size_t kBlocksPerThread = 4;  // enough to even out threads of different speed
    const size_t block = CeilDiv(n_rows, pool_->n_threads() * kBlocksPerThread);
    pool_->ParallelFor(block == 0 ? 0 : CeilDiv(n_rows, block), [&](size_t index, size_t thread) {
      const size_t first = index * block;
      function(first, std::min(block, n_rows - first), thread);
    });
  }
  Status RunSteps(size_t begin, size_t end);
  Status Multiply(uint32_t matrix, const ops::LinearInput& input, size_t n_rows, float* out);

  Status Run(const EmbedStep& step);
  Status Run(const PositionStep& step);
  Status Run(const RopeTableStep& step);
  Status Run(const NormStep& step);
  Status Run(const QuantizeStep& step);
  Status Run(const LinearStep& step);
  Status Run(const HeadsStep& step);
  Status Run(const AttentionStep& step);
  Status Run(const ActivationStep& step);
  Status Run(const ResidualStep& step);
  Status Run(const RouteStep& step);
  Status Run(const ExpertsStep& step);
  Status Run(const SharedGateStep& step);
  Status Run(const LatentHeadsStep& step);
  Status Run(const AbsorbStep& step);
  Status Run(const ValueUpStep& step);
  Status Run(const LogitsStep& step);

  void NormRows(const NormWeights& norm, ops::ConstRows in, size_t n_rows, size_t width, ops::Rows out) const;
  void QuantizeTo(const RowsBuffer& out, ops::ConstRows in, size_t row, size_t n_rows, size_t width,
                  uint32_t rotation_block, float* scratch) const;
  void NormHeads(const NormWeights& norm, QkNorm kind, float* heads, size_t n_heads, size_t head_dim) const;
  void PrepareRow(const HeadsStep& step, size_t row) const;
  void StoreKv(uint32_t layer, const float* k, size_t k_stride, const float* v, size_t v_stride);
  void ActivateRow(const FfnSpec& ffn, const float* up, size_t row, size_t width, const RowsBuffer& out,
                   uint32_t rotation_block, float* scratch) const;
  void SortByExpert(const ExpertsStep& step) const;
  Status RunExpert(const ExpertsStep& step, uint32_t expert, const uint32_t* rows, size_t n_rows, const float* weights);
  void GatherRows(const ExpertsStep& step, const uint32_t* rows, size_t n_rows);
  Status HeadProduct(uint32_t matrix, size_t k, const RowsBuffer& in, uint32_t rotation_block, BufferId out,
                     BufferId scratch);

  const ModelView* model_;
  const Plan* plan_;
  Memory memory_;
  ops::ThreadPool* pool_;
  std::vector<ops::MatrixProduct> linears_;        // one a packed matrix
  std::vector<std::vector<float>> alibi_slopes_;   // [n_layers], empty without ALiBi
  std::vector<std::vector<float>> rope_inv_freq_;  // one a rotary embedding, [rope_dim / 2]
  std::vector<uint32_t> rope_length_;              // sequence length that rope_inv_freq_ was computed for
  Current current_;
  StepObserver observer_;
  ProductObserver product_observer_;
};

}  // namespace linnet

#endif  // LINNET_CORE_EXECUTOR_H_
