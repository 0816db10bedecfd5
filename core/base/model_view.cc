#include "core/base/model_view.h"

#include <algorithm>

#include "core/base/checked.h"
#include "core/base/diagnostic.h"

namespace linnet {
namespace {

constexpr uint64_t kDataAlignment = 64;  // a cache line, and the widest vector that a kernel loads

/// One line of the table of roles.
struct RoleInfo {
  TensorRole role;
  const char* name;
  bool linear;
};

constexpr RoleInfo kRoles[] = {
    {TensorRole::kTokenEmbedding, "embedding.token", false},
    {TensorRole::kPositionEmbedding, "embedding.position", false},
    {TensorRole::kEmbeddingNormGain, "embedding_norm.gain", false},
    {TensorRole::kEmbeddingNormBias, "embedding_norm.bias", false},
    {TensorRole::kFinalNormGain, "final_norm.gain", false},
    {TensorRole::kFinalNormBias, "final_norm.bias", false},
    {TensorRole::kHead, "head", true},
    {TensorRole::kHeadBias, "head.bias", false},
    {TensorRole::kAttentionNormGain, "attention_norm.gain", false},
    {TensorRole::kAttentionNormBias, "attention_norm.bias", false},
    {TensorRole::kAttentionPostNormGain, "attention_post_norm.gain", false},
    {TensorRole::kAttentionPostNormBias, "attention_post_norm.bias", false},
    {TensorRole::kFfnNormGain, "ffn_norm.gain", false},
    {TensorRole::kFfnNormBias, "ffn_norm.bias", false},
    {TensorRole::kFfnPostNormGain, "ffn_post_norm.gain", false},
    {TensorRole::kFfnPostNormBias, "ffn_post_norm.bias", false},
    {TensorRole::kQkv, "attention.qkv", true},
    {TensorRole::kQkvBias, "attention.qkv.bias", false},
    {TensorRole::kQNormGain, "attention.q_norm.gain", false},
    {TensorRole::kKNormGain, "attention.k_norm.gain", false},
    {TensorRole::kAttentionOut, "attention.out", true},
    {TensorRole::kAttentionOutBias, "attention.out.bias", false},
    {TensorRole::kSinks, "attention.sinks", false},
    {TensorRole::kQNormBias, "attention.q_norm.bias", false},
    {TensorRole::kKNormBias, "attention.k_norm.bias", false},
    {TensorRole::kLatentIn, "attention.latent_in", true},
    {TensorRole::kLatentInBias, "attention.latent_in.bias", false},
    {TensorRole::kLatentQNormGain, "attention.latent_q_norm.gain", false},
    {TensorRole::kLatentKvNormGain, "attention.latent_kv_norm.gain", false},
    {TensorRole::kLatentQ, "attention.latent_q", true},
    {TensorRole::kLatentKeyUp, "attention.latent_key_up", true},
    {TensorRole::kLatentValueUp, "attention.latent_value_up", true},
    {TensorRole::kFfnUp, "ffn.up", true},
    {TensorRole::kFfnUpBias, "ffn.up.bias", false},
    {TensorRole::kFfnDown, "ffn.down", true},
    {TensorRole::kFfnDownBias, "ffn.down.bias", false},
    {TensorRole::kRouter, "ffn.router", false},
    {TensorRole::kRouterBias, "ffn.router.bias", false},
    {TensorRole::kRouterSelectionBias, "ffn.router.selection_bias", false},
    {TensorRole::kExpertUp, "ffn.expert_up", true},
    {TensorRole::kExpertUpBias, "ffn.expert_up.bias", false},
    {TensorRole::kExpertDown, "ffn.expert_down", true},
    {TensorRole::kExpertDownBias, "ffn.expert_down.bias", false},
    {TensorRole::kSharedUp, "ffn.shared_up", true},
    {TensorRole::kSharedDown, "ffn.shared_down", true},
    {TensorRole::kSharedGate, "ffn.shared_gate", false},
};

const RoleInfo* FindRole(uint8_t value) {
  for (const RoleInfo& info : kRoles) {
    if (static_cast<uint8_t>(info.role) == value) return &info;
  }
  return nullptr;
}

bool IsEmbeddingTable(TensorRole role) {
  return role == TensorRole::kTokenEmbedding || role == TensorRole::kPositionEmbedding;
}

/// Collects requirements; the current layer is part of every one.
class RequirementList {
 public:
  void set_layer(int32_t layer) { layer_ = layer; }
  void Vector(TensorRole role, uint64_t n) { Add(role, 1, {n, 0, 0}); }
  void Matrix(TensorRole role, uint64_t n, uint64_t k) { Add(role, 2, {n, k, 0}); }
  void Stack(TensorRole role, uint64_t groups, uint64_t n, uint64_t k) { Add(role, 3, {groups, n, k}); }
  void Norm(const NormSpec& norm, TensorRole gain, TensorRole bias, uint64_t width) {
    if (norm.has_gain) Vector(gain, width);
    if (norm.has_bias) Vector(bias, width);
  }
  std::vector<TensorRequirement> Take() { return std::move(list_); }

