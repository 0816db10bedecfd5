#include "formats/gguf/tensor_map.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "formats/gguf/dequantize.h"

namespace linnet::formats {
namespace {

// Tensors that the description took its numbers from, or that carry nothing: "blk." prefix and number left out.
constexpr std::string_view kNotWeights[] = {
    "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight",
    "attn_rot_embd.weight",  // inverse frequencies that old converters kept
};

bool IsNotWeights(std::string_view name) {
  if (name.starts_with("blk.")) {
    const size_t dot = name.find('.', 4);
    name = dot == std::string_view::npos ? name : name.substr(dot + 1);
  }
  return std::find(std::begin(kNotWeights), std::end(kNotWeights), name) != std::end(kNotWeights);
}

std::string ShapeText(const GgufTensor& tensor) {
  std::string text = "[";
  for (uint32_t i = 0; i < tensor.rank; ++i) text += (i == 0 ? "" : ", ") + std::to_string(tensor.dims[i]);
  return text + "]";
}

class Mapper {
 public:
  Mapper(const GgufSet& files, const GgufArchitecture& architecture, const ModelConfig& config, Diagnostic* diagnostic)
      : files_(files), arch_(architecture), config_(config), diagnostic_(diagnostic) {}

  Result<std::vector<GgufSource>> Run(const std::vector<TensorRequirement>& required) {
    std::vector<GgufSource> sources;
    sources.reserve(required.size());
    for (const TensorRequirement& requirement : required) {
      source_ = {};
      source_.role = requirement.role;
      source_.layer = requirement.layer;
      required_ = &requirement;
      LINNET_RETURN_IF_ERROR(requirement.layer < 0 ? MapGlobal() : MapOfLayer());
      sources.push_back(std::move(source_));
    }
    LINNET_RETURN_IF_ERROR(RefuseUnused(sources));
    return sources;
  }

 private:
  uint64_t groups() const { return required_->rank == 3 ? required_->dims[0] : 1; }
  uint64_t columns() const { return required_->dims[required_->rank - 1]; }
  uint64_t rows() const { return required_->rank == 1 ? 1 : required_->dims[required_->rank - 2]; }
  const BlockSpec& block() const { return config_.layer(static_cast<uint32_t>(required_->layer)); }
  std::string LayerName(const char* name) const {
    return GgufLayerTensorName(static_cast<uint32_t>(required_->layer), name);
  }
  bool Has(const char* name) const { return files_.FindTensor(LayerName(name)) != nullptr; }

  Status MapGlobal();
  Status MapOfLayer();
  Status MapNorm(const char* name, const char* suffix);
  Status MapQkv(const char* suffix);
  Status MapLatent();
  Status MapLatentUp();
  Status MapFfn();
  Status MapExperts();
  Status MapOneExpertEach(bool up);

  Status Find(const std::string& name, const GgufTensor*& tensor);
  Status CheckShape(const std::string& name, const GgufTensor& tensor, uint64_t rows, uint64_t columns);
  Status AddRows(const std::string& name, uint64_t rows_of_part, uint32_t permuted_head_dim = 0);
  Status AddVector(const std::string& name, uint64_t values, uint32_t permuted_head_dim = 0);
  Status Whole(const std::string& name);
  Status RefuseUnused(const std::vector<GgufSource>& sources);

  const GgufSet& files_;
  const GgufArchitecture& arch_;
  const ModelConfig& config_;
  Diagnostic* diagnostic_;
  const TensorRequirement* required_ = nullptr;
  GgufSource source_;
};

Status Mapper::Find(const std::string& name, const GgufTensor*& tensor) {
  tensor = files_.FindTensor(name);
  if (tensor == nullptr) {
    return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF tensor is missing", "%s: tensor \"%s\" is missing",
                files_.name(), name.c_str());
  }
  const GgmlType* type = FindGgmlType(tensor->type);
  LINNET_CHECK(type != nullptr);  // the parser refuses unknown numbers
  if (type->dequantize != nullptr) return Status::Ok();
  return Fail(diagnostic_, StatusCode::kUnsupported, "a GGUF tensor type is not supported",
              "%s: tensor \"%s\" has type %s, which is not supported", files_.name(), name.c_str(), type->name);
}

// Vectors may stand as [1, n] or [n], stacks of experts as [E, n, k]: what counts is the row width and the row count.
Status Mapper::CheckShape(const std::string& name, const GgufTensor& tensor, uint64_t rows, uint64_t columns) {
  if (tensor.rows() == rows && tensor.columns() == columns) return Status::Ok();
  return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF tensor has another shape than expected",
              "%s: tensor \"%s\": expected [%llu, %llu], found %s", files_.name(), name.c_str(),
              static_cast<unsigned long long>(rows), static_cast<unsigned long long>(columns),
              ShapeText(tensor).c_str());
}

