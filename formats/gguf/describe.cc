#include "formats/gguf/describe.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/gguf/dequantize.h"
#include "formats/gguf/metadata_reader.h"
#include "formats/gguf/tensor_map.h"

namespace linnet::formats {
namespace {

constexpr float kDefaultTheta = 10000.0f;
constexpr float kLatentNormEps = 1e-6f;  // transformers' classes have it whatever rms_norm_eps says
constexpr const char* kLayerNormEps = "attention.layer_norm_epsilon";
constexpr const char* kRmsNormEps = "attention.layer_norm_rms_epsilon";

class Describer {
 public:
  Describer(const GgufSet& files, const GgufArchitecture& architecture, Diagnostic* diagnostic)
      : files_(files), arch_(architecture), reader_(files, architecture.name, diagnostic), diagnostic_(diagnostic) {}

  Result<ModelConfig> Run() {
    LINNET_RETURN_IF_ERROR(ReadSizes());
    LINNET_RETURN_IF_ERROR(ReadEmbedding());
    LINNET_RETURN_IF_ERROR(ReadWindows());
    LINNET_RETURN_IF_ERROR(ReadAttention());
    if (arch_.has_rope) LINNET_RETURN_IF_ERROR(ReadRopes());
    LINNET_RETURN_IF_ERROR(ReadFfn());
    LINNET_RETURN_IF_ERROR(ReadScales());
    LINNET_RETURN_IF_ERROR(ReadParallel());
    for (uint32_t layer = 0; layer < config_.n_layers; ++layer) LINNET_RETURN_IF_ERROR(DescribeLayer(layer));
    LINNET_RETURN_IF_ERROR(reader_.RefuseUnread());
    const Status valid = ValidateModelConfig(config_);
    if (!valid.ok()) {
      return Fail(diagnostic_, valid.code(), valid.message(), "%s: %s: %s (%lld)", files_.name(), arch_.name,
                  valid.message(), static_cast<long long>(valid.value()));
    }
    return std::move(config_);
  }

 private:
  const GgufTensor* Global(const char* name) const { return files_.FindTensor(name); }
  const GgufTensor* OfLayer(uint32_t layer, const char* name) const {
    return files_.FindTensor(GgufLayerTensorName(layer, name));
  }

  Status ReadSizes();
  Status ReadEmbedding();
  Status ReadWindows();
  Status ReadAttention();
  Status ReadHeadDim();
  Status ReadLatent();
  Status ReadRopes();
  Status ReadRopeScaling(RopeSpec& rope);
  Status ReadYarn(RopeSpec& rope);
  Status ReadRopeFactors(RopeSpec& rope);
  Status ReadFactorTensor(const char* name, const GgufTensor* tensor, std::vector<float>& out);
  Status ReadFfn();
  Status ReadExperts();
  Status ReadScales();
  Status ReadParallel();
  Status DescribeLayer(uint32_t layer);
  void DescribeAttention(uint32_t layer, AttentionSpec& attention) const;
  void DescribeFfn(uint32_t layer, FfnSpec& ffn) const;

  const GgufSet& files_;
  const GgufArchitecture& arch_;
  MetadataReader reader_;
  Diagnostic* diagnostic_;
  ModelConfig config_;
  NormSpec norm_;            // kind and eps of every norm
  AttentionSpec attention_;  // what all layers share
  double score_scale_ = 0.0;
  FfnSpec ffn_;                                        // of dense layers
  FfnSpec experts_;                                    // of layers with a router
  std::vector<uint32_t> heads_, kv_heads_, ffn_dims_;  // for each layer
  std::vector<bool> windowed_;                         // for each layer
  uint32_t window_ = 0;
  bool parallel_ = false;
};

Status Describer::ReadSizes() {
  for (const char* key : {"block_count", "embedding_length", "context_length", "attention.head_count"}) {
    LINNET_RETURN_IF_ERROR(reader_.Require(key));
  }
  config_.family = arch_.name;
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("block_count", kMaxLayers, config_.n_layers));
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("embedding_length", kMaxDim, config_.model_dim));
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("context_length", kMaxContext, config_.context_length));
  const char* eps = arch_.norm == NormKind::kLayerNorm ? kLayerNormEps : kRmsNormEps;
  LINNET_RETURN_IF_ERROR(reader_.Require(eps));
  norm_.kind = arch_.norm;
  norm_.has_gain = true;
  return reader_.Number(eps, norm_.eps);
}