 private:
  void Add(TensorRole role, uint32_t rank, std::array<uint64_t, 3> dims) {
    list_.push_back({role, layer_, rank, dims, !IsLinearRole(role) && !IsEmbeddingTable(role)});
  }

  std::vector<TensorRequirement> list_;
  int32_t layer_ = -1;
};

void AddQkNorm(const AttentionSpec& attention, uint64_t heads, TensorRole role, RequirementList& list) {
  switch (attention.qk_norm) {
    case QkNorm::kNone:
      return;
    case QkNorm::kPerHead:
      return list.Vector(role, attention.head_dim);
    case QkNorm::kPerHeadGain:
      return list.Matrix(role, heads, attention.head_dim);
    case QkNorm::kFullWidth:
      return list.Vector(role, heads * attention.head_dim);
  }
}

void AddGroupedAttention(const ModelConfig& config, const AttentionSpec& attention, RequirementList& list) {
  const uint64_t heads = attention.n_heads, kv_heads = attention.n_kv_heads;
  const uint64_t rows = heads * attention.head_dim + kv_heads * attention.head_dim + kv_heads * attention.value_dim;
  list.Matrix(TensorRole::kQkv, rows, config.model_dim);
  if (attention.qkv_bias) list.Vector(TensorRole::kQkvBias, rows);
  if (attention.qk_norm_spec.has_gain) {
    AddQkNorm(attention, heads, TensorRole::kQNormGain, list);
    AddQkNorm(attention, kv_heads, TensorRole::kKNormGain, list);
  }
  if (attention.qk_norm_spec.has_bias) {
    AddQkNorm(attention, heads, TensorRole::kQNormBias, list);
    AddQkNorm(attention, kv_heads, TensorRole::kKNormBias, list);
  }
  if (attention.sinks) list.Vector(TensorRole::kSinks, heads);
}

void AddLatentAttention(const ModelConfig& config, const AttentionSpec& attention, RequirementList& list) {
  const uint64_t heads = attention.n_heads, latent = attention.kv_lora_rank, q_latent = attention.q_lora_rank;
  const uint64_t rope_dim = config.ropes[static_cast<size_t>(attention.rope)].rope_dim;
  const uint64_t q_rows = heads * attention.head_dim;
  const uint64_t rows = (q_latent > 0 ? q_latent : q_rows) + latent + rope_dim;
  list.Matrix(TensorRole::kLatentIn, rows, config.model_dim);
  if (attention.qkv_bias) list.Vector(TensorRole::kLatentInBias, rows);
  if (q_latent > 0) {
    if (attention.latent_norm.has_gain) list.Vector(TensorRole::kLatentQNormGain, q_latent);
    list.Matrix(TensorRole::kLatentQ, q_rows, q_latent);
  }
  if (attention.latent_norm.has_gain) list.Vector(TensorRole::kLatentKvNormGain, latent);
  list.Stack(TensorRole::kLatentKeyUp, heads, latent, attention.head_dim - rope_dim);
  list.Stack(TensorRole::kLatentValueUp, heads, attention.value_dim, latent);
}

void AddAttention(const ModelConfig& config, const AttentionSpec& attention, RequirementList& list) {
  if (attention.kind == AttentionKind::kLatent) {
    AddLatentAttention(config, attention, list);
  } else {
    AddGroupedAttention(config, attention, list);
  }
  list.Matrix(TensorRole::kAttentionOut, config.model_dim, uint64_t{attention.n_heads} * attention.value_dim);
  if (attention.out_bias) list.Vector(TensorRole::kAttentionOutBias, config.model_dim);
}

void AddExperts(const ModelConfig& config, const FfnSpec& ffn, RequirementList& list) {
  const uint64_t experts = ffn.n_experts, up_factor = ffn.gated ? 2 : 1, model_dim = config.model_dim;
  list.Matrix(TensorRole::kRouter, experts, model_dim);
  if (ffn.router_bias) list.Vector(TensorRole::kRouterBias, experts);
  if (ffn.selection_bias) list.Vector(TensorRole::kRouterSelectionBias, experts);
  list.Stack(TensorRole::kExpertUp, experts, up_factor * ffn.ffn_dim, model_dim);
  if (ffn.up_bias) list.Matrix(TensorRole::kExpertUpBias, experts, up_factor * ffn.ffn_dim);
  list.Stack(TensorRole::kExpertDown, experts, model_dim, ffn.ffn_dim);
  if (ffn.down_bias) list.Matrix(TensorRole::kExpertDownBias, experts, model_dim);
  if (ffn.shared_ffn_dim == 0) return;
  list.Matrix(TensorRole::kSharedUp, up_factor * ffn.shared_ffn_dim, model_dim);
  list.Matrix(TensorRole::kSharedDown, model_dim, ffn.shared_ffn_dim);
  if (ffn.shared_gate) list.Matrix(TensorRole::kSharedGate, 1, model_dim);
}

void AddFfn(const ModelConfig& config, const FfnSpec& ffn, RequirementList& list) {
  if (ffn.n_experts > 0) return AddExperts(config, ffn, list);
  const uint64_t rows = uint64_t{ffn.gated ? 2u : 1u} * ffn.ffn_dim;
  list.Matrix(TensorRole::kFfnUp, rows, config.model_dim);
  if (ffn.up_bias) list.Vector(TensorRole::kFfnUpBias, rows);
  list.Matrix(TensorRole::kFfnDown, config.model_dim, ffn.ffn_dim);
  if (ffn.down_bias) list.Vector(TensorRole::kFfnDownBias, config.model_dim);
}

void AddBlock(const ModelConfig& config, const BlockSpec& block, RequirementList& list) {
  const uint64_t width = config.model_dim;
  const bool norm_first = block.placement == NormPlacement::kPre || block.placement == NormPlacement::kBothSides;
  const auto attention_norm = [&] {
    list.Norm(block.norm, TensorRole::kAttentionNormGain, TensorRole::kAttentionNormBias, width);
  };
  const auto ffn_norm = [&] { list.Norm(block.norm, TensorRole::kFfnNormGain, TensorRole::kFfnNormBias, width); };

  if (norm_first) attention_norm();
  AddAttention(config, block.attention, list);
  if (!norm_first) attention_norm();
  if (block.placement == NormPlacement::kBothSides) {
    list.Norm(block.norm, TensorRole::kAttentionPostNormGain, TensorRole::kAttentionPostNormBias, width);
  }
  if (norm_first && !block.parallel_shared_norm) ffn_norm();
  AddFfn(config, block.ffn, list);
  if (!norm_first) ffn_norm();
  if (block.placement == NormPlacement::kBothSides) {
    list.Norm(block.norm, TensorRole::kFfnPostNormGain, TensorRole::kFfnPostNormBias, width);
  }
}

/// One tensor's place for messages: role and layer.
Status TensorFail(Diagnostic* diagnostic, StatusCode code, const TensorView& tensor, const char* message) {
  return Fail(diagnostic, code, message, "tensor %s of layer %d: %s", TensorRoleName(tensor.role), tensor.layer,
              message);
}

Status ValidateShape(const TensorView& tensor, const TensorRequirement& required, Diagnostic* diagnostic) {
  bool same = tensor.rank == required.rank;
  for (uint32_t i = 0; same && i < required.rank; ++i) same = tensor.dims[i] == required.dims[i];
  if (same) return Status::Ok();
  const auto dim = [](const auto& t, uint32_t i) {
    return static_cast<unsigned long long>(i < t.rank ? t.dims[i] : 0);
  };
  return Fail(diagnostic, StatusCode::kInvalidModel, "a tensor has another shape than the description asks for",
              "tensor %s of layer %d: expected rank %u [%llu, %llu, %llu], found rank %u [%llu, %llu, %llu]",
              TensorRoleName(tensor.role), tensor.layer, required.rank, dim(required, 0), dim(required, 1),
              dim(required, 2), tensor.rank, dim(tensor, 0), dim(tensor, 1), dim(tensor, 2));
}

Status ValidateStorage(const TensorView& tensor, const TensorRequirement& required, Diagnostic* diagnostic) {
  const StatusCode invalid = StatusCode::kInvalidModel;
  if (static_cast<uint8_t>(tensor.dtype) >= kDTypeCount) return TensorFail(diagnostic, invalid, tensor, "unknown type");
  if (required.must_be_f32 && tensor.dtype != DType::kF32) {
    return TensorFail(diagnostic, StatusCode::kUnsupported, tensor, "the type must be f32");
  }
  if (tensor.dtype != DType::kQ4 && tensor.block_size != 0) {
    return TensorFail(diagnostic, invalid, tensor, "a block size outside q4");
  }
  if (tensor.rotation_block != 0) {
    const bool may_rotate = IsLinearRole(tensor.role) || tensor.role == TensorRole::kTokenEmbedding;
    if (!may_rotate) return TensorFail(diagnostic, invalid, tensor, "a rotation outside a matrix product");
    if (!IsPowerOfTwo(tensor.rotation_block) || tensor.columns() % tensor.rotation_block != 0) {
      return TensorFail(diagnostic, invalid, tensor, "the rotation block is not a power of two that divides the width");
    }
  }
  const Result<TensorBytes> bytes =
      ComputeTensorBytes(tensor.dtype, std::span(tensor.dims).first(tensor.rank), tensor.block_size);
  if (!bytes.ok()) return TensorFail(diagnostic, bytes.status().code(), tensor, bytes.status().message());
  if (tensor.data.size() != bytes->data || tensor.scales.size() != bytes->scales) {
    return TensorFail(diagnostic, invalid, tensor, "data or scales have another size than shape and type ask for");
  }
  if (reinterpret_cast<uintptr_t>(tensor.data.data()) % kDataAlignment != 0 ||
      reinterpret_cast<uintptr_t>(tensor.scales.data()) % kDataAlignment != 0) {
    return TensorFail(diagnostic, invalid, tensor, "data or scales are not aligned to 64 bytes");
  }
  return Status::Ok();
}

uint64_t TensorKey(TensorRole role, int32_t layer) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(layer)) << 8) | static_cast<uint8_t>(role);
}

}  // namespace

