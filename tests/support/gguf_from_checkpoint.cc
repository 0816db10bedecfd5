#include "tests/support/gguf_from_checkpoint.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "core/rope_frequencies.h"

namespace linnet::test {
namespace {

using formats::Checkpoint;

class Exporter {
 public:
  Exporter(const Checkpoint& source, const std::string& architecture, const GgufVariant& variant)
      : source_(source), config_(source.info().config), arch_(architecture), variant_(variant) {}

  std::vector<std::byte> Run() {
    writer_.Set("general.architecture", std::string_view(arch_));
    writer_.Set("general.type", "model");
    WriteSizes();
    WriteRope();
    WriteExperts();
    WriteScales();
    for (const TensorRequirement& tensor : RequiredTensors(config_)) WriteTensor(tensor);
    return writer_.Finish();
  }

 private:
  bool Is(const char* name) const { return arch_ == name; }
  bool permuted() const { return Is("llama") || Is("smollm3") || Is("granite"); }
  const BlockSpec& first() const { return config_.layer(0); }
  template <typename T>
  void Set(const char* key, T value) {
    writer_.Set(arch_ + "." + key, value);
  }

  void WriteSizes();
  void WriteWindows();
  void WriteRope();
  void WriteRopeScaling(const RopeSpec& rope);
  void WriteExperts();
  void WriteScales();

  std::vector<float> Read(const TensorRequirement& tensor) const;
  void WriteTensor(const TensorRequirement& tensor);
  void WriteNorm(const TensorRequirement& tensor, std::vector<float> values);
  void WriteQkv(const TensorRequirement& tensor, const std::vector<float>& values);
  void WriteLatent(const TensorRequirement& tensor, const std::vector<float>& values);
  void WriteUp(const TensorRequirement& tensor, const std::vector<float>& values);
  void WriteExpertUp(const TensorRequirement& tensor, const std::vector<float>& values);
  void WriteExpertDown(const TensorRequirement& tensor, const std::vector<float>& values);
  void Add(const TensorRequirement& tensor, const std::string& name, std::vector<uint64_t> dims,
           std::span<const float> values);
  // Values of rows [begin, begin + count) of every group of `groups`.
  static std::vector<float> Slice(const std::vector<float>& values, uint64_t groups, uint64_t rows, uint64_t columns,
                                  uint64_t begin, uint64_t count);
  static std::vector<float> Permute(const std::vector<float>& values, uint64_t heads, uint64_t columns);