// The embedding, the final norm and the head, whose form their tensors say.
Status Describer::ReadEmbedding() {
  const GgufTensor* table = Global("token_embd.weight");
  if (table == nullptr) {
    return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF tensor is missing",
                "%s: tensor \"token_embd.weight\" is missing", files_.name());
  }
  if (table->rows() > kMaxVocab) {
    return Fail(diagnostic_, StatusCode::kInvalidModel, "the vocabulary is too large",
                "%s: tensor \"token_embd.weight\" has %llu rows, expected at most %u", files_.name(),
                static_cast<unsigned long long>(table->rows()), kMaxVocab);
  }
  config_.vocab_size = static_cast<uint32_t>(table->rows());
  if (arch_.scaled_embedding) config_.embedding_scale = std::sqrt(static_cast<float>(config_.model_dim));
  config_.positions = arch_.positions;
  if (const GgufTensor* positions = Global("position_embd.weight");
      positions != nullptr && arch_.positions == EmbeddingPositions::kLearned) {
    config_.position_rows = static_cast<uint32_t>(std::min<uint64_t>(positions->rows(), kMaxContext));
  }
  config_.final_norm = norm_;
  config_.final_norm.has_bias = Global("output_norm.bias") != nullptr;
  config_.tied_head = Global("output.weight") == nullptr;
  config_.head_bias = Global("output.bias") != nullptr;
  return Status::Ok();
}

Status Describer::ReadWindows() {
  const uint32_t n_layers = config_.n_layers;
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("attention.sliding_window", kMaxContext, window_));
  windowed_.resize(n_layers);
  for (uint32_t i = 0; i < n_layers; ++i) {
    windowed_[i] = arch_.window_period == 1 || i % arch_.window_period != arch_.window_period - 1;
  }
  LINNET_RETURN_IF_ERROR(reader_.LayerPattern("attention.sliding_window_pattern", n_layers, windowed_));
  if (window_ == 0) windowed_.assign(n_layers, false);
  return Status::Ok();
}

Status Describer::ReadAttention() {
  const uint32_t n_layers = config_.n_layers;
  LINNET_RETURN_IF_ERROR(reader_.PerLayer("attention.head_count", kMaxDim, n_layers, heads_));
  kv_heads_ = heads_;
  LINNET_RETURN_IF_ERROR(reader_.PerLayer("attention.head_count_kv", kMaxDim, n_layers, kv_heads_));
  bool causal = true;
  LINNET_RETURN_IF_ERROR(reader_.Bool("attention.causal", causal));
  if (!causal) return reader_.Refuse("attention.causal", StatusCode::kUnsupported, "expected true, found false");
  LINNET_RETURN_IF_ERROR(reader_.Number("attn_logit_softcapping", attention_.logit_soft_cap));
  LINNET_RETURN_IF_ERROR(arch_.latent ? ReadLatent() : ReadHeadDim());
  score_scale_ = 1.0 / std::sqrt(static_cast<double>(attention_.head_dim));
  if (n_layers == arch_.wide_scale_layers && !heads_.empty() && heads_[0] > 0) {
    score_scale_ = 1.0 / std::sqrt(static_cast<double>(config_.model_dim) / heads_[0]);
  }
  return reader_.Number("attention.scale", score_scale_);
}

