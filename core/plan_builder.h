// Turns the block description into steps over buffers. Load time only.
#ifndef LINNET_CORE_PLAN_BUILDER_H_
#define LINNET_CORE_PLAN_BUILDER_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "core/plan.h"
#include "core/tensor_index.h"

namespace linnet {

/// Builds one ExecutionPlan: the same steps for any number of tokens, buffers for at most max_tokens.
class PlanBuilder {
 public:
  /// `plan` has its options, KV layouts and packed layout filled in. `tensors` outlives the builder.
  PlanBuilder(const ModelView& model, const TensorIndexTable& tensors, const Plan& plan, uint32_t max_tokens);

  ExecutionPlan Build() &&;

 private:
  /// Rows that some steps have left ready, and the rotation that their int8 form carries.
  struct Ready {
    RowsBuffer rows;
    uint32_t rotation_block = 0;
  };

  // Buffers and steps.
  uint32_t TailBegin() const;
  BufferId NewBuffer(const char* name, BufferUse use, uint64_t bytes);
  BufferId NewRows(const char* name, uint64_t width);
  RowsBuffer NewRowsFor(const char* name, uint64_t width, bool f32, bool int8);
  BufferId ThreadScratch(uint64_t floats_per_thread);
  void Add(const char* name, int32_t layer, StepData data, std::initializer_list<BufferId> buffers);
  void Touch(BufferId buffer);

  // Pieces of a block.
  const TensorView& tensor(TensorIndex index) const { return model_.tensors()[static_cast<size_t>(index)]; }
  TensorIndex Find(TensorRole role, int32_t layer) const { return tensors_.Find(role, layer); }
  uint32_t FirstMatrix(TensorIndex index) const;
  NormWeights Norm(const NormSpec& spec, TensorRole gain, TensorRole bias, int32_t layer) const;
  Ready NormRows(const char* name, int32_t layer, const NormWeights& norm, BufferId in,
                 std::span<const TensorIndex> consumers);
  void NormInPlace(const char* name, int32_t layer, const NormWeights& norm, BufferId rows);
  RowsBuffer RowsFor(TensorIndex consumer, int32_t layer, Ready& ready, uint32_t width);
  BufferId Product(const char* name, int32_t layer, TensorIndex weight, Ready& in);
  Ready Activate(const char* name, int32_t layer, const FfnSpec& ffn, BufferId up, uint32_t width,
                 TensorIndex consumer);
  void Residual(const char* name, int32_t layer, BufferId branch);

  // Blocks.
  void Prologue();
  void Block(int32_t layer);
  void ParallelBlock(int32_t layer, const BlockSpec& block);
  void SequentialBlock(int32_t layer, const BlockSpec& block);
  Ready SubLayerInput(const char* name, int32_t layer, const BlockSpec& block, bool is_attention);
  BufferId Attention(int32_t layer, const BlockSpec& block, Ready& in);
  BufferId GroupedAttention(int32_t layer, const AttentionSpec& attention, Ready& in);
  BufferId LatentAttention(int32_t layer, const AttentionSpec& attention, Ready& in);
  BufferId LatentQueries(int32_t layer, const AttentionSpec& attention, BufferId latent, uint32_t latent_width,
                         uint32_t* q_stride);
  BufferId AttentionOver(int32_t layer, BufferId q, uint32_t q_stride, uint32_t q_head_stride);
  BufferId Ffn(int32_t layer, const FfnSpec& ffn, Ready& in);
  BufferId MixtureOfExperts(int32_t layer, const FfnSpec& ffn, Ready& in);
  void SharedExpert(int32_t layer, const FfnSpec& ffn, Ready& in, BufferId out);
  std::vector<TensorIndex> FfnConsumers(int32_t layer) const;
  std::vector<TensorIndex> AttentionConsumers(int32_t layer) const;
  void Head();

  const ModelView& model_;
  const ModelConfig& config_;
  const TensorIndexTable& tensors_;
  const Plan& plan_;
  ExecutionPlan out_;
  uint64_t row_count_;  // rows that new row buffers hold
  struct RopeBuffers {
    BufferId cos = kNoBuffer, sin = kNoBuffer;
  };
  std::vector<RopeBuffers> ropes_;
};

}  // namespace linnet

#endif  // LINNET_CORE_PLAN_BUILDER_H_
