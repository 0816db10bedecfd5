#include "core/count.h"

#include <algorithm>

#include "core/base/model_view.h"
#include "core/kv_shape.h"

namespace linnet {
namespace {

/// Sums and products that remember whether one of them did not fit.
class Adder {
 public:
  uint64_t Mul(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    overflow_ |= __builtin_mul_overflow(a, b, &product);
    return product;
  }
  void Add(uint64_t& sum, uint64_t value) { overflow_ |= __builtin_add_overflow(sum, value, &sum); }
  bool overflow() const { return overflow_; }

 private:
  bool overflow_ = false;
};

enum class Part : uint8_t { kGlobal, kAttention, kFfn, kNorm };

Part PartOf(TensorRole role) {
  switch (role) {
    case TensorRole::kQNormGain:
    case TensorRole::kQNormBias:
    case TensorRole::kKNormGain:
    case TensorRole::kKNormBias:
    case TensorRole::kLatentQNormGain:
    case TensorRole::kLatentKvNormGain:
      return Part::kNorm;
    default:
      break;
  }
  if (!IsLayerRole(role)) return Part::kGlobal;
  if (role < TensorRole::kQkv) return Part::kNorm;
  return role < TensorRole::kFfnUp ? Part::kAttention : Part::kFfn;
}

bool IsRoutedExpert(TensorRole role) {
  return role == TensorRole::kExpertUp || role == TensorRole::kExpertUpBias || role == TensorRole::kExpertDown ||
         role == TensorRole::kExpertDownBias;
}

/// A matrix that a token is multiplied with: the routers and gates too, which are never quantized.
bool IsProduct(TensorRole role) {
  return role != TensorRole::kHead &&
         (IsLinearRole(role) || role == TensorRole::kRouter || role == TensorRole::kSharedGate);
}

void CountTensor(const ModelConfig& config, const TensorRequirement& tensor, ModelCount& count, Adder& adder) {
  uint64_t elements = 1;
  for (uint32_t i = 0; i < tensor.rank; ++i) elements = adder.Mul(elements, tensor.dims[i]);
  ParameterCount& parameters = count.parameters;
  if (tensor.role == TensorRole::kRouterSelectionBias) return adder.Add(parameters.selection_bias, elements);
  adder.Add(parameters.total, elements);
  if (tensor.role == TensorRole::kTokenEmbedding) adder.Add(parameters.token_embedding, elements);
  if (tensor.role == TensorRole::kPositionEmbedding) adder.Add(parameters.position_table, elements);
  if (tensor.role == TensorRole::kHead) adder.Add(parameters.output_matrix, elements);

  uint64_t active = elements;
  if (IsRoutedExpert(tensor.role)) {
    const FfnSpec& ffn = config.layer(static_cast<uint32_t>(tensor.layer)).ffn;
    active = elements / ffn.n_experts * ffn.top_k;  // an expert's share is whole: n_experts is the outermost dimension
    adder.Add(parameters.routed_experts, elements);
  }
  adder.Add(parameters.active, active);
  const Part part = PartOf(tensor.role);
  const uint64_t flops = IsProduct(tensor.role) ? adder.Mul(2, active) : 0;
  adder.Add(count.flops.products, flops);
  if (part == Part::kGlobal) return;
  // All layers of a kind are alike: the first one stands for it.
  const uint16_t kind = config.layer_block[static_cast<size_t>(tensor.layer)];
  const auto first = std::find(config.layer_block.begin(), config.layer_block.end(), kind);
  if (first - config.layer_block.begin() != tensor.layer) return;
  BlockCount& block = count.blocks[kind];
  adder.Add(part == Part::kAttention ? block.attention : part == Part::kFfn ? block.ffn : block.norms, elements);
  adder.Add(part == Part::kAttention ? block.attention_product_flops : block.ffn_flops, flops);
}

void FinishParameters(const ModelConfig& config, ParameterCount& parameters) {
  const uint64_t tables = parameters.token_embedding + parameters.output_matrix + parameters.position_table;
  parameters.non_embedding = parameters.total - tables;
  parameters.active_non_embedding = parameters.active - tables;
  parameters.active_without_input_embedding = parameters.active - (config.tied_head ? 0 : parameters.token_embedding);
}

/// Positions that a token sees which is the n-th of its sequence.
uint64_t Visible(const AttentionSpec& attention, uint64_t n) {
  return attention.window == 0 ? n : std::min<uint64_t>(n, attention.window);
}

/// Visible over the tokens 1 to n, summed.
uint64_t VisibleSum(const AttentionSpec& attention, uint64_t n) {
  const uint64_t ramp = Visible(attention, n);
  return ramp * (ramp + 1) / 2 + (n - ramp) * ramp;
}

void CountAttention(const ModelConfig& config, ModelCount& count, Adder& adder) {
  const uint64_t n = count.context_tokens;
  for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
    const AttentionSpec& attention = config.layer(layer).attention;
    const ops::KvShape shape = KvShapeOf(config, attention, ops::KvType::kF32);
    // A visible position costs each query head a score over a key and a multiply-add for each element of a value.
    const uint64_t each = adder.Mul(2 * uint64_t{attention.n_heads}, uint64_t{shape.head_dim} + shape.value_dim);
    const uint64_t last = adder.Mul(each, Visible(attention, n));
    adder.Add(count.flops.attention_last, last);
    count.flops.attention_mean +=
        static_cast<double>(each) * static_cast<double>(VisibleSum(attention, n)) / static_cast<double>(n);
    BlockCount& block = count.blocks[config.layer_block[layer]];
    ++block.n_layers;
    block.attention_context_flops = last;
  }
}

void FinishFlops(const ModelConfig& config, ModelCount& count, Adder& adder) {
  FlopCount& flops = count.flops;
  adder.Add(flops.products, adder.Mul(2, uint64_t{config.vocab_size} * config.model_dim));
  flops.rule = adder.Mul(2, count.parameters.active_non_embedding);
  adder.Add(flops.rule, adder.Mul(2 * uint64_t{config.n_layers}, uint64_t{count.context_tokens} * config.model_dim));
  flops.last = flops.products;
  adder.Add(flops.last, flops.attention_last);
  flops.mean = static_cast<double>(flops.products) + flops.attention_mean;
}

/// A layer's cache under another kind of attention: changes the shape, false where there is none such.
using Change = bool (*)(const AttentionSpec& attention, ops::KvShape& shape);

bool Same(const AttentionSpec&, ops::KvShape&) { return true; }

bool Grouped(const AttentionSpec& attention, uint32_t n_kv_heads, ops::KvShape& shape) {
  shape = {
      .type = shape.type, .n_kv_heads = n_kv_heads, .head_dim = attention.head_dim, .value_dim = attention.value_dim};
  return true;
}
bool ToMha(const AttentionSpec& attention, ops::KvShape& shape) { return Grouped(attention, attention.n_heads, shape); }
bool ToMqa(const AttentionSpec& attention, ops::KvShape& shape) { return Grouped(attention, 1, shape); }

bool ToGqa(const AttentionSpec& attention, ops::KvShape& shape) {
  uint32_t kv_heads = attention.n_kv_heads;
  if (attention.kind == AttentionKind::kLatent || kv_heads == 1 || kv_heads == attention.n_heads) {
    kv_heads = std::min(8u, attention.n_heads - 1);
    while (kv_heads > 1 && attention.n_heads % kv_heads != 0) --kv_heads;
  }
  return kv_heads > 1 && Grouped(attention, kv_heads, shape);
}

bool ToMla(const AttentionSpec& attention, ops::KvShape& shape) {
  if (attention.kind == AttentionKind::kLatent) return true;
  const uint32_t rank = 4 * attention.head_dim;
  shape = {.type = shape.type,
           .n_kv_heads = 1,
           .head_dim = rank + attention.head_dim / 2,
           .value_dim = rank,
           .capacity = 0,
           .latent = true};
  return true;
}

KvCount CountKv(const ModelConfig& config, const CountOptions& options, Change change, Adder& adder) {
  KvCount count;
  count.is_own = true;
  for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
    const AttentionSpec& attention = config.layer(layer).attention;
    const ops::KvShape own = KvShapeOf(config, attention, options.kv_type);
    ops::KvShape shape = own;
    if (!change(attention, shape)) return {};
    count.is_own = count.is_own && shape.latent == own.latent && shape.n_kv_heads == own.n_kv_heads;
    const auto bytes = [&](uint32_t positions) {
      shape.capacity = positions;
      return ops::MakeKvLayout(shape).bytes;
    };
    const auto visible = static_cast<uint32_t>(Visible(attention, options.context_tokens));
    adder.Add(count.token_bytes, bytes(1));
    adder.Add(count.context_bytes, bytes(visible));
    adder.Add(count.planned_bytes, bytes(ops::KvCapacity(attention.window, options.context_tokens,
                                                         std::min(options.chunk_tokens, options.context_tokens))));
    if (layer > 0) continue;
    count.kind = shape.latent ? AttentionKind::kLatent : AttentionKind::kGrouped;
    count.n_kv_heads = shape.latent ? 0 : shape.n_kv_heads;
    count.latent_width = shape.latent ? shape.head_dim : 0;
  }
  count.exists = true;
  return count;
}

}  // namespace

