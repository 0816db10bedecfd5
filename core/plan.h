// Public header. What a session will do and what it will take: steps over numbered buffers in one arena.
#ifndef LINNET_CORE_PLAN_H_
#define LINNET_CORE_PLAN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "core/base/model_view.h"
#include "core/base/status.h"
#include "core/packed_weights.h"
#include "ops/kv_cache.h"

namespace linnet {

/// What the caller wants of a session. Zeros are replaced by defaults that the plan tells.
struct SessionOptions {
  uint32_t context_tokens = 0;  // positions that the KV cache can hold; 0: the model's, at most kDefaultContext
  uint32_t chunk_tokens = 0;    // prompt tokens per prefill pass; 0: chosen from core_cache_bytes, at most the context
  uint32_t n_threads = 1;       // of the pool that the session will get
  uint32_t logit_rows = 1;      // positions whose logits are computed at once when all are asked for
  enum class Kv : uint8_t {
    kAuto,
    kF32,
    kF16,
    kInt8
  } kv = Kv::kAuto;  // auto: f16 where weights are quantized, else f32
  /// Second-level cache of one core in bytes: the default chunk is the largest power of two from kSmallestChunk to
  /// kLargestChunk whose rows, as the widest matrix product reads them, fit into it, since every strip of weights
  /// passes by all of them. 0: unknown, kDefaultChunk.
  uint64_t core_cache_bytes = 0;
  /// Bytes that MemoryPlan::Total() and other_bytes may take together; 0: no limit. Where it is set, what was not asked
  /// for is chosen: the largest context up to the model's own, and the default chunk or a smaller one (MakePlan).
  uint64_t memory_budget = 0;
  uint64_t other_bytes = 0;  // what the caller keeps beside the session: a tokenizer, a sampler
};

constexpr uint32_t kDefaultContext = 4096;
// Measured (core/README.md): the choice is worth a few percent, less than 32 tokens cost more, more than 256 gain
// nothing.
constexpr uint32_t kDefaultChunk = 128, kSmallestChunk = 32, kLargestChunk = 256;

/// With a memory budget the chunk is halved, down to kBudgetChunk, before a context that was not asked for becomes
/// smaller than kBudgetContext: a conversation needs some room, a shorter chunk only takes longer.
constexpr uint32_t kBudgetContext = 512;
constexpr uint32_t kBudgetChunk = 16;

using BufferId = uint16_t;
inline constexpr BufferId kNoBuffer = 0xffff;

enum class BufferUse : uint8_t {
  kActivation,  // rows that flow from step to step
  kScratch,     // inside one step: per thread, or partial results
  kLogits,      // what the caller reads
};
inline constexpr size_t kBufferUses = 3;

/// A buffer of the region of its use. Buffers whose lifetimes do not meet share bytes.
struct PlanBuffer {
  const char* name = "";
  BufferUse use = BufferUse::kActivation;
  uint64_t bytes = 0;
  uint32_t first_step = 0;  // lifetime: from the first step that writes it ...
  uint32_t last_step = 0;   // ... to the last that reads it, both included
  uint64_t offset = 0;      // in its use's region, a multiple of 64
};

/// Rows that a matrix product reads: f32, or int8 with a scale and zero point each.
struct RowsBuffer {
  BufferId f32 = kNoBuffer;
  BufferId int8 = kNoBuffer;
  BufferId quantization = kNoBuffer;
};

/// Index into ModelView::tensors(); kNoTensor where the description asks for none.
using TensorIndex = int32_t;
inline constexpr TensorIndex kNoTensor = -1;

struct NormWeights {
  NormSpec spec;
  TensorIndex gain = kNoTensor;
  TensorIndex bias = kNoTensor;
};

// The steps. Widths are in elements; every buffer of rows holds max_tokens of them without gaps.

/// x = embedding_scale * table[ids]
struct EmbedStep {
  TensorIndex table = kNoTensor;
  BufferId x = kNoBuffer;
};

/// x += row (pos + offset) of the learned table, or of the sinusoidal one where there is none.
struct PositionStep {
  TensorIndex table = kNoTensor;
  BufferId x = kNoBuffer;
};

/// cos, sin [max_tokens, rope_dim / 2] of one rotary embedding.
struct RopeTableStep {
  uint32_t rope = 0;
  BufferId cos = kNoBuffer, sin = kNoBuffer;
};

/// out = norm(in): as f32, rotated and quantized, or both. Row r of `in` starts at r * in_stride + in_offset.
struct NormStep {
  NormWeights norm;
  BufferId in = kNoBuffer;
  uint32_t width = 0, in_stride = 0, in_offset = 0;
  RowsBuffer out = {};
  uint32_t rotation_block = 0;
  BufferId scratch = kNoBuffer;  // per thread [2, width]: for the rotation, and the normed row where out has no f32
};

/// out = rotated and quantized rows of `in` [., width].
struct QuantizeStep {
  BufferId in = kNoBuffer;
  RowsBuffer out = {};
  uint32_t width = 0, rotation_block = 0;
  BufferId scratch = kNoBuffer;  // per thread [width]
};

/// out [., n] = in * W^T (+ bias).
struct LinearStep {
  uint32_t matrix = 0;  // index into PackedLayout::matrices
  RowsBuffer in = {};
  BufferId out = kNoBuffer;
  uint32_t n = 0;
};

/// QK-norm and rotation of q and k in the stacked rows, in place, then k and v into the cache.
struct HeadsStep {
  uint32_t layer = 0;
  BufferId qkv = kNoBuffer;
  BufferId cos = kNoBuffer, sin = kNoBuffer;
  NormWeights q_norm, k_norm;
};

/// out [., n_heads * value_dim] = attention of the queries over the cache.
struct AttentionStep {
  uint32_t layer = 0;
  BufferId q = kNoBuffer;
  uint32_t q_stride = 0, q_head_stride = 0;
  BufferId out = kNoBuffer;
  BufferId thread_scratch = kNoBuffer, partials = kNoBuffer;
  TensorIndex sinks = kNoTensor;
};

/// out [., width] = act(up), or act(gate) * up of [., 2 * width]: as f32, or rotated and quantized.
struct ActivationStep {
  const FfnSpec* ffn = nullptr;
  BufferId up = kNoBuffer;
  uint32_t width = 0;
  RowsBuffer out = {};
  uint32_t rotation_block = 0;
  BufferId scratch = kNoBuffer;  // per thread [2, width], as in NormStep
};

/// stream = residual_scale * stream + branch_scale * branch.
struct ResidualStep {
  BufferId stream = kNoBuffer, branch = kNoBuffer;
  float residual_scale = 1.0f, branch_scale = 1.0f;
};

/// ids, weights [., top_k]: the experts that the router chooses for each row.
struct RouteStep {
  const FfnSpec* ffn = nullptr;
  TensorIndex router = kNoTensor, bias = kNoTensor, selection_bias = kNoTensor;
  BufferId in = kNoBuffer, logits = kNoBuffer;
  BufferId ids = kNoBuffer, weights = kNoBuffer;
  BufferId scratch = kNoBuffer;
};

/// out = sum over a row's chosen experts of weight * expert(in). The rows of one expert are gathered and run as one
/// product; experts that no row chose are not touched.
struct ExpertsStep {
  const FfnSpec* ffn = nullptr;
  uint32_t first_up = 0, first_down = 0;  // matrices of expert 0; the others' follow in order
  RowsBuffer in = {};                     // in the form that the up matrices read
  BufferId ids = kNoBuffer, weights = kNoBuffer;
  BufferId order = kNoBuffer;        // u32: where each expert's rows begin [n_experts + 1], then the rows
  BufferId row_weights = kNoBuffer;  // f32, in the order of those rows
  RowsBuffer gathered = {};
  BufferId up = kNoBuffer;
  RowsBuffer activated = {};
  uint32_t down_rotation = 0;
  BufferId down = kNoBuffer, out = kNoBuffer;
  BufferId scratch = kNoBuffer;
};

/// in *= sigmoid(x . gate) for each row.
struct SharedGateStep {
  TensorIndex gate = kNoTensor;
  BufferId x = kNoBuffer, in = kNoBuffer, scratch = kNoBuffer;
};

/// Latent attention: norm of the kv latent, rotation of the shared key and of the queries, latent rows into the cache.
struct LatentHeadsStep {
  uint32_t layer = 0;
  BufferId latent = kNoBuffer;               // rows of kLatentIn's product
  uint32_t latent_width = 0, kv_offset = 0;  // their width, and where the kv latent starts in them
  BufferId q = kNoBuffer;                    // [., n_heads * head_dim], rows q_stride apart
  uint32_t q_stride = 0;
  BufferId cos = kNoBuffer, sin = kNoBuffer;
  NormWeights kv_norm;
  BufferId row = kNoBuffer;  // [., kv_lora_rank + rope_dim]: what goes into the cache
};

/// absorbed [., n_heads, kv_lora_rank + rope_dim]: each head's unrotated part through its kLatentKeyUp, the rotated
/// part as it is.
struct AbsorbStep {
  uint32_t layer = 0, first_matrix = 0;
  BufferId q = kNoBuffer;
  uint32_t q_stride = 0;
  RowsBuffer head_in = {};
  uint32_t rotation_block = 0;
  BufferId head_out = kNoBuffer, absorbed = kNoBuffer, scratch = kNoBuffer;
};

/// out [., n_heads * value_dim]: each head's weighted latent through its kLatentValueUp.
struct ValueUpStep {
  uint32_t layer = 0, first_matrix = 0;
  BufferId latents = kNoBuffer;
  RowsBuffer head_in = {};
  uint32_t rotation_block = 0;
  BufferId head_out = kNoBuffer, out = kNoBuffer, scratch = kNoBuffer;
};

/// logits = scale * logits, then the soft cap.
struct LogitsStep {
  BufferId logits = kNoBuffer;
};

using StepData = std::variant<EmbedStep, PositionStep, RopeTableStep, NormStep, QuantizeStep, LinearStep, HeadsStep,
                              AttentionStep, ActivationStep, ResidualStep, RouteStep, ExpertsStep, SharedGateStep,
                              LatentHeadsStep, AbsorbStep, ValueUpStep, LogitsStep>;

struct Step {
  const char* name = "";  // "attention.qkv", for profiles and `plan`
  int32_t layer = -1;
  StepData data;
};

/// The steps for up to max_tokens tokens at once. Steps from head_begin on turn blocks of up to max_logit_rows rows of
/// the residual stream (`stream`) into logits (`logits`).
struct ExecutionPlan {
  uint32_t max_tokens = 0;
  uint32_t max_logit_rows = 0;
  std::vector<Step> steps;
  uint32_t body_begin = 0;  // the steps before it make the stream from ids
  uint32_t head_begin = 0;
  uint32_t tail_begin = 0;  // from here to head_begin, only rows whose logits are wanted count: the last layer's keys
                            // and values are stored, and no row reads another's
  std::vector<PlanBuffer> buffers;
  BufferId stream = kNoBuffer;
  BufferId logits = kNoBuffer;
  std::array<uint64_t, kBufferUses> region_bytes{};  // of each BufferUse
};

/// Stack that each thread of the pool touches at most, the caller's included. Deepest is an attention tile; what the
/// system reserves for a thread beyond that is address space without memory.
constexpr uint64_t kThreadStackBytes = 64 << 10;

/// Bytes of every class that a session uses, known before anything is loaded. Exact, but for the heap of the operators
/// and the stacks, which are upper bounds.
struct MemoryPlan {
  uint64_t mapped_weights = 0;  // tensors of the model file that are read where they are mapped
  uint64_t packed_weights = 0;  // the packed region: a mapped file once it exists
  uint64_t kv_cache = 0;
  uint64_t activations = 0;
  uint64_t scratch = 0;
  uint64_t logits = 0;
  uint64_t session = 0;        // kv_cache + activations + scratch + logits: what Session::Create takes in one piece
  uint64_t operators = 0;      // XNNPACK's operators, one a matrix, XNNPACK itself and the pool: heap
  uint64_t tables = 0;         // the plan itself and the executor's tables: heap
  uint64_t thread_stacks = 0;  // kThreadStackBytes a thread