  const Checkpoint& source_;
  const ModelConfig& config_;
  std::string arch_;
  GgufVariant variant_;
  GgufWriter writer_;
  std::vector<float> key_up_;  // kLatentKeyUp, until its other half comes
};

void Exporter::WriteSizes() {
  const AttentionSpec& attention = first().attention;
  Set("block_count", config_.n_layers);
  Set("context_length", config_.context_length);
  Set("embedding_length", config_.model_dim);
  Set("vocab_size", config_.vocab_size);
  uint32_t ffn_dim = first().ffn.ffn_dim;
  for (uint32_t i = 0; i < config_.n_layers; ++i) {
    if (config_.layer(i).ffn.n_experts == 0) ffn_dim = config_.layer(i).ffn.ffn_dim;
  }
  Set("feed_forward_length", ffn_dim);
  Set("attention.head_count", attention.n_heads);
  const NormSpec& norm = first().norm;
  Set(norm.kind == NormKind::kLayerNorm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
      norm.eps);
  if (attention.kind == AttentionKind::kLatent) {
    const uint32_t rope_dim = config_.ropes[static_cast<size_t>(attention.rope)].rope_dim;
    Set("attention.head_count_kv", uint32_t{1});
    Set("attention.key_length", variant_.absorbed_latent ? attention.kv_lora_rank + rope_dim : attention.head_dim);
    Set("attention.value_length", variant_.absorbed_latent ? attention.kv_lora_rank : attention.value_dim);
    if (variant_.absorbed_latent) Set("attention.key_length_mla", attention.head_dim);
    if (variant_.absorbed_latent) Set("attention.value_length_mla", attention.value_dim);
    if (attention.q_lora_rank > 0) Set("attention.q_lora_rank", attention.q_lora_rank);
    Set("attention.kv_lora_rank", attention.kv_lora_rank);
  } else {
    Set("attention.head_count_kv", attention.n_kv_heads);
    if (attention.head_dim * attention.n_heads != config_.model_dim) {
      Set("attention.key_length", attention.head_dim);
      Set("attention.value_length", attention.value_dim);
    }
  }
  if (Is("gptneox") || Is("stablelm")) Set("use_parallel_residual", Is("stablelm") || first().parallel);
  if (Is("falcon")) writer_.Set("falcon.tensor_data_layout", "jploski");
  WriteWindows();
}

void Exporter::WriteWindows() {
  uint32_t window = 0;
  std::vector<bool> pattern;
  for (uint32_t i = 0; i < config_.n_layers; ++i) {
    window = std::max(window, config_.layer(i).attention.window);
    pattern.push_back(config_.layer(i).attention.window > 0);
  }
  if (window == 0) return;
  Set("attention.sliding_window", window);
  // Files of these architectures have no pattern where it is the published models': the reader knows it.
  const uint32_t period = Is("gemma3") ? 6 : Is("gemma2") || Is("gpt-oss") ? 2 : 0;
  bool known = period > 0;
  for (uint32_t i = 0; known && i < config_.n_layers; ++i) known = pattern[i] == (i % period != period - 1);
  if (!known) Set("attention.sliding_window_pattern", pattern);
}

void Exporter::WriteRope() {
  const RopeSpec* full = nullptr;
  const RopeSpec* local = nullptr;
  for (uint32_t i = 0; i < config_.n_layers; ++i) {
    const AttentionSpec& attention = config_.layer(i).attention;
    if (attention.rope < 0) continue;
    const RopeSpec& rope = config_.ropes[static_cast<size_t>(attention.rope)];
    (attention.window > 0 ? local : full) = &rope;
  }
  if (full == nullptr) full = local;
  if (full == nullptr) return;
  Set("rope.dimension_count", full->rope_dim);
  Set("rope.freq_base", static_cast<float>(full->theta));
  if (Is("gemma3") && local != nullptr) Set("rope.freq_base_swa", static_cast<float>(local->theta));
  WriteRopeScaling(*full);
}

void Exporter::WriteRopeScaling(const RopeSpec& rope) {
  switch (rope.scaling) {
    case RopeScaling::kLinear:
      Set("rope.scaling.type", "linear");
      Set("rope.scaling.factor", static_cast<float>(rope.factor));
      break;
    case RopeScaling::kYarn:
      Set("rope.scaling.type", "yarn");
      Set("rope.scaling.factor", static_cast<float>(rope.factor));
      Set("rope.scaling.original_context_length", rope.original_context_length);
      Set("rope.scaling.yarn_beta_fast", static_cast<float>(rope.beta_fast));
      Set("rope.scaling.yarn_beta_slow", static_cast<float>(rope.beta_slow));
      if (Is("deepseek2")) {
        const AttentionSpec& attention = first().attention;
        const double square = attention.score_scale * std::sqrt(static_cast<double>(attention.head_dim));
        Set("rope.scaling.yarn_log_multiplier", static_cast<float>((std::sqrt(square) - 1.0) / std::log(rope.factor)));
      } else {
        Set("rope.scaling.yarn_attn_factor", rope.cos_sin_scale);
      }
      break;
    case RopeScaling::kLlama3: {
      RopeSpec plain = rope;
      plain.scaling = RopeScaling::kNone;
      std::vector<float> factors(rope.rope_dim / 2), scaled(factors.size());
      ComputeRopeFrequencies(plain, 1, factors);
      ComputeRopeFrequencies(rope, 1, scaled);
      for (size_t i = 0; i < factors.size(); ++i) factors[i] /= scaled[i];
      writer_.AddF32("rope_freqs.weight", {factors.size()}, factors);
      break;
    }
    case RopeScaling::kLongRope:
      Set("rope.scaling.original_context_length", rope.original_context_length);
      Set("rope.scaling.attn_factor", rope.cos_sin_scale);
      writer_.AddF32("rope_factors_long.weight", {rope.long_factors.size()}, rope.long_factors);
      writer_.AddF32("rope_factors_short.weight", {rope.short_factors.size()}, rope.short_factors);
      break;
    default:
      break;
  }
}

void Exporter::WriteExperts() {
  const FfnSpec& ffn = config_.layer(config_.n_layers - 1).ffn;
  if (ffn.n_experts == 0) return;
  Set("expert_count", ffn.n_experts);
  Set("expert_used_count", ffn.top_k);
  if (!Is("llama")) Set("expert_feed_forward_length", ffn.ffn_dim);
  if (Is("qwen2moe")) Set("expert_shared_feed_forward_length", ffn.shared_ffn_dim);
  if (!Is("deepseek2")) return;
  uint32_t dense = 0;
  while (config_.layer(dense).ffn.n_experts == 0) ++dense;
  Set("leading_dense_block_count", dense);
  Set("expert_shared_count", ffn.shared_ffn_dim / ffn.ffn_dim);
  Set("expert_weights_scale", ffn.routed_scale);
  if (ffn.normalize_top_k) Set("expert_weights_norm", true);
  Set("expert_gating_func", uint32_t{ffn.router_score == RouterScore::kSigmoid ? 2u : 1u});
  Set("expert_group_count", ffn.n_groups);
  Set("expert_group_used_count", ffn.top_groups);
}

void Exporter::WriteScales() {
  const AttentionSpec& attention = first().attention;
  if (attention.logit_soft_cap > 0) Set("attn_logit_softcapping", attention.logit_soft_cap);
  if (config_.logit_soft_cap > 0) Set("final_logit_softcapping", config_.logit_soft_cap);
  const float plain = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attention.head_dim)));
  if (!Is("deepseek2") && attention.score_scale != plain) Set("attention.scale", attention.score_scale);
  if (!Is("granite")) return;
  Set("embedding_scale", config_.embedding_scale);
  Set("residual_scale", first().branch_scale);
  Set("logit_scale", 1.0f / config_.logit_scale);
}

