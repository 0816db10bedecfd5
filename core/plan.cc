#include "core/plan.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "core/base/checked.h"
#include "core/kv_shape.h"
#include "core/plan_builder.h"
#include "core/tensor_index.h"
#include "ops/matrix_product.h"
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

uint32_t ChunkForCache(const ModelView& model, uint64_t cache_bytes) {
  if (cache_bytes == 0) return kDefaultChunk;
  uint64_t widest = 1;
  for (const TensorView& tensor : model.tensors()) {
    const uint64_t value_bytes = IsQuantized(tensor.dtype) ? sizeof(int8_t) : sizeof(float);
    if (IsLinearRole(tensor.role)) widest = std::max(widest, tensor.columns() * value_bytes);
  }
  const uint64_t rows = std::bit_floor(cache_bytes / widest);
  return static_cast<uint32_t>(std::clamp<uint64_t>(rows, kSmallestChunk, kLargestChunk));
}

Status FillDefaults(const ModelView& model, SessionOptions& options) {
  const ModelConfig& config = model.config();
  if (options.context_tokens == 0) options.context_tokens = std::min(UsableContext(config), kDefaultContext);
  if (options.context_tokens > kMaxContext) {
    return {StatusCode::kInvalidArgument, "the context is larger than any model's", options.context_tokens};
  }
  if (config.positions == EmbeddingPositions::kLearned &&
      uint64_t{options.context_tokens} + config.position_offset > config.position_rows) {
    return {StatusCode::kInvalidArgument, "the context is larger than the model's table of positions",
            options.context_tokens};
  }
  if (options.chunk_tokens == 0) options.chunk_tokens = ChunkForCache(model, options.core_cache_bytes);
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

template <typename T>
uint64_t HeapBytes(const std::vector<T>& vector) {
  return vector.capacity() * sizeof(T);
}

// Heap of the plan's vectors, which the session keeps, and of what the executor computes once (Executor's members).
uint64_t TableBytes(const ModelConfig& config, const Plan& plan) {
  uint64_t bytes = sizeof(Plan) + HeapBytes(plan.kv) + HeapBytes(plan.kv_offsets) + HeapBytes(plan.packed.matrices) +
                   HeapBytes(plan.packed.first_of_tensor);
  for (const ExecutionPlan* steps : {&plan.prefill, &plan.decode}) {
    bytes += HeapBytes(steps->steps) + HeapBytes(steps->buffers);
  }
  for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
    const AttentionSpec& attention = config.layer(layer).attention;
    bytes += sizeof(std::vector<float>) + (attention.alibi ? attention.n_heads * sizeof(float) : 0);
  }
  for (const RopeSpec& rope : config.ropes) bytes += sizeof(std::vector<float>) + rope.rope_dim / 2 * sizeof(float);
  return bytes;
}

void PlanMemory(const ModelView& model, Plan& plan) {
  MemoryPlan& memory = plan.memory;
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    const TensorView& tensor = model.tensors()[i];
    if (!ReadWhereMapped(plan.packed, model.tensors(), i)) continue;
    memory.mapped_weights += tensor.data.size() + tensor.scales.size();
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
  memory.operators = ops::kLinearRuntimeBytes;
  for (const PackedMatrix& matrix : plan.packed.matrices) {
    memory.operators += ops::ProductHeapBytes(model.tensors()[matrix.tensor].dtype);
  }
  memory.tables = TableBytes(model.config(), plan);
  memory.thread_stacks = plan.options.n_threads * kThreadStackBytes;
}