Status Mapper::AddRows(const std::string& name, uint64_t rows_of_part, uint32_t permuted_head_dim) {
  GgufPart part;
  LINNET_RETURN_IF_ERROR(Find(name, part.tensor));
  LINNET_RETURN_IF_ERROR(CheckShape(name, *part.tensor, groups() * rows_of_part, columns()));
  if (required_->rank == 3 && part.tensor->rank == 3 && part.tensor->dims[0] != groups()) {
    return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF tensor has another shape than expected",
                "%s: tensor \"%s\": expected [%llu, %llu, %llu], found %s", files_.name(), name.c_str(),
                static_cast<unsigned long long>(groups()), static_cast<unsigned long long>(rows_of_part),
                static_cast<unsigned long long>(columns()), ShapeText(*part.tensor).c_str());
  }
  part.rows = part.group_stride = rows_of_part;
  part.permuted_head_dim = permuted_head_dim;
  source_.parts.push_back(part);
  return Status::Ok();
}

Status Mapper::AddVector(const std::string& name, uint64_t values, uint32_t permuted_head_dim) {
  source_.kind = GgufSource::Kind::kVector;
  GgufPart part;
  LINNET_RETURN_IF_ERROR(Find(name, part.tensor));
  LINNET_RETURN_IF_ERROR(CheckShape(name, *part.tensor, rows(), values));
  part.rows = values;
  part.permuted_head_dim = permuted_head_dim;
  source_.parts.push_back(part);
  return Status::Ok();
}

// One tensor of the required shape.
Status Mapper::Whole(const std::string& name) {
  return required_->rank == 1 ? AddVector(name, columns()) : AddRows(name, rows());
}

Status Mapper::MapGlobal() {
  switch (required_->role) {
    case TensorRole::kTokenEmbedding:
      return Whole("token_embd.weight");
    case TensorRole::kPositionEmbedding:
      return Whole("position_embd.weight");
    case TensorRole::kEmbeddingNormGain:
      return Whole("token_embd_norm.weight");
    case TensorRole::kEmbeddingNormBias:
      return Whole("token_embd_norm.bias");
    case TensorRole::kFinalNormGain:
      return Whole("output_norm.weight");
    case TensorRole::kFinalNormBias:
      return Whole("output_norm.bias");
    case TensorRole::kHead:
      return Whole("output.weight");
    default:
      LINNET_CHECK(required_->role == TensorRole::kHeadBias);
      return Whole("output.bias");
  }
}

Status Mapper::MapNorm(const char* name, const char* suffix) { return Whole(LayerName(name) + suffix); }