std::vector<float> Exporter::Read(const TensorRequirement& tensor) const {
  const uint64_t groups = tensor.rank == 3 ? tensor.dims[0] : 1;
  const uint64_t rows = tensor.rank == 1 ? 1 : tensor.dims[tensor.rank - 2];
  const uint64_t size = rows * tensor.dims[tensor.rank - 1];
  std::vector<float> values(groups * size);
  for (uint64_t group = 0; group < groups; ++group) {
    Diagnostic diagnostic;
    const Status status =
        source_.ReadRows(tensor, group, 0, rows, std::span(values).subspan(group * size, size), &diagnostic);
    INFO(std::string(diagnostic.text()));
    REQUIRE(status.ok());
  }
  return values;
}

void Exporter::Add(const TensorRequirement& tensor, const std::string& name, std::vector<uint64_t> dims,
                   std::span<const float> values) {
  const std::string prefix = tensor.layer < 0 ? "" : "blk." + std::to_string(tensor.layer) + ".";
  writer_.AddF32(prefix + name, std::move(dims), values);
}

std::vector<float> Exporter::Slice(const std::vector<float>& values, uint64_t groups, uint64_t rows, uint64_t columns,
                                   uint64_t begin, uint64_t count) {
  std::vector<float> out;
  for (uint64_t group = 0; group < groups; ++group) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>((group * rows + begin) * columns);
    out.insert(out.end(), at, at + static_cast<std::ptrdiff_t>(count * columns));
  }
  return out;
}