Status Describer::ReadHeadDim() {
  if (!reader_.Has("attention.key_length")) {
    if (heads_.empty() || heads_[0] == 0 || config_.model_dim % heads_[0] != 0) {
      return reader_.Refuse("attention.head_count", StatusCode::kInvalidModel,
                            "expected a divisor of embedding_length where attention.key_length is absent");
    }
    attention_.head_dim = config_.model_dim / heads_[0];
  }
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("attention.key_length", kMaxDim, attention_.head_dim));
  attention_.value_dim = attention_.head_dim;
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("attention.value_length", kMaxDim, attention_.value_dim));
  if (attention_.value_dim == attention_.head_dim) return Status::Ok();
  return reader_.Refuse("attention.value_length", StatusCode::kUnsupported, "expected attention.key_length");
}

// Files since 2025 store MLA as the absorbed multi-query form, with the heads' own widths under *_mla.
Status Describer::ReadLatent() {
  attention_.kind = AttentionKind::kLatent;
  kv_heads_ = heads_;
  for (const char* key : {"attention.kv_lora_rank", "rope.dimension_count", "attention.key_length"}) {
    LINNET_RETURN_IF_ERROR(reader_.Require(key));
  }
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("attention.key_length", kMaxDim, attention_.head_dim));
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("attention.value_length", kMaxDim, attention_.value_dim));
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("attention.key_length_mla", kMaxDim, attention_.head_dim));
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("attention.value_length_mla", kMaxDim, attention_.value_dim));
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("attention.q_lora_rank", kMaxDim, attention_.q_lora_rank));
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("attention.kv_lora_rank", kMaxDim, attention_.kv_lora_rank));
  attention_.latent_norm = norm_;
  attention_.latent_norm.eps = kLatentNormEps;
  if (attention_.head_dim > 0) return Status::Ok();
  return reader_.Refuse("attention.key_length", StatusCode::kInvalidModel, "expected a number above 0");
}

Status Describer::ReadRopes() {
  RopeSpec rope;
  rope.layout = arch_.rope_layout;
  rope.truncate = arch_.yarn_truncate;
  rope.theta = static_cast<double>(kDefaultTheta);
  rope.rope_dim = attention_.head_dim;
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("rope.dimension_count", kMaxDim, rope.rope_dim));
  LINNET_RETURN_IF_ERROR(reader_.Number("rope.freq_base", rope.theta));
  if (arch_.permuted_qk && rope.rope_dim != attention_.head_dim) {
    return reader_.Refuse("rope.dimension_count", StatusCode::kUnsupported,
                          "expected the head's whole width in this architecture");
  }
  RopeSpec local = rope;
  LINNET_RETURN_IF_ERROR(ReadRopeScaling(rope));
  config_.ropes = {rope};
  if (arch_.local_rope == GgufLocalRope::kSame) return Status::Ok();
  if (arch_.local_rope == GgufLocalRope::kOwnTheta) {
    local.theta = static_cast<double>(kDefaultTheta);
    LINNET_RETURN_IF_ERROR(reader_.Number("rope.freq_base_swa", local.theta));
  }
  if (window_ > 0) config_.ropes.push_back(local);
  return Status::Ok();
}

Status Describer::ReadRopeScaling(RopeSpec& rope) {
  double factor = 0.0;  // 0: none given
  std::string_view type;
  LINNET_RETURN_IF_ERROR(reader_.Number("rope.scale_linear", factor));  // files of 2023
  LINNET_RETURN_IF_ERROR(reader_.Number("rope.scaling.factor", factor));
  LINNET_RETURN_IF_ERROR(reader_.Text("rope.scaling.type", type));
  LINNET_RETURN_IF_ERROR(reader_.Number("rope.scaling.attn_factor", rope.cos_sin_scale));
  rope.original_context_length = config_.context_length;
  LINNET_RETURN_IF_ERROR(
      reader_.Unsigned("rope.scaling.original_context_length", kMaxContext, rope.original_context_length));
  if (factor != 0.0) rope.factor = factor;
  if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    LINNET_RETURN_IF_ERROR(ReadYarn(rope));
  } else if (type.empty() || type == "linear") {
    rope.scaling = rope.factor == 1.0 ? RopeScaling::kNone : RopeScaling::kLinear;
  } else if (type != "none" && type != "longrope") {
    return Fail(diagnostic_, StatusCode::kUnsupported, "a rope scaling type is not supported",
                "%s: %s.rope.scaling.type \"%.*s\" is not supported", files_.name(), arch_.name,
                static_cast<int>(type.size()), type.data());
  }
  LINNET_RETURN_IF_ERROR(ReadRopeFactors(rope));
  if (type == "longrope" && rope.scaling != RopeScaling::kLongRope) {
    return reader_.Refuse("rope.scaling.type", StatusCode::kInvalidModel,
                          "\"longrope\" without tensors rope_factors_long.weight and rope_factors_short.weight");
  }
  const bool by_length = rope.scaling == RopeScaling::kYarn || rope.scaling == RopeScaling::kLongRope;
  if (!by_length) rope.original_context_length = 0;
  if (rope.scaling == RopeScaling::kNone || rope.scaling == RopeScaling::kLongRope) rope.factor = 1.0;
  return Status::Ok();
}