// A plan for options without zeros.
Result<Plan> PlanFor(const ModelView& model, const SessionOptions& options, const PackedLayout& packed) {
  Plan plan;
  plan.options = options;
  LINNET_RETURN_IF_ERROR(FillDefaults(model, plan.options));
  plan.kv_type = ChooseKvType(model, options.kv);
  plan.kv.reserve(model.config().n_layers);
  plan.kv_offsets.reserve(model.config().n_layers);
  for (uint32_t layer = 0; layer < model.config().n_layers; ++layer) {
    plan.kv.push_back(KvLayoutOf(model.config(), plan, layer));
    plan.kv_offsets.push_back(plan.memory.kv_cache);
    LINNET_ASSIGN_OR_RETURN(plan.memory.kv_cache, CheckedAdd(plan.memory.kv_cache, plan.kv.back().bytes));
  }
  plan.packed = packed;
  const TensorIndexTable tensors(model);
  plan.prefill = PlanBuilder(model, tensors, plan, plan.options.chunk_tokens).Build();
  plan.decode = PlanBuilder(model, tensors, plan, 1).Build();
  PlanMemory(model, plan);
  return plan;
}

bool Fits(const Plan& plan) {
  const uint64_t budget = plan.options.memory_budget;
  return plan.options.other_bytes <= budget && plan.memory.Total() <= budget - plan.options.other_bytes;
}

// The plan of the largest context up to `most` that fits; `plan`, made from `options`, fits already.
Result<Plan> WithLargestContext(const ModelView& model, SessionOptions options, Plan plan, uint32_t most) {
  constexpr uint32_t kBlock = ops::kKvBlock;  // within a block every context takes the same bytes
  uint32_t fits = options.context_tokens / kBlock, above = static_cast<uint32_t>(CeilDiv(most, kBlock)) + 1;
  while (options.context_tokens < most && above - fits > 1) {
    const uint32_t middle = fits + (above - fits) / 2;
    SessionOptions larger = options;
    larger.context_tokens = std::min(middle * kBlock, most);
    LINNET_ASSIGN_OR_RETURN(Plan next, PlanFor(model, larger, plan.packed));
    if (Fits(next)) {
      plan = std::move(next);
      fits = middle;
    } else {
      above = middle;
    }
  }
  return plan;
}

Result<Plan> PlanWithinBudget(const ModelView& model, const SessionOptions& asked, const PackedLayout& packed) {
  const uint32_t most = asked.context_tokens != 0 ? asked.context_tokens : UsableContext(model.config());
  struct Attempt {
    uint32_t chunk, least_context;
  };
  std::vector<Attempt> attempts;
  const auto add = [&](uint32_t largest_chunk, uint32_t smallest_chunk, uint32_t least_context) {
    const uint32_t least = asked.context_tokens != 0 ? asked.context_tokens : std::min(least_context, most);
    if (asked.chunk_tokens != 0) largest_chunk = smallest_chunk = asked.chunk_tokens;
    for (uint32_t chunk = largest_chunk; chunk >= smallest_chunk; chunk /= 2) attempts.push_back({chunk, least});
  };
  add(ChunkForCache(model, asked.core_cache_bytes), kBudgetChunk, kBudgetContext);
  add(kBudgetChunk, 1, ops::kKvBlock);
  uint64_t needed = 0;
  for (const Attempt& attempt : attempts) {
    SessionOptions options = asked;
    options.context_tokens = attempt.least_context;
    options.chunk_tokens = attempt.chunk;
    LINNET_ASSIGN_OR_RETURN(Plan plan, PlanFor(model, options, packed));
    if (Fits(plan)) return WithLargestContext(model, options, std::move(plan), most);
    needed = plan.memory.Total() + asked.other_bytes;
  }
  return Status(StatusCode::kOutOfMemory, "the memory budget is too small", static_cast<int64_t>(needed));
}

}  // namespace

Result<Plan> MakePlan(const ModelView& model, const SessionOptions& options) {
  SessionOptions filled = options;
  LINNET_RETURN_IF_ERROR(FillDefaults(model, filled));
  LINNET_ASSIGN_OR_RETURN(const PackedLayout packed, ComputePackedLayout(model));
  return options.memory_budget == 0 ? PlanFor(model, filled, packed) : PlanWithinBudget(model, options, packed);
}

}  // namespace linnet