Status Mapper::MapOfLayer() {
  const GgufNormNames norms = GgufNormNamesOf(arch_, files_, static_cast<uint32_t>(required_->layer));
  switch (required_->role) {
    case TensorRole::kAttentionNormGain:
      return MapNorm(norms.attention, ".weight");
    case TensorRole::kAttentionNormBias:
      return MapNorm(norms.attention, ".bias");
    case TensorRole::kAttentionPostNormGain:
      return MapNorm("post_attention_norm", ".weight");
    case TensorRole::kAttentionPostNormBias:
      return MapNorm("post_attention_norm", ".bias");
    case TensorRole::kFfnNormGain:
      return MapNorm(norms.ffn, ".weight");
    case TensorRole::kFfnNormBias:
      return MapNorm(norms.ffn, ".bias");
    case TensorRole::kFfnPostNormGain:
      return MapNorm("post_ffw_norm", ".weight");
    case TensorRole::kFfnPostNormBias:
      return MapNorm("post_ffw_norm", ".bias");
    case TensorRole::kQkv:
      return MapQkv(".weight");
    case TensorRole::kQkvBias:
      return MapQkv(".bias");
    case TensorRole::kQNormGain:
      return Whole(LayerName("attn_q_norm.weight"));
    case TensorRole::kQNormBias:
      return Whole(LayerName("attn_q_norm.bias"));
    case TensorRole::kKNormGain:
      return Whole(LayerName("attn_k_norm.weight"));
    case TensorRole::kKNormBias:
      return Whole(LayerName("attn_k_norm.bias"));
    case TensorRole::kAttentionOut:
      return Whole(LayerName("attn_output.weight"));
    case TensorRole::kAttentionOutBias:
      return Whole(LayerName("attn_output.bias"));
    case TensorRole::kSinks:
      return Whole(LayerName("attn_sinks.weight"));
    case TensorRole::kLatentIn:
    case TensorRole::kLatentInBias:
    case TensorRole::kLatentQNormGain:
    case TensorRole::kLatentKvNormGain:
    case TensorRole::kLatentQ:
      return MapLatent();
    case TensorRole::kLatentKeyUp:
    case TensorRole::kLatentValueUp:
      return MapLatentUp();
    case TensorRole::kFfnUp:
    case TensorRole::kFfnUpBias:
    case TensorRole::kFfnDown:
    case TensorRole::kFfnDownBias:
      return MapFfn();
    default:
      return MapExperts();
  }
}

// q over k over v, from three tensors or one that is stacked already.
Status Mapper::MapQkv(const char* suffix) {
  const AttentionSpec& attention = block().attention;
  const uint64_t q_rows = uint64_t{attention.n_heads} * attention.head_dim;
  const uint64_t k_rows = uint64_t{attention.n_kv_heads} * attention.head_dim;
  const uint64_t v_rows = uint64_t{attention.n_kv_heads} * attention.value_dim;
  const uint32_t permuted = arch_.permuted_qk ? attention.head_dim : 0;
  const bool vector = required_->rank == 1;
  const auto add = [&](const char* name, uint64_t count, uint32_t permutation) {
    const std::string full = LayerName(name) + suffix;
    return vector ? AddVector(full, count, permutation) : AddRows(full, count, permutation);
  };
  if (!Has((std::string("attn_qkv") + suffix).c_str())) {
    LINNET_RETURN_IF_ERROR(add("attn_q", q_rows, permuted));
    LINNET_RETURN_IF_ERROR(add("attn_k", k_rows, permuted));
    return add("attn_v", v_rows, 0);
  }
  LINNET_RETURN_IF_ERROR(add("attn_qkv", q_rows + k_rows + v_rows, 0));
  if (permuted == 0) return Status::Ok();
  // The same tensor three times, each with its own order of rows.
  const GgufPart whole = source_.parts.front();
  source_.parts.assign(3, whole);
  source_.parts[0].rows = q_rows;
  source_.parts[1].rows = k_rows;
  source_.parts[2].rows = v_rows;
  source_.parts[1].first = q_rows;
  source_.parts[2].first = q_rows + k_rows;
  source_.parts[0].permuted_head_dim = source_.parts[1].permuted_head_dim = permuted;
  return Status::Ok();
}

Status Mapper::MapLatent() {
  const AttentionSpec& attention = block().attention;
  const uint64_t rope_dim = config_.ropes[static_cast<size_t>(attention.rope)].rope_dim;
  const uint64_t q_rows =
      attention.q_lora_rank > 0 ? attention.q_lora_rank : uint64_t{attention.n_heads} * attention.head_dim;
  const std::string q = LayerName(attention.q_lora_rank > 0 ? "attn_q_a" : "attn_q");
  const uint64_t kv_rows = attention.kv_lora_rank + rope_dim;
  switch (required_->role) {
    case TensorRole::kLatentQNormGain:
      return Whole(LayerName("attn_q_a_norm.weight"));
    case TensorRole::kLatentKvNormGain:
      return Whole(LayerName("attn_kv_a_norm.weight"));
    case TensorRole::kLatentQ:
      return Whole(LayerName("attn_q_b.weight"));
    case TensorRole::kLatentIn:
      LINNET_RETURN_IF_ERROR(AddRows(q + ".weight", q_rows));
      return AddRows(LayerName("attn_kv_a_mqa.weight"), kv_rows);
    default:
      LINNET_RETURN_IF_ERROR(AddVector(q + ".bias", q_rows));
      return AddVector(LayerName("attn_kv_a_mqa.bias"), kv_rows);
  }
}