Status Describer::ReadYarn(RopeSpec& rope) {
  double magnitude = 1.0 + 0.1 * std::log(rope.factor), extrapolation = 1.0, latent_log = 0.0;
  magnitude *= static_cast<double>(rope.cos_sin_scale);
  LINNET_RETURN_IF_ERROR(reader_.Number("rope.scaling.yarn_attn_factor", magnitude));
  LINNET_RETURN_IF_ERROR(reader_.Number("rope.scaling.yarn_beta_fast", rope.beta_fast));
  LINNET_RETURN_IF_ERROR(reader_.Number("rope.scaling.yarn_beta_slow", rope.beta_slow));
  LINNET_RETURN_IF_ERROR(reader_.Number("rope.scaling.yarn_ext_factor", extrapolation));
  if (extrapolation != 1.0) {
    return reader_.Refuse("rope.scaling.yarn_ext_factor", StatusCode::kUnsupported, "expected 1");
  }
  if (arch_.latent) {
    // DeepSeek: the magnitude goes into the scores, squared, and not into the rotation. The key holds
    // 0.1 * mscale_all_dim, and mscale equals mscale_all_dim in every published model.
    LINNET_RETURN_IF_ERROR(reader_.Number("rope.scaling.yarn_log_multiplier", latent_log));
    if (latent_log != 0.0) {
      const double score = 1.0 + latent_log * std::log(rope.factor);
      score_scale_ *= score * score;
      magnitude = 1.0;
    }
  }
  rope.cos_sin_scale = static_cast<float>(magnitude);
  return Status::Ok();
}

// Factors that divide each pair's frequency, stored as tensors: LongRoPE's two lists, or Llama 3's, which are the same
// at every length.
Status Describer::ReadRopeFactors(RopeSpec& rope) {
  const GgufTensor* all = Global("rope_freqs.weight");
  const GgufTensor* long_factors = Global("rope_factors_long.weight");
  const GgufTensor* short_factors = Global("rope_factors_short.weight");
  if (all == nullptr && long_factors == nullptr && short_factors == nullptr) return Status::Ok();
  if (rope.scaling != RopeScaling::kNone || (all != nullptr && (long_factors != nullptr || short_factors != nullptr))) {
    return Fail(diagnostic_, StatusCode::kUnsupported, "two rope scalings at once",
                "%s: rope factors in tensors beside another rope scaling are not supported", files_.name());
  }
  const size_t count = rope.rope_dim / 2;
  rope.scaling = RopeScaling::kLongRope;
  rope.long_factors.resize(count);
  rope.short_factors.resize(count);
  if (all != nullptr) {
    LINNET_RETURN_IF_ERROR(ReadFactorTensor("rope_freqs.weight", all, rope.short_factors));
    rope.long_factors = rope.short_factors;
    return Status::Ok();
  }
  LINNET_RETURN_IF_ERROR(ReadFactorTensor("rope_factors_long.weight", long_factors, rope.long_factors));
  return ReadFactorTensor("rope_factors_short.weight", short_factors, rope.short_factors);
}