// What the converter does to q and k: of every head, rows i and i + half become neighbours.
std::vector<float> Exporter::Permute(const std::vector<float>& values, uint64_t heads, uint64_t columns) {
  std::vector<float> out;
  const uint64_t head_rows = values.size() / columns / heads;
  for (uint64_t head = 0; head < heads; ++head) {
    for (uint64_t i = 0; i < head_rows; ++i) {
      const uint64_t row = head * head_rows + (i % 2) * (head_rows / 2) + i / 2;
      const auto at = values.begin() + static_cast<std::ptrdiff_t>(row * columns);
      out.insert(out.end(), at, at + static_cast<std::ptrdiff_t>(columns));
    }
  }
  return out;
}

void Exporter::WriteNorm(const TensorRequirement& tensor, std::vector<float> values) {
  std::string attention = "attn_norm", ffn = "ffn_norm";
  if (Is("olmo2")) attention = "post_attention_norm", ffn = "post_ffw_norm";
  if (Is("gpt-oss")) ffn = "post_attention_norm";
  if (Is("falcon") && !first().parallel_shared_norm) attention = "attn_norm_2", ffn = "attn_norm";
  std::string name;
  switch (tensor.role) {
    case TensorRole::kEmbeddingNormGain:
      name = "token_embd_norm.weight";
      break;
    case TensorRole::kEmbeddingNormBias:
      name = "token_embd_norm.bias";
      break;
    case TensorRole::kFinalNormGain:
      name = "output_norm.weight";
      break;
    case TensorRole::kFinalNormBias:
      name = "output_norm.bias";
      break;
    case TensorRole::kAttentionNormGain:
      name = attention + ".weight";
      break;
    case TensorRole::kAttentionNormBias:
      name = attention + ".bias";
      break;
    case TensorRole::kAttentionPostNormGain:
      name = "post_attention_norm.weight";
      break;
    case TensorRole::kFfnNormGain:
      name = ffn + ".weight";
      break;
    case TensorRole::kFfnNormBias:
      name = ffn + ".bias";
      break;
    case TensorRole::kFfnPostNormGain:
      name = "post_ffw_norm.weight";
      break;
    case TensorRole::kQNormGain:
      name = "attn_q_norm.weight";
      break;
    case TensorRole::kKNormGain:
      name = "attn_k_norm.weight";
      break;
    case TensorRole::kLatentQNormGain:
      name = "attn_q_a_norm.weight";
      break;
    default:
      name = "attn_kv_a_norm.weight";
      break;
  }
  if (first().norm.gain_plus_one) {
    for (float& value : values) value += 1.0f;
  }
  std::vector<uint64_t> dims(tensor.dims.begin(), tensor.dims.begin() + tensor.rank);
  Add(tensor, name, dims, values);
}

void Exporter::WriteQkv(const TensorRequirement& tensor, const std::vector<float>& values) {
  const AttentionSpec& attention = config_.layer(static_cast<uint32_t>(tensor.layer)).attention;
  const bool bias = tensor.rank == 1;
  const std::string suffix = bias ? ".bias" : ".weight";
  const uint64_t columns = bias ? 1 : tensor.dims[1], rows = tensor.dims[0];
  const auto dims = [&](uint64_t n) { return bias ? std::vector<uint64_t>{n} : std::vector<uint64_t>{n, columns}; };
  if (Is("gpt2") || Is("gptneox") || Is("falcon") || Is("phi3")) {
    return Add(tensor, "attn_qkv" + suffix, dims(rows), values);
  }
  const uint64_t q = uint64_t{attention.n_heads} * attention.head_dim;
  const uint64_t k = uint64_t{attention.n_kv_heads} * attention.head_dim;
  std::vector<float> q_rows = Slice(values, 1, rows, columns, 0, q), k_rows = Slice(values, 1, rows, columns, q, k);
  if (permuted()) {
    q_rows = Permute(q_rows, attention.n_heads, columns);
    k_rows = Permute(k_rows, attention.n_kv_heads, columns);
  }
  Add(tensor, "attn_q" + suffix, dims(q), q_rows);
  Add(tensor, "attn_k" + suffix, dims(k), k_rows);
  Add(tensor, "attn_v" + suffix, dims(rows - q - k), Slice(values, 1, rows, columns, q + k, rows - q - k));
}

