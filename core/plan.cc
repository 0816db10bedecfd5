#include "core/plan.h"

#include <algorithm>

#include "core/base/checked.h"
#include "core/kv_shape.h"
#include "core/plan_builder.h"
#include "core/tensor_index.h"
#include "ops/thread_pool.h"

namespace linnet {
namespace {

// Positions that the model is meant to reach. Dynamic NTK states its reach as a factor of the trained length; the other
// scalings have it in the trained length itself.
uint32_t UsableContext(const ModelConfig& config) {
  double reach = config.context_length;
  for (const RopeSpec& rope : config.ropes) {
    if (rope.scaling == RopeScaling::kDynamicNtk) reach = std::max(reach, rope.original_context_length * rope.factor);
  }
  return static_cast<uint32_t>(std::min(reach, static_cast<double>(kMaxContext)));
}

Status FillDefaults(const ModelConfig& config, SessionOptions& options) {
  if (options.context_tokens == 0) options.context_tokens = std::min(UsableContext(config), kDefaultContext);
  if (options.context_tokens > kMaxContext) {
    return {StatusCode::kInvalidArgument, "the context is larger than any model's", options.context_tokens};
  }
  if (config.positions == EmbeddingPositions::kLearned &&
      uint64_t{options.context_tokens} + config.position_offset > config.position_rows) {
    return {StatusCode::kInvalidArgument, "the context is larger than the model's table of positions",
            options.context_tokens};
  }
  if (options.chunk_tokens == 0) options.chunk_tokens = kDefaultChunk;
  options.chunk_tokens = std::min(options.chunk_tokens, options.context_tokens);
  if (options.n_threads < 1 || options.n_threads > ops::ThreadPool::kMaxThreads) {
    return {StatusCode::kInvalidArgument, "the number of threads is out of range", options.n_threads};
  }
  options.logit_rows = std::clamp(options.logit_rows, 1u, options.chunk_tokens);
  return Status::Ok();
}

ops::KvType ChooseKvType(const ModelView& model, SessionOptions::Kv kv) {
  switch (kv) {
    case SessionOptions::Kv::kF32:
      return ops::KvType::kF32;
    case SessionOptions::Kv::kF16:
      return ops::KvType::kF16;
    case SessionOptions::Kv::kInt8:
      return ops::KvType::kInt8;
    case SessionOptions::Kv::kAuto:
      break;
  }
  // Exact weights promise exact logits; quantized ones lose more than f16 keys and values do.
  const bool quantized = std::any_of(model.tensors().begin(), model.tensors().end(),
                                     [](const TensorView& tensor) { return IsQuantized(tensor.dtype); });
  return quantized ? ops::KvType::kF16 : ops::KvType::kF32;
}

ops::KvLayout KvLayoutOf(const ModelConfig& config, const Plan& plan, uint32_t layer) {
  ops::KvShape shape = KvShapeOf(config, config.layer(layer).attention, plan.kv_type);
  shape.capacity =
      ops::KvCapacity(config.layer(layer).attention.window, plan.options.context_tokens, plan.options.chunk_tokens);
  return ops::MakeKvLayout(shape);
}

void PlanMemory(const ModelView& model, Plan& plan) {
  MemoryPlan& memory = plan.memory;
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    const TensorView& tensor = model.tensors()[i];
    const bool is_packed_only = plan.packed.first_of_tensor[i] >= 0 && tensor.role != TensorRole::kTokenEmbedding;
    if (!is_packed_only) memory.mapped_weights += tensor.data.size() + tensor.scales.size();
  }
  memory.packed_weights = plan.packed.total_bytes;
  const auto region = [&](BufferUse use) {
    const auto index = static_cast<size_t>(use);
    return std::max(plan.prefill.region_bytes[index], plan.decode.region_bytes[index]);
  };
  memory.activations = region(BufferUse::kActivation);
  memory.scratch = region(BufferUse::kScratch);
  memory.logits = region(BufferUse::kLogits);
  memory.session = memory.kv_cache + memory.activations + memory.scratch + memory.logits;
}

}  // namespace

Result<Plan> MakePlan(const ModelView& model, const SessionOptions& options) {
  Plan plan;
  plan.options = options;
  LINNET_RETURN_IF_ERROR(FillDefaults(model.config(), plan.options));
  plan.kv_type = ChooseKvType(model, options.kv);
  for (uint32_t layer = 0; layer < model.config().n_layers; ++layer) {
    plan.kv.push_back(KvLayoutOf(model.config(), plan, layer));
    plan.kv_offsets.push_back(plan.memory.kv_cache);
    LINNET_ASSIGN_OR_RETURN(plan.memory.kv_cache, CheckedAdd(plan.memory.kv_cache, plan.kv.back().bytes));
  }
  LINNET_ASSIGN_OR_RETURN(plan.packed, ComputePackedLayout(model));
  const TensorIndexTable tensors(model);
  plan.prefill = PlanBuilder(model, tensors, plan, plan.options.chunk_tokens).Build();
  plan.decode = PlanBuilder(model, tensors, plan, 1).Build();
  PlanMemory(model, plan);
  return plan;
}

}  // namespace linnet