Status Describer::ReadFactorTensor(const char* name, const GgufTensor* tensor, std::vector<float>& out) {
  if (tensor == nullptr || tensor->type != kGgmlF32 || tensor->rank != 1 || tensor->columns() != out.size()) {
    return Fail(diagnostic_, StatusCode::kInvalidModel, "a rope factor tensor is missing or has another shape",
                "%s: tensor \"%s\": expected %zu values of F32", files_.name(), name, out.size());
  }
  FindGgmlType(kGgmlF32)->dequantize(tensor->data.data(), out.size(), out.data());
  return Status::Ok();
}

Status Describer::ReadFfn() {
  ffn_.activation = arch_.activation;
  ffn_.gated = arch_.gated;
  ffn_.clamp = arch_.clamp;
  ffn_dims_.assign(config_.n_layers, 0);
  LINNET_RETURN_IF_ERROR(reader_.PerLayer("feed_forward_length", kMaxDim, config_.n_layers, ffn_dims_));
  return ReadExperts();
}

Status Describer::ReadExperts() {
  experts_ = ffn_;
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("expert_count", kMaxExperts, experts_.n_experts));
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("expert_used_count", kMaxExperts, experts_.top_k));
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("expert_feed_forward_length", kMaxDim, experts_.ffn_dim));
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("expert_group_count", kMaxExperts, experts_.n_groups));
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("expert_group_used_count", kMaxExperts, experts_.top_groups));
  LINNET_RETURN_IF_ERROR(reader_.Number("expert_weights_scale", experts_.routed_scale));
  experts_.normalize_top_k = arch_.normalize_top_k;
  LINNET_RETURN_IF_ERROR(reader_.Bool("expert_weights_norm", experts_.normalize_top_k));
  if (experts_.routed_scale == 0.0f) experts_.routed_scale = 1.0f;  // how files say that there is none
  if (experts_.n_groups == 0) experts_.n_groups = 1;
  if (experts_.top_groups == 0) experts_.top_groups = 1;
  experts_.router_score = arch_.router_score;
  uint32_t gating = 0;
  LINNET_RETURN_IF_ERROR(reader_.Unsigned("expert_gating_func", kMaxExperts, gating));
  switch (gating) {
    case 0:
      break;  // the architecture's own
    case 1:
      experts_.router_score = RouterScore::kSoftmax;
      break;
    case 2:
      experts_.router_score = RouterScore::kSigmoid;
      break;
    case 3:
      experts_.router_score = RouterScore::kSoftmaxOfTopK;
      break;
    default:
      return reader_.Refuse("expert_gating_func", StatusCode::kUnsupported,
                            "expected 1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen)");
  }
  // DeepSeek-V3 ranks a group by its two best experts, V2 (softmax) by its best.
  experts_.group_score = experts_.router_score == RouterScore::kSigmoid ? GroupScore::kSumOfTopTwo : GroupScore::kMax;
  return Status::Ok();
}

Status Describer::ReadScales() {
  LINNET_RETURN_IF_ERROR(reader_.Number("final_logit_softcapping", config_.logit_soft_cap));
  if (!arch_.granite_scales) return Status::Ok();
  LINNET_RETURN_IF_ERROR(reader_.Number("embedding_scale", config_.embedding_scale));
  double divisor = 1.0;
  LINNET_RETURN_IF_ERROR(reader_.Number("logit_scale", divisor));
  if (divisor == 0.0) return reader_.Refuse("logit_scale", StatusCode::kInvalidModel, "expected a number other than 0");
  config_.logit_scale = static_cast<float>(1.0 / divisor);
  return Status::Ok();
}

Status Describer::ReadParallel() {
  bool by_key = true;
  if (arch_.parallel == GgufParallel::kByKey || arch_.parallel == GgufParallel::kWithoutFfnNorm) {
    LINNET_RETURN_IF_ERROR(reader_.Bool("use_parallel_residual", by_key));
  }
  parallel_ = arch_.parallel == GgufParallel::kYes || (arch_.parallel == GgufParallel::kByKey && by_key);
  return Status::Ok();
}