  /// What is anonymous where packed weights are a mapped file.
  uint64_t Anonymous() const { return session + operators + tables + thread_stacks; }
  uint64_t Total() const { return mapped_weights + packed_weights + Anonymous(); }
};

/// Everything that is decided before a session exists. The vectors are load-time memory; running allocates nothing.
struct Plan {
  SessionOptions options;  // with the defaults filled in
  ops::KvType kv_type = ops::KvType::kF32;
  std::vector<ops::KvLayout> kv;     // [n_layers]
  std::vector<uint64_t> kv_offsets;  // [n_layers], in the KV region
  PackedLayout packed;
  ExecutionPlan prefill;  // chunk_tokens at once
  ExecutionPlan decode;   // one token
  MemoryPlan memory;
};

/// Plans a session. The plan refers to the description inside `model`, which must outlive it.
/// A budget counts every class, mapped ones too: it is what the device must have for the session to run without reading
/// its weights again and again. Context and chunk that were asked for stay; else the chunk is the largest of
/// the default chunk, / 2, ... for which a context of kBudgetContext (or the one asked for) fits, and the context the
/// largest that then fits, in whole blocks of the KV cache.
///
/// Errors: kInvalidArgument for options out of range (the context beyond kMaxContext, no threads); kUnsupported;
/// kOutOfMemory where nothing fits the budget: value() is the smallest one that would do.
Result<Plan> MakePlan(const ModelView& model, const SessionOptions& options);

/// Gives every buffer of `use` an offset such that buffers whose lifetimes meet do not overlap; returns the bytes of
/// that use's region. Largest first, each at the lowest offset that is free over its lifetime.
uint64_t AssignOffsets(std::vector<PlanBuffer>& buffers, BufferUse use);

}  // namespace linnet

#endif  // LINNET_CORE_PLAN_H_