Result<ModelCount> CountModel(const ModelConfig& config, const CountOptions& options) {
  CountOptions filled = options;
  if (filled.context_tokens == 0) filled.context_tokens = config.context_length;
  filled.chunk_tokens = std::max(filled.chunk_tokens, 1u);
  if (filled.context_tokens == 0 || filled.context_tokens > kMaxContext) {
    return Status(StatusCode::kInvalidArgument, "the context is larger than any model's", filled.context_tokens);
  }
  ModelCount count;
  Adder adder;
  count.context_tokens = filled.context_tokens;
  count.blocks.resize(config.blocks.size());
  for (const TensorRequirement& tensor : RequiredTensors(config)) CountTensor(config, tensor, count, adder);
  FinishParameters(config, count.parameters);
  CountAttention(config, count, adder);
  FinishFlops(config, count, adder);
  count.kv = CountKv(config, filled, Same, adder);
  count.mha = CountKv(config, filled, ToMha, adder);
  count.gqa = CountKv(config, filled, ToGqa, adder);
  count.mqa = CountKv(config, filled, ToMqa, adder);
  count.mla = CountKv(config, filled, ToMla, adder);
  if (adder.overflow()) return Status(StatusCode::kUnsupported, "a count does not fit 64 bits");
  return count;
}

}  // namespace linnet