const char* TensorRoleName(TensorRole role) {
  const RoleInfo* info = FindRole(static_cast<uint8_t>(role));
  return info == nullptr ? "?" : info->name;
}

bool IsKnownTensorRole(uint8_t value) { return FindRole(value) != nullptr; }

bool IsLayerRole(TensorRole role) { return role >= TensorRole::kAttentionNormGain; }

bool IsLinearRole(TensorRole role) {
  const RoleInfo* info = FindRole(static_cast<uint8_t>(role));
  return info != nullptr && info->linear;
}

Result<TensorBytes> ComputeTensorBytes(DType dtype, std::span<const uint64_t> dims, uint32_t block_size) {
  constexpr StatusCode kInvalid = StatusCode::kInvalidModel;
  if (dims.empty() || dims.size() > 3) return Status(kInvalid, "a tensor's rank is not 1, 2 or 3");
  if (IsQuantized(dtype) && dims.size() < 2) return Status(kInvalid, "a vector cannot be quantized");
  const uint64_t columns = dims.back();
  uint64_t rows = 1;  // of all groups
  for (uint64_t dim : dims.first(dims.size() - 1)) {
    LINNET_ASSIGN_OR_RETURN(rows, CheckedMul(rows, dim));
  }
  LINNET_ASSIGN_OR_RETURN(const uint64_t elements, CheckedMul(rows, columns));
  TensorBytes bytes;
  if (dtype == DType::kQ4) {
    if (block_size != 32 && block_size != 64 && block_size != 128) {
      return Status(kInvalid, "a q4 block size is not 32, 64 or 128", block_size);
    }
    if (columns % block_size != 0) return Status(kInvalid, "the q4 block size does not divide the width", block_size);
    bytes.data = elements / 2;
    bytes.scales = elements / block_size * 2;
  } else if (dtype == DType::kQ8) {
    bytes.data = elements;
    LINNET_ASSIGN_OR_RETURN(bytes.scales, CheckedMul(rows, 4));
  } else {
    LINNET_ASSIGN_OR_RETURN(bytes.data, CheckedMul(elements, DTypeBits(dtype) / 8));
  }
  return bytes;
}