void Exporter::WriteLatent(const TensorRequirement& tensor, const std::vector<float>& values) {
  const AttentionSpec& attention = config_.layer(static_cast<uint32_t>(tensor.layer)).attention;
  const uint64_t heads = attention.n_heads, latent = attention.kv_lora_rank;
  const uint64_t value_dim = attention.value_dim;
  if (tensor.role == TensorRole::kLatentIn) {
    const uint64_t rows = tensor.dims[0], columns = tensor.dims[1];
    const bool direct = attention.q_lora_rank == 0;
    const uint64_t q = direct ? heads * attention.head_dim : attention.q_lora_rank;
    Add(tensor, direct ? "attn_q.weight" : "attn_q_a.weight", {q, columns}, Slice(values, 1, rows, columns, 0, q));
    return Add(tensor, "attn_kv_a_mqa.weight", {rows - q, columns}, Slice(values, 1, rows, columns, q, rows - q));
  }
  if (variant_.absorbed_latent) {
    const bool key = tensor.role == TensorRole::kLatentKeyUp;
    return Add(tensor, key ? "attn_k_b.weight" : "attn_v_b.weight", {tensor.dims[0], tensor.dims[1], tensor.dims[2]},
               values);
  }
  if (tensor.role == TensorRole::kLatentKeyUp) {
    key_up_ = values;
    return;
  }
  const uint64_t key_dim = key_up_.size() / heads / latent;
  std::vector<float> kv_b;
  for (uint64_t head = 0; head < heads; ++head) {
    for (uint64_t i = 0; i < key_dim; ++i) {
      for (uint64_t j = 0; j < latent; ++j) kv_b.push_back(key_up_[(head * latent + j) * key_dim + i]);
    }
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(head * value_dim * latent);
    kv_b.insert(kv_b.end(), at, at + static_cast<std::ptrdiff_t>(value_dim * latent));
  }
  Add(tensor, "attn_kv_b.weight", {heads * (key_dim + value_dim), latent}, kv_b);
}

void Exporter::WriteUp(const TensorRequirement& tensor, const std::vector<float>& values) {
  const bool bias = tensor.rank == 1, shared = tensor.role == TensorRole::kSharedUp;
  const uint64_t columns = bias ? 1 : tensor.dims[1], rows = tensor.dims[0];
  const std::string suffix = std::string(shared ? "_shexp" : "") + (bias ? ".bias" : ".weight");
  const auto dims = [&](uint64_t n) { return bias ? std::vector<uint64_t>{n} : std::vector<uint64_t>{n, columns}; };
  if (!first().ffn.gated || Is("phi3")) return Add(tensor, "ffn_up" + suffix, dims(rows), values);
  Add(tensor, "ffn_gate" + suffix, dims(rows / 2), Slice(values, 1, rows, columns, 0, rows / 2));
  Add(tensor, "ffn_up" + suffix, dims(rows / 2), Slice(values, 1, rows, columns, rows / 2, rows / 2));
}

void Exporter::WriteExpertUp(const TensorRequirement& tensor, const std::vector<float>& values) {
  const bool bias = tensor.role == TensorRole::kExpertUpBias;
  const uint64_t experts = tensor.dims[0], rows = tensor.dims[1], half = rows / 2, columns = bias ? 1 : tensor.dims[2];
  const auto part = [&](const char* name, uint64_t begin) {
    const std::vector<float> slice = Slice(values, experts, rows, columns, begin, half);
    if (bias) return Add(tensor, std::string(name) + "_exps.bias", {experts, half}, slice);
    if (variant_.one_tensor_experts) {
      return Add(tensor, std::string(name) + "_exps.weight", {experts, half, columns}, slice);
    }
    for (uint64_t expert = 0; expert < experts; ++expert) {
      Add(tensor, std::string(name) + "." + std::to_string(expert) + ".weight", {half, columns},
          std::span(slice).subspan(expert * half * columns, half * columns));
    }
  };
  part("ffn_gate", 0);
  part("ffn_up", half);
}

