#include "examples/cli/describe.h"

#include <algorithm>
#include <cstdio>

namespace linnet::cli {
namespace {

using Json = nlohmann::ordered_json;

// Names by enumerator's value.
template <typename Enum, size_t kCount>
const char* Name(Enum value, const char* const (&names)[kCount]) {
  const auto index = static_cast<size_t>(value);
  return index < kCount ? names[index] : "?";
}

constexpr const char* kNormKinds[] = {"none", "rms_norm", "layer_norm"};
constexpr const char* kPlacements[] = {"pre", "post", "sub_layer_output", "both_sides"};
constexpr const char* kPositions[] = {"none", "learned", "sinusoidal"};
constexpr const char* kRopeLayouts[] = {"half_split", "interleaved"};
constexpr const char* kRopeScalings[] = {"none", "linear", "dynamic_ntk", "yarn", "llama3", "longrope"};
constexpr const char* kAttentionKinds[] = {"grouped", "latent"};
constexpr const char* kQkNorms[] = {"none", "per_head", "per_head_gain", "full_width"};
constexpr const char* kActivations[] = {"relu", "squared_relu", "gelu",          "gelu_tanh",
                                        "silu", "sigmoid",      "clamped_swiglu"};
constexpr const char* kRouterScores[] = {"softmax", "sigmoid", "softmax_of_top_k"};
constexpr const char* kGroupScores[] = {"max", "sum_of_top_two"};

Json ToJson(const NormSpec& norm) {
  return {{"kind", Name(norm.kind, kNormKinds)},
          {"eps", norm.eps},
          {"gain", norm.has_gain},
          {"gain_plus_one", norm.gain_plus_one},
          {"bias", norm.has_bias}};
}

Json ToJson(const RopeSpec& rope) {
  Json json = {{"theta", rope.theta},
               {"rope_dim", rope.rope_dim},
               {"layout", Name(rope.layout, kRopeLayouts)},
               {"scaling", Name(rope.scaling, kRopeScalings)}};
  if (rope.scaling == RopeScaling::kNone) return json;
  json["factor"] = rope.factor;
  json["original_context_length"] = rope.original_context_length;
  if (rope.scaling == RopeScaling::kYarn) {
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    json["truncate"] = rope.truncate;
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
  }
  json["cos_sin_scale"] = rope.cos_sin_scale;
  if (rope.scaling == RopeScaling::kLongRope) {
    json["short_factors"] = rope.short_factors;
    json["long_factors"] = rope.long_factors;
  }
  return json;
}

Json ToJson(const AttentionSpec& attention) {
  Json json = {{"kind", Name(attention.kind, kAttentionKinds)},
               {"n_heads", attention.n_heads},
               {"n_kv_heads", attention.n_kv_heads},
               {"head_dim", attention.head_dim},
               {"value_dim", attention.value_dim},
               {"qkv_bias", attention.qkv_bias},
               {"out_bias", attention.out_bias},
               {"qk_norm", Name(attention.qk_norm, kQkNorms)},
               {"score_scale", attention.score_scale},
               {"logit_soft_cap", attention.logit_soft_cap},
               {"window", attention.window},
               {"sinks", attention.sinks},
               {"alibi", attention.alibi},
               {"rope", attention.rope}};
  if (attention.qk_norm != QkNorm::kNone) json["qk_norm_spec"] = ToJson(attention.qk_norm_spec);
  if (attention.kind == AttentionKind::kLatent) {
    json["q_lora_rank"] = attention.q_lora_rank;
    json["kv_lora_rank"] = attention.kv_lora_rank;
    json["latent_norm"] = ToJson(attention.latent_norm);
  }
  return json;
}

Json ToJson(const FfnSpec& ffn) {
  Json json = {{"activation", Name(ffn.activation, kActivations)},
               {"gated", ffn.gated},
               {"ffn_dim", ffn.ffn_dim},
               {"up_bias", ffn.up_bias},
               {"down_bias", ffn.down_bias}};
  if (ffn.activation == Activation::kClampedSwiglu) json["clamp"] = ffn.clamp;
  if (ffn.n_experts == 0) return json;
  json["n_experts"] = ffn.n_experts;
  json["top_k"] = ffn.top_k;
  json["router_score"] = Name(ffn.router_score, kRouterScores);
  json["router_bias"] = ffn.router_bias;
  json["selection_bias"] = ffn.selection_bias;
  json["normalize_top_k"] = ffn.normalize_top_k;
  json["routed_scale"] = ffn.routed_scale;
  json["n_groups"] = ffn.n_groups;
  json["top_groups"] = ffn.top_groups;
  json["group_score"] = Name(ffn.group_score, kGroupScores);
  json["shared_ffn_dim"] = ffn.shared_ffn_dim;
  json["shared_gate"] = ffn.shared_gate;
  return json;
}

Json ToJson(const BlockSpec& block) {
  return {{"norm", ToJson(block.norm)},
          {"placement", Name(block.placement, kPlacements)},
          {"parallel", block.parallel},
          {"parallel_shared_norm", block.parallel_shared_norm},
          {"residual_scale", block.residual_scale},
          {"branch_scale", block.branch_scale},
          {"attention", ToJson(block.attention)},
          {"ffn", ToJson(block.ffn)}};
}

std::string Format(const char* format, auto... arguments) {
  char text[256];
  std::snprintf(text, sizeof(text), format, arguments...);
  return text;
}

std::string AttentionText(const AttentionSpec& attention) {
  std::string text =
      Format("%u heads of %u over %u kv heads", attention.n_heads, attention.head_dim, attention.n_kv_heads);
  if (attention.kind == AttentionKind::kLatent) text += Format(", latent of %u", attention.kv_lora_rank);
  if (attention.qk_norm != QkNorm::kNone) text += Format(", qk norm %s", Name(attention.qk_norm, kQkNorms));
  if (attention.window != 0) text += Format(", window %u", attention.window);
  if (attention.rope >= 0) text += Format(", rope %d", attention.rope);
  if (attention.sinks) text += ", sinks";
  if (attention.alibi) text += ", alibi";
  return text;
}

std::string FfnText(const FfnSpec& ffn) {
  std::string text =
      Format("%s%s, ffn_dim %u", ffn.gated ? "gated " : "", Name(ffn.activation, kActivations), ffn.ffn_dim);
  if (ffn.n_experts != 0) text += Format(", %u of %u experts", ffn.top_k, ffn.n_experts);
  if (ffn.shared_ffn_dim != 0) text += Format(", shared %u", ffn.shared_ffn_dim);
  return text;
}

}  // namespace

Json ConfigToJson(const ModelConfig& config) {
  Json ropes = Json::array();
  for (const RopeSpec& rope : config.ropes) ropes.push_back(ToJson(rope));
  Json blocks = Json::array();
  for (const BlockSpec& block : config.blocks) blocks.push_back(ToJson(block));
  return {{"family", config.family},
          {"vocab_size", config.vocab_size},
          {"model_dim", config.model_dim},
          {"n_layers", config.n_layers},
          {"context_length", config.context_length},
          {"embedding_scale", config.embedding_scale},
          {"positions", Name(config.positions, kPositions)},
          {"position_offset", config.position_offset},
          {"position_rows", config.position_rows},
          {"embedding_norm", ToJson(config.embedding_norm)},
          {"final_norm", ToJson(config.final_norm)},
          {"logit_scale", config.logit_scale},
          {"logit_soft_cap", config.logit_soft_cap},
          {"tied_head", config.tied_head},
          {"head_bias", config.head_bias},
          {"ropes", ropes},
          {"blocks", blocks},
          {"layer_block", config.layer_block}};
}

std::string ConfigToText(const ModelConfig& config) {
  std::string text =
      Format("  %u layers, model_dim %u, vocab %u, context %u, %s head\n", config.n_layers, config.model_dim,
             config.vocab_size, config.context_length, config.tied_head ? "tied" : "own");
  if (config.positions != EmbeddingPositions::kNone) {
    text += Format("  positions          %s\n", Name(config.positions, kPositions));
  }
  for (size_t i = 0; i < config.blocks.size(); ++i) {
    const BlockSpec& block = config.blocks[i];
    const auto layers = std::count(config.layer_block.begin(), config.layer_block.end(), static_cast<uint16_t>(i));
    text += Format("  block %zu            %d layers, %s %s%s\n", i, static_cast<int>(layers),
                   Name(block.placement, kPlacements), Name(block.norm.kind, kNormKinds),
                   block.parallel ? ", parallel" : "");
    text += "    attention        " + AttentionText(block.attention) + "\n";
    text += "    ffn              " + FfnText(block.ffn) + "\n";
  }
  for (size_t i = 0; i < config.ropes.size(); ++i) {
    const RopeSpec& rope = config.ropes[i];
    text += Format("  rope %zu             theta %g, width %u, %s, scaling %s\n", i, rope.theta, rope.rope_dim,
                   Name(rope.layout, kRopeLayouts), Name(rope.scaling, kRopeScalings));
  }
  return text;
}

}  // namespace linnet::cli