std::vector<TensorRequirement> RequiredTensors(const ModelConfig& config) {
  RequirementList list;
  const uint64_t width = config.model_dim;
  list.Matrix(TensorRole::kTokenEmbedding, config.vocab_size, width);
  if (config.positions == EmbeddingPositions::kLearned) {
    list.Matrix(TensorRole::kPositionEmbedding, config.position_rows, width);
  }
  list.Norm(config.embedding_norm, TensorRole::kEmbeddingNormGain, TensorRole::kEmbeddingNormBias, width);
  for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
    list.set_layer(static_cast<int32_t>(layer));
    AddBlock(config, config.layer(layer), list);
  }
  list.set_layer(-1);
  list.Norm(config.final_norm, TensorRole::kFinalNormGain, TensorRole::kFinalNormBias, width);
  if (!config.tied_head) list.Matrix(TensorRole::kHead, config.vocab_size, width);
  if (config.head_bias) list.Vector(TensorRole::kHeadBias, config.vocab_size);
  return list.Take();
}

const TensorView* ModelView::Find(TensorRole role, int32_t layer) const {
  for (const TensorView& tensor : tensors_) {
    if (tensor.role == role && tensor.layer == layer) return &tensor;
  }
  return nullptr;
}

Status ValidateTensors(const ModelConfig& config, std::span<const TensorView> tensors, Diagnostic* diagnostic) {
  const std::vector<TensorRequirement> required = RequiredTensors(config);
  std::vector<std::pair<uint64_t, const TensorView*>> found;
  found.reserve(tensors.size());
  for (const TensorView& tensor : tensors) {
    if (!IsKnownTensorRole(static_cast<uint8_t>(tensor.role))) {
      return Fail(diagnostic, StatusCode::kInvalidModel, "a tensor has an unknown role", "tensor role %u is unknown",
                  static_cast<unsigned>(tensor.role));
    }
    found.emplace_back(TensorKey(tensor.role, tensor.layer), &tensor);
  }
  std::sort(found.begin(), found.end());
  for (size_t i = 1; i < found.size(); ++i) {
    if (found[i].first == found[i - 1].first) {
      return TensorFail(diagnostic, StatusCode::kInvalidModel, *found[i].second, "the tensor exists twice");
    }
  }
  for (const TensorRequirement& requirement : required) {
    const uint64_t key = TensorKey(requirement.role, requirement.layer);
    const auto it = std::lower_bound(found.begin(), found.end(), key,
                                     [](const auto& entry, uint64_t value) { return entry.first < value; });
    if (it == found.end() || it->first != key) {
      return Fail(diagnostic, StatusCode::kInvalidModel, "a tensor is missing", "tensor %s of layer %d is missing",
                  TensorRoleName(requirement.role), requirement.layer);
    }
    LINNET_RETURN_IF_ERROR(ValidateShape(*it->second, requirement, diagnostic));
    LINNET_RETURN_IF_ERROR(ValidateStorage(*it->second, requirement, diagnostic));
  }
  if (found.size() == required.size()) return Status::Ok();
  for (const auto& [key, tensor] : found) {  // every required one is there, so another one is too many
    const bool wanted = std::any_of(required.begin(), required.end(), [key = key](const TensorRequirement& r) {
      return TensorKey(r.role, r.layer) == key;
    });
    if (!wanted) {
      return TensorFail(diagnostic, StatusCode::kInvalidModel, *tensor, "the description asks for no such tensor");
    }
  }
  return Status::Ok();
}

}  // namespace linnet