void Exporter::WriteExpertDown(const TensorRequirement& tensor, const std::vector<float>& values) {
  const uint64_t rows = tensor.dims[1], columns = tensor.dims[2];
  if (variant_.one_tensor_experts) return Add(tensor, "ffn_down_exps.weight", {tensor.dims[0], rows, columns}, values);
  for (uint64_t expert = 0; expert < tensor.dims[0]; ++expert) {
    Add(tensor, "ffn_down." + std::to_string(expert) + ".weight", {rows, columns},
        std::span(values).subspan(expert * rows * columns, rows * columns));
  }
}

void Exporter::WriteTensor(const TensorRequirement& tensor) {
  const std::vector<float> values = Read(tensor);
  const std::vector<uint64_t> dims(tensor.dims.begin(), tensor.dims.begin() + tensor.rank);
  switch (tensor.role) {
    case TensorRole::kTokenEmbedding:
      return Add(tensor, "token_embd.weight", dims, values);
    case TensorRole::kPositionEmbedding:
      return Add(tensor, "position_embd.weight", dims, values);
    case TensorRole::kHead:
      return Add(tensor, "output.weight", dims, values);
    case TensorRole::kHeadBias:
      return Add(tensor, "output.bias", dims, values);
    case TensorRole::kQkv:
    case TensorRole::kQkvBias:
      return WriteQkv(tensor, values);
    case TensorRole::kAttentionOut:
      return Add(tensor, "attn_output.weight", dims, values);
    case TensorRole::kAttentionOutBias:
      return Add(tensor, "attn_output.bias", dims, values);
    case TensorRole::kSinks:
      return Add(tensor, "attn_sinks.weight", dims, values);
    case TensorRole::kLatentIn:
    case TensorRole::kLatentKeyUp:
    case TensorRole::kLatentValueUp:
      return WriteLatent(tensor, values);
    case TensorRole::kLatentQ:
      return Add(tensor, "attn_q_b.weight", dims, values);
    case TensorRole::kFfnUp:
    case TensorRole::kFfnUpBias:
    case TensorRole::kSharedUp:
      return WriteUp(tensor, values);
    case TensorRole::kFfnDown:
      return Add(tensor, "ffn_down.weight", dims, values);
    case TensorRole::kFfnDownBias:
      return Add(tensor, "ffn_down.bias", dims, values);
    case TensorRole::kRouter:
      return Add(tensor, "ffn_gate_inp.weight", dims, values);
    case TensorRole::kRouterBias:
      return Add(tensor, "ffn_gate_inp.bias", dims, values);
    case TensorRole::kRouterSelectionBias:
      return Add(tensor, "exp_probs_b.bias", dims, values);
    case TensorRole::kExpertUp:
    case TensorRole::kExpertUpBias:
      return WriteExpertUp(tensor, values);
    case TensorRole::kExpertDown:
      return WriteExpertDown(tensor, values);
    case TensorRole::kExpertDownBias:
      return Add(tensor, "ffn_down_exps.bias", dims, values);
    case TensorRole::kSharedDown:
      return Add(tensor, "ffn_down_shexp.weight", dims, values);
    case TensorRole::kSharedGate:
      return Add(tensor, "ffn_gate_inp_shexp.weight", {tensor.dims[1]}, values);
    default:
      return WriteNorm(tensor, values);
  }
}

}  // namespace

std::vector<std::byte> GgufFromCheckpoint(const Checkpoint& source, const std::string& architecture,
                                          const GgufVariant& variant) {
  return Exporter(source, architecture, variant).Run();
}

}  // namespace linnet::test
