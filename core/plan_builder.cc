#include "core/plan_builder.h"

#include <algorithm>
#include <utility>

#include "ops/attention.h"
#include "ops/routing.h"
#include "ops/matrix_product.h"

namespace linnet {
namespace {

constexpr uint32_t kUnusedStep = 0xffffffffu;

bool NeedsInt8(const TensorView& weight) { return IsQuantized(weight.dtype); }

}  // namespace

PlanBuilder::PlanBuilder(const ModelView& model, const TensorIndexTable& tensors, const Plan& plan, uint32_t max_tokens)
    : model_(model), config_(model.config()), tensors_(tensors), plan_(plan), row_count_(max_tokens) {
  out_.max_tokens = max_tokens;
  out_.max_logit_rows = std::min(plan.options.logit_rows, max_tokens);
}

ExecutionPlan PlanBuilder::Build() && {
  Prologue();
  for (uint32_t layer = 0; layer < config_.n_layers; ++layer) Block(static_cast<int32_t>(layer));
  out_.tail_begin = TailBegin();
  Head();
  // The stream and the logits are read after a run, by the caller or by the head's repetitions.
  out_.buffers[out_.stream].last_step = static_cast<uint32_t>(out_.steps.size()) - 1;
  out_.buffers[out_.logits].last_step = static_cast<uint32_t>(out_.steps.size()) - 1;
  for (size_t use = 0; use < kBufferUses; ++use) {
    out_.region_bytes[use] = AssignOffsets(out_.buffers, static_cast<BufferUse>(use));
  }
  out_.steps.shrink_to_fit();  // the session keeps them
  out_.buffers.shrink_to_fit();
  return std::move(out_);
}

// The last layer's attention. With a parallel FFN none: its input was normed before, for all rows.
uint32_t PlanBuilder::TailBegin() const {
  const auto end = static_cast<uint32_t>(out_.steps.size());
  if (config_.n_layers == 0 || config_.layer(config_.n_layers - 1).parallel) return end;
  for (uint32_t i = end; i > 0; --i) {
    if (std::holds_alternative<AttentionStep>(out_.steps[i - 1].data)) return i - 1;
  }
  return end;
}

BufferId PlanBuilder::NewBuffer(const char* name, BufferUse use, uint64_t bytes) {
  out_.buffers.push_back({.name = name, .use = use, .bytes = bytes, .first_step = kUnusedStep});
  LINNET_CHECK(out_.buffers.size() < kNoBuffer);
  return static_cast<BufferId>(out_.buffers.size() - 1);
}

BufferId PlanBuilder::NewRows(const char* name, uint64_t width) {
  return NewBuffer(name, BufferUse::kActivation, row_count_ * width * sizeof(float) + ops::kLinearInputPadding);
}

RowsBuffer PlanBuilder::NewRowsFor(const char* name, uint64_t width, bool f32, bool int8) {
  RowsBuffer rows;
  if (f32) rows.f32 = NewRows(name, width);
  if (int8) {
    rows.int8 = NewBuffer(name, BufferUse::kActivation, row_count_ * width + ops::kLinearInputPadding);
    rows.quantization = NewBuffer("row quantization", BufferUse::kActivation,
                                  (row_count_ + ops::kLinearRowPadding) * sizeof(ops::RowQuantization));
  }
  return rows;
}

BufferId PlanBuilder::ThreadScratch(uint64_t floats_per_thread) {
  // A cache line between threads, so that they do not share one.
  const uint64_t bytes = (floats_per_thread * sizeof(float) + 127) / 64 * 64;
  return NewBuffer("thread scratch", BufferUse::kScratch, bytes * plan_.options.n_threads);
}

void PlanBuilder::Touch(BufferId buffer) {
  if (buffer == kNoBuffer) return;
  PlanBuffer& touched = out_.buffers[buffer];
  const auto step = static_cast<uint32_t>(out_.steps.size());
  if (touched.first_step == kUnusedStep) touched.first_step = step;
  touched.last_step = step;
}

void PlanBuilder::Add(const char* name, int32_t layer, StepData data, std::initializer_list<BufferId> buffers) {
  for (const BufferId buffer : buffers) Touch(buffer);
  out_.steps.push_back({.name = name, .layer = layer, .data = data});
}

uint32_t PlanBuilder::FirstMatrix(TensorIndex index) const {
  return static_cast<uint32_t>(plan_.packed.first_of_tensor[static_cast<size_t>(index)]);
}

NormWeights PlanBuilder::Norm(const NormSpec& spec, TensorRole gain, TensorRole bias, int32_t layer) const {
  return {.spec = spec, .gain = Find(gain, layer), .bias = Find(bias, layer)};
}

// Norms rows of the stream in the forms that the consumers read: the first one's int8 form directly, f32 where anyone
// needs it (other rotations are quantized from it).
PlanBuilder::Ready PlanBuilder::NormRows(const char* name, int32_t layer, const NormWeights& norm, BufferId in,
                                         std::span<const TensorIndex> consumers) {
  Ready ready;
  bool f32 = false, int8 = false;
  for (const TensorIndex consumer : consumers) {
    const TensorView& weight = tensor(consumer);
    if (!NeedsInt8(weight)) {
      f32 = true;
    } else if (!int8) {
      int8 = true;
      ready.rotation_block = weight.rotation_block;
    } else if (weight.rotation_block != ready.rotation_block) {
      f32 = true;
    }
  }
  const uint32_t width = config_.model_dim;
  ready.rows = NewRowsFor("normed", width, f32, int8);
  const BufferId scratch = int8 ? ThreadScratch(2 * uint64_t{width}) : kNoBuffer;
  Add(name, layer,
      NormStep{.norm = norm,
               .in = in,
               .width = width,
               .in_stride = width,
               .in_offset = 0,
               .out = ready.rows,
               .rotation_block = ready.rotation_block,
               .scratch = scratch},
      {in, ready.rows.f32, ready.rows.int8, ready.rows.quantization, scratch});
  return ready;
}

void PlanBuilder::NormInPlace(const char* name, int32_t layer, const NormWeights& norm, BufferId rows) {
  Add(name, layer,
      NormStep{.norm = norm,
               .in = rows,
               .width = config_.model_dim,
               .in_stride = config_.model_dim,
               .in_offset = 0,
               .out = {.f32 = rows},
               .rotation_block = 0,
               .scratch = kNoBuffer},
      {rows});
}

// The form of `ready` that `consumer` reads; quantizes the f32 rows where that form is not there yet.
RowsBuffer PlanBuilder::RowsFor(TensorIndex consumer, int32_t layer, Ready& ready, uint32_t width) {
  const TensorView& weight = tensor(consumer);
  if (!NeedsInt8(weight)) return {.f32 = ready.rows.f32};
  if (ready.rows.int8 != kNoBuffer && ready.rotation_block == weight.rotation_block) {
    return {.int8 = ready.rows.int8, .quantization = ready.rows.quantization};
  }
  RowsBuffer rows = NewRowsFor("quantized", width, false, true);
  const BufferId scratch = ThreadScratch(width);
  Add("quantize", layer,
      QuantizeStep{.in = ready.rows.f32,
                   .out = rows,
                   .width = width,
                   .rotation_block = weight.rotation_block,
                   .scratch = scratch},
      {ready.rows.f32, rows.int8, rows.quantization, scratch});
  if (ready.rows.int8 == kNoBuffer) {
    ready.rows.int8 = rows.int8;
    ready.rows.quantization = rows.quantization;
    ready.rotation_block = weight.rotation_block;
  }
  return rows;
}

BufferId PlanBuilder::Product(const char* name, int32_t layer, TensorIndex weight, Ready& in) {
  const auto n = static_cast<uint32_t>(tensor(weight).rows());
  const RowsBuffer rows = RowsFor(weight, layer, in, static_cast<uint32_t>(tensor(weight).columns()));
  const BufferId out = NewRows(name, n);
  Add(name, layer, LinearStep{.matrix = FirstMatrix(weight), .in = rows, .out = out, .n = n},
      {rows.f32, rows.int8, rows.quantization, out});
  return out;
}

PlanBuilder::Ready PlanBuilder::Activate(const char* name, int32_t layer, const FfnSpec& ffn, BufferId up,
                                         uint32_t width, TensorIndex consumer) {
  const TensorView& weight = tensor(consumer);
  Ready ready;
  ready.rotation_block = weight.rotation_block;
  ready.rows = NewRowsFor("activated", width, !NeedsInt8(weight), NeedsInt8(weight));
  const BufferId scratch = NeedsInt8(weight) ? ThreadScratch(2 * uint64_t{width}) : kNoBuffer;
  Add(name, layer,
      ActivationStep{.ffn = &ffn,
                     .up = up,
                     .width = width,
                     .out = ready.rows,
                     .rotation_block = weight.rotation_block,
                     .scratch = scratch},
      {up, ready.rows.f32, ready.rows.int8, ready.rows.quantization, scratch});
  return ready;
}

void PlanBuilder::Residual(const char* name, int32_t layer, BufferId branch) {
  const BlockSpec& block = config_.layer(static_cast<uint32_t>(layer));
  Add(name, layer,
      ResidualStep{.stream = out_.stream,
                   .branch = branch,
                   .residual_scale = block.residual_scale,
                   .branch_scale = block.branch_scale},
      {out_.stream, branch});
}

void PlanBuilder::Prologue() {
  out_.stream = NewRows("residual stream", config_.model_dim);
  const TensorIndex table = Find(TensorRole::kTokenEmbedding, -1);
  Add("embedding", -1, EmbedStep{.table = table, .x = out_.stream}, {out_.stream});
  if (config_.positions != EmbeddingPositions::kNone) {
    const TensorIndex positions = Find(TensorRole::kPositionEmbedding, -1);
    Add("positions", -1, PositionStep{.table = positions, .x = out_.stream}, {out_.stream});
  }
  if (config_.embedding_norm.kind != NormKind::kNone) {
    NormInPlace("embedding norm", -1,
                Norm(config_.embedding_norm, TensorRole::kEmbeddingNormGain, TensorRole::kEmbeddingNormBias, -1),
                out_.stream);
  }
  out_.body_begin = static_cast<uint32_t>(out_.steps.size());
  for (uint32_t i = 0; i < config_.ropes.size(); ++i) {
    const uint64_t pairs = config_.ropes[i].rope_dim / 2;
    const RopeBuffers buffers = {NewRows("rope cos", pairs), NewRows("rope sin", pairs)};
    Add("rope table", -1, RopeTableStep{.rope = i, .cos = buffers.cos, .sin = buffers.sin}, {buffers.cos, buffers.sin});
    ropes_.push_back(buffers);
  }
}

void PlanBuilder::Block(int32_t layer) {
  const BlockSpec& block = config_.layer(static_cast<uint32_t>(layer));
  if (block.parallel) {
    ParallelBlock(layer, block);
  } else {
    SequentialBlock(layer, block);
  }
}

std::vector<TensorIndex> PlanBuilder::AttentionConsumers(int32_t layer) const {
  const TensorIndex qkv = Find(TensorRole::kQkv, layer);
  return {qkv != kNoTensor ? qkv : Find(TensorRole::kLatentIn, layer)};
}

std::vector<TensorIndex> PlanBuilder::FfnConsumers(int32_t layer) const {
  std::vector<TensorIndex> consumers;
  for (const TensorRole role : {TensorRole::kFfnUp, TensorRole::kExpertUp, TensorRole::kSharedUp, TensorRole::kRouter,
                                TensorRole::kSharedGate}) {
    if (Find(role, layer) != kNoTensor) consumers.push_back(Find(role, layer));
  }
  return consumers;
}

void PlanBuilder::ParallelBlock(int32_t layer, const BlockSpec& block) {
  const NormWeights first = Norm(block.norm, TensorRole::kAttentionNormGain, TensorRole::kAttentionNormBias, layer);
  std::vector<TensorIndex> consumers = AttentionConsumers(layer);
  const std::vector<TensorIndex> ffn_consumers = FfnConsumers(layer);
  if (block.parallel_shared_norm) consumers.insert(consumers.end(), ffn_consumers.begin(), ffn_consumers.end());
  Ready normed = NormRows("block.norm", layer, first, out_.stream, consumers);
  const BufferId attention = Attention(layer, block, normed);
  if (!block.parallel_shared_norm) {
    normed = NormRows("ffn.norm", layer, Norm(block.norm, TensorRole::kFfnNormGain, TensorRole::kFfnNormBias, layer),
                      out_.stream, ffn_consumers);
  }
  const BufferId ffn = Ffn(layer, block.ffn, normed);
  Residual("attention.residual", layer, attention);
  // The stream's own scale has been applied by the first addition.
  Add("ffn.residual", layer,
      ResidualStep{.stream = out_.stream, .branch = ffn, .residual_scale = 1.0f, .branch_scale = block.branch_scale},
      {out_.stream, ffn});
}

// What a sub-layer reads: the normed stream where its norm comes first, else the stream itself.
PlanBuilder::Ready PlanBuilder::SubLayerInput(const char* name, int32_t layer, const BlockSpec& block,
                                              bool is_attention) {
  if (block.placement == NormPlacement::kPost || block.placement == NormPlacement::kSubLayerOutput) {
    return {.rows = {.f32 = out_.stream}};
  }
  const NormWeights norm = is_attention
                               ? Norm(block.norm, TensorRole::kAttentionNormGain, TensorRole::kAttentionNormBias, layer)
                               : Norm(block.norm, TensorRole::kFfnNormGain, TensorRole::kFfnNormBias, layer);
  return NormRows(name, layer, norm, out_.stream, is_attention ? AttentionConsumers(layer) : FfnConsumers(layer));
}

void PlanBuilder::SequentialBlock(int32_t layer, const BlockSpec& block) {
  for (const bool is_attention : {true, false}) {
    Ready in = SubLayerInput(is_attention ? "attention.norm" : "ffn.norm", layer, block, is_attention);
    const BufferId branch = is_attention ? Attention(layer, block, in) : Ffn(layer, block.ffn, in);
    const NormWeights norm =
        is_attention ? Norm(block.norm, TensorRole::kAttentionNormGain, TensorRole::kAttentionNormBias, layer)
                     : Norm(block.norm, TensorRole::kFfnNormGain, TensorRole::kFfnNormBias, layer);
    const NormWeights post =
        is_attention ? Norm(block.norm, TensorRole::kAttentionPostNormGain, TensorRole::kAttentionPostNormBias, layer)
                     : Norm(block.norm, TensorRole::kFfnPostNormGain, TensorRole::kFfnPostNormBias, layer);
    const char* norm_name = is_attention ? "attention.post_norm" : "ffn.post_norm";
    if (block.placement == NormPlacement::kSubLayerOutput) NormInPlace(norm_name, layer, norm, branch);
    if (block.placement == NormPlacement::kBothSides) NormInPlace(norm_name, layer, post, branch);
    Residual(is_attention ? "attention.residual" : "ffn.residual", layer, branch);
    if (block.placement == NormPlacement::kPost) NormInPlace(norm_name, layer, norm, out_.stream);
  }
}

void PlanBuilder::Head() {
  out_.head_begin = static_cast<uint32_t>(out_.steps.size());
  row_count_ = out_.max_logit_rows;
  const bool tied = config_.tied_head;
  const TensorIndex head = Find(tied ? TensorRole::kTokenEmbedding : TensorRole::kHead, -1);
  Ready in;
  if (config_.final_norm.kind == NormKind::kNone) {
    in.rows.f32 = out_.stream;  // read from the row that the executor is at
  } else {
    in =
        NormRows("final norm", -1, Norm(config_.final_norm, TensorRole::kFinalNormGain, TensorRole::kFinalNormBias, -1),
                 out_.stream, std::span(&head, 1));
  }
  const RowsBuffer rows = RowsFor(head, -1, in, config_.model_dim);
  out_.logits = NewBuffer("logits", BufferUse::kLogits, row_count_ * uint64_t{config_.vocab_size} * sizeof(float));
  Add("head", -1, LinearStep{.matrix = FirstMatrix(head), .in = rows, .out = out_.logits, .n = config_.vocab_size},
      {rows.f32, rows.int8, rows.quantization, out_.logits});
  if (config_.logit_scale != 1.0f || config_.logit_soft_cap > 0.0f) {
    Add("logits", -1, LogitsStep{.logits = out_.logits}, {out_.logits});
  }
}

}  // namespace linnet