Status Describer::DescribeLayer(uint32_t layer) {
  BlockSpec block;
  block.norm = norm_;
  block.placement = arch_.placement;
  const GgufNormNames names = GgufNormNamesOf(arch_, files_, layer);
  block.norm.has_bias = OfLayer(layer, (std::string(names.attention) + ".bias").c_str()) != nullptr;
  const bool has_ffn_norm = OfLayer(layer, (std::string(names.ffn) + ".weight").c_str()) != nullptr;
  block.parallel = parallel_ || (arch_.parallel == GgufParallel::kWithoutFfnNorm && !has_ffn_norm);
  block.parallel_shared_norm = block.parallel && (!has_ffn_norm || names.shared());
  if (arch_.granite_scales) LINNET_RETURN_IF_ERROR(reader_.Number("residual_scale", block.branch_scale));
  block.attention = attention_;
  DescribeAttention(layer, block.attention);
  DescribeFfn(layer, block.ffn);
  config_.layer_block.push_back(InternBlock(config_, block));
  return Status::Ok();
}

void Describer::DescribeAttention(uint32_t layer, AttentionSpec& attention) const {
  const auto has = [&](const char* name) { return OfLayer(layer, name) != nullptr; };
  attention.n_heads = heads_[layer];
  attention.n_kv_heads = kv_heads_[layer];
  attention.score_scale = static_cast<float>(score_scale_);
  attention.window = windowed_[layer] ? window_ : 0;
  attention.sinks = has("attn_sinks.weight");
  attention.out_bias = has("attn_output.bias");
  attention.qkv_bias = has("attn_qkv.bias") || has("attn_q.bias") || has("attn_k.bias") || has("attn_v.bias") ||
                       has("attn_q_a.bias") || has("attn_kv_a_mqa.bias");
  if (arch_.qk_norm != QkNorm::kNone && has("attn_q_norm.weight")) {
    attention.qk_norm = arch_.qk_norm;
    attention.qk_norm_spec = norm_;
    attention.qk_norm_spec.has_bias = has("attn_q_norm.bias");
  }
  const bool rotated = arch_.has_rope && (arch_.unrotated_period == 0 || (layer + 1) % arch_.unrotated_period != 0);
  if (rotated) attention.rope = windowed_[layer] && config_.ropes.size() > 1 ? 1 : 0;
}

void Describer::DescribeFfn(uint32_t layer, FfnSpec& ffn) const {
  const auto has = [&](const char* name) { return OfLayer(layer, name) != nullptr; };
  if (experts_.n_experts == 0 || !has("ffn_gate_inp.weight")) {
    ffn = ffn_;
    ffn.ffn_dim = ffn_dims_[layer];
    ffn.up_bias = has("ffn_up.bias") || has("ffn_gate.bias");
    ffn.down_bias = has("ffn_down.bias");
    return;
  }
  ffn = experts_;
  if (ffn.ffn_dim == 0) ffn.ffn_dim = ffn_dims_[layer];
  ffn.up_bias = has("ffn_up_exps.bias") || has("ffn_gate_exps.bias");
  ffn.down_bias = has("ffn_down_exps.bias");
  ffn.router_bias = has("ffn_gate_inp.bias");
  ffn.selection_bias = has("exp_probs_b.bias");
  if (const GgufTensor* shared = OfLayer(layer, "ffn_up_shexp.weight")) {
    ffn.shared_ffn_dim = static_cast<uint32_t>(std::min<uint64_t>(shared->rows(), uint64_t{kMaxDim} + 1));
    ffn.shared_gate = has("ffn_gate_inp_shexp.weight");
  }
}

}  // namespace

Result<ModelConfig> DescribeGgufModel(const GgufSet& files, const GgufArchitecture& architecture,
                                      Diagnostic* diagnostic) {
  return Describer(files, architecture, diagnostic).Run();
}

}  // namespace linnet::formats