// Files since 2025 have the two halves of kv_b, the key half transposed already; older ones have kv_b, whose rows are
// each head's keys and then its values.
Status Mapper::MapLatentUp() {
  const AttentionSpec& attention = block().attention;
  const bool key = required_->role == TensorRole::kLatentKeyUp;
  if (!Has("attn_kv_b.weight")) return Whole(LayerName(key ? "attn_k_b.weight" : "attn_v_b.weight"));
  const std::string name = LayerName("attn_kv_b.weight");
  const uint64_t rope_dim = config_.ropes[static_cast<size_t>(attention.rope)].rope_dim;
  const uint64_t key_rows = attention.head_dim - rope_dim;
  GgufPart part;
  LINNET_RETURN_IF_ERROR(Find(name, part.tensor));
  part.group_stride = key_rows + attention.value_dim;
  LINNET_RETURN_IF_ERROR(CheckShape(name, *part.tensor, attention.n_heads * part.group_stride, attention.kv_lora_rank));
  part.rows = key ? key_rows : attention.value_dim;
  part.first = key ? 0 : key_rows;
  source_.kind = key ? GgufSource::Kind::kTransposed : GgufSource::Kind::kRows;
  source_.parts.push_back(part);
  return Status::Ok();
}

// gate over up, from two tensors or one that is stacked already (Phi-3).
Status Mapper::MapFfn() {
  const FfnSpec& ffn = block().ffn;
  const bool bias = required_->rank == 1;
  const char* suffix = bias ? ".bias" : ".weight";
  const std::string gate = LayerName("ffn_gate") + suffix, up = LayerName("ffn_up") + suffix;
  if (required_->role == TensorRole::kFfnDown || required_->role == TensorRole::kFfnDownBias) {
    return Whole(LayerName("ffn_down") + suffix);
  }
  const GgufTensor* stacked = files_.FindTensor(up);
  const bool is_stacked = stacked != nullptr && stacked->dims[0] == uint64_t{2} * ffn.ffn_dim;
  if (!ffn.gated || (is_stacked && files_.FindTensor(gate) == nullptr)) return Whole(up);
  LINNET_RETURN_IF_ERROR(bias ? AddVector(gate, ffn.ffn_dim) : AddRows(gate, ffn.ffn_dim));
  return bias ? AddVector(up, ffn.ffn_dim) : AddRows(up, ffn.ffn_dim);
}

Status Mapper::MapExperts() {
  const FfnSpec& ffn = block().ffn;
  source_.kind = GgufSource::Kind::kRows;
  switch (required_->role) {
    case TensorRole::kRouter:
      return Whole(LayerName("ffn_gate_inp.weight"));
    case TensorRole::kRouterBias:
      return Whole(LayerName("ffn_gate_inp.bias"));
    case TensorRole::kRouterSelectionBias:
      return Whole(LayerName("exp_probs_b.bias"));
    case TensorRole::kSharedGate:
      return Whole(LayerName("ffn_gate_inp_shexp.weight"));
    case TensorRole::kSharedDown:
      return Whole(LayerName("ffn_down_shexp.weight"));
    case TensorRole::kSharedUp:
      if (!ffn.gated) return Whole(LayerName("ffn_up_shexp.weight"));
      LINNET_RETURN_IF_ERROR(AddRows(LayerName("ffn_gate_shexp.weight"), ffn.shared_ffn_dim));
      return AddRows(LayerName("ffn_up_shexp.weight"), ffn.shared_ffn_dim);
    case TensorRole::kExpertDown:
      return Has("ffn_down_exps.weight") ? Whole(LayerName("ffn_down_exps.weight")) : MapOneExpertEach(false);
    case TensorRole::kExpertDownBias:
      return AddVector(LayerName("ffn_down_exps.bias"), columns());
    case TensorRole::kExpertUpBias:
      if (!ffn.gated) return AddVector(LayerName("ffn_up_exps.bias"), columns());
      LINNET_RETURN_IF_ERROR(AddVector(LayerName("ffn_gate_exps.bias"), ffn.ffn_dim));
      return AddVector(LayerName("ffn_up_exps.bias"), ffn.ffn_dim);
    default:
      break;
  }
  LINNET_CHECK(required_->role == TensorRole::kExpertUp);
  if (Has("ffn_gate_up_exps.weight")) return Whole(LayerName("ffn_gate_up_exps.weight"));
  if (!Has("ffn_up_exps.weight")) return MapOneExpertEach(true);
  if (!ffn.gated) return Whole(LayerName("ffn_up_exps.weight"));
  LINNET_RETURN_IF_ERROR(AddRows(LayerName("ffn_gate_exps.weight"), ffn.ffn_dim));
  return AddRows(LayerName("ffn_up_exps.weight"), ffn.ffn_dim);
}

// Mixtral files of early 2024 have a tensor for each expert.
Status Mapper::MapOneExpertEach(bool up) {
  const FfnSpec& ffn = block().ffn;
  const uint64_t n_experts = groups();
  const std::string first = LayerName(up ? "ffn_up.0.weight" : "ffn_down.0.weight");
  if (files_.FindTensor(first) == nullptr) {  // the usual name is the one to ask for
    const GgufTensor* missing = nullptr;
    return Find(LayerName(up ? "ffn_up_exps.weight" : "ffn_down_exps.weight"), missing);
  }
  source_.kind = GgufSource::Kind::kPerGroup;
  source_.parts_per_group = up && ffn.gated ? 2 : 1;
  for (uint64_t expert = 0; expert < n_experts; ++expert) {
    for (uint32_t i = 0; i < source_.parts_per_group; ++i) {
      const char* stem = !up ? "ffn_down." : i + 1 < source_.parts_per_group ? "ffn_gate." : "ffn_up.";
      const std::string name = LayerName((stem + std::to_string(expert) + ".weight").c_str());
      GgufPart part;
      part.rows = up ? ffn.ffn_dim : config_.model_dim;
      LINNET_RETURN_IF_ERROR(Find(name, part.tensor));
      LINNET_RETURN_IF_ERROR(CheckShape(name, *part.tensor, part.rows, columns()));
      source_.parts.push_back(part);
    }
  }
  return Status::Ok();
}

Status Mapper::RefuseUnused(const std::vector<GgufSource>& sources) {
  std::vector<const GgufTensor*> used;
  for (const GgufSource& source : sources) {
    for (const GgufPart& part : source.parts) used.push_back(part.tensor);
  }
  std::sort(used.begin(), used.end());
  for (const GgufFile& file : files_.files()) {
    for (const GgufTensor& tensor : file.tensors()) {
      if (std::binary_search(used.begin(), used.end(), &tensor) || IsNotWeights(tensor.name)) continue;
      return Fail(diagnostic_, StatusCode::kUnsupported, "an unexpected GGUF tensor",
                  "%s: tensor \"%.*s\" %s has no place in a model of architecture %s", file.name().c_str(),
                  static_cast<int>(tensor.name.size()), tensor.name.data(), ShapeText(tensor).c_str(), arch_.name);
    }
  }
  return Status::Ok();
}

}  // namespace

std::string GgufLayerTensorName(uint32_t layer, const char* name) {
  return "blk." + std::to_string(layer) + "." + name;
}

bool GgufNormNames::shared() const { return std::strcmp(attention, ffn) == 0; }

GgufNormNames GgufNormNamesOf(const GgufArchitecture& architecture, const GgufSet& files, uint32_t layer) {
  GgufNormNames names = {architecture.attention_norm, architecture.ffn_norm};
  if (const char* instead = architecture.attention_norm_instead) {
    if (files.FindTensor(GgufLayerTensorName(layer, instead) + ".weight") != nullptr) names.attention = instead;
  }
  return names;
}

Result<std::vector<GgufSource>> MapGgufTensors(const GgufSet& files, const GgufArchitecture& architecture,
                                               const ModelConfig& config,
                                               const std::vector<TensorRequirement>& required, Diagnostic* diagnostic) {
  return Mapper(files, architecture, config, diagnostic).Run(required);
}

}  // namespace linnet::formats
