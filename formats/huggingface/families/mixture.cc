// Mixtures of experts with grouped attention: Mixtral, Qwen 2 and 3 MoE, gpt-oss.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "formats/huggingface/families/common.h"

namespace linnet::formats {
namespace {

constexpr WeightPattern kMixtralExperts[] = {
    {TensorRole::kRouter, PartKind::kAll, "{base}layers.{layer}.block_sparse_moe.gate.weight"},
    {TensorRole::kRouter, PartKind::kAll, "{base}layers.{layer}.mlp.gate.weight"},
    {TensorRole::kExpertUp, PartKind::kGate, "{base}layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight"},
    {TensorRole::kExpertUp, PartKind::kUp, "{base}layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight"},
    {TensorRole::kExpertDown, PartKind::kAll, "{base}layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"},
};
/// All experts of a layer in one tensor, as transformers 5 holds them in memory; some files are saved so.
constexpr WeightPattern kFusedExperts[] = {
    {TensorRole::kExpertUp, PartKind::kAll, "{base}layers.{layer}.mlp.experts.gate_up_proj"},
    {TensorRole::kExpertDown, PartKind::kAll, "{base}layers.{layer}.mlp.experts.down_proj"},
};

constexpr std::span<const WeightPattern> kMixtralTables[] = {kLlamaGlobals, kLlamaNorms, kLlamaAttention,
                                                             kMixtralExperts, kFusedExperts};
constexpr WeightNames kMixtralNames = {kModelBases, kMixtralTables, kRotaryBuffers};

constexpr const char* kRouterTraining[] = {"router_aux_loss_coef", "output_router_logits", "router_jitter_noise"};

void ReadMixtral(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadLlamaLike(reader, {{{32000, 4096, 32, 131072}, {32, 8, 0}, 14336}, 1e-5, 1000000.0}, config, &block);
  block.attention.window = reader.Size("sliding_window", 0);
  block.ffn.n_experts = reader.Positive(reader.Either({"num_local_experts", "num_experts"}), 8);
  block.ffn.top_k = reader.Positive("num_experts_per_tok", 2);
  block.ffn.normalize_top_k = true;
  reader.Ignore(kRouterTraining);
  AddLayers(*config, block);
}

constexpr WeightPattern kQwenExperts[] = {
    {TensorRole::kRouter, PartKind::kAll, "{base}layers.{layer}.mlp.gate.weight"},
    {TensorRole::kExpertUp, PartKind::kGate, "{base}layers.{layer}.mlp.experts.{expert}.gate_proj.weight"},
    {TensorRole::kExpertUp, PartKind::kUp, "{base}layers.{layer}.mlp.experts.{expert}.up_proj.weight"},
    {TensorRole::kExpertDown, PartKind::kAll, "{base}layers.{layer}.mlp.experts.{expert}.down_proj.weight"},
    {TensorRole::kSharedUp, PartKind::kGate, "{base}layers.{layer}.mlp.shared_expert.gate_proj.weight"},
    {TensorRole::kSharedUp, PartKind::kUp, "{base}layers.{layer}.mlp.shared_expert.up_proj.weight"},
    {TensorRole::kSharedDown, PartKind::kAll, "{base}layers.{layer}.mlp.shared_expert.down_proj.weight"},
    {TensorRole::kSharedGate, PartKind::kAll, "{base}layers.{layer}.mlp.shared_expert_gate.weight"},
};
constexpr std::span<const WeightPattern> kQwenTables[] = {kLlamaGlobals, kLlamaNorms,  kLlamaAttention,
                                                          kLlamaFfn,     kQwenExperts, kFusedExperts};
constexpr WeightNames kQwenNames = {kModelBases, kQwenTables, kRotaryBuffers};

struct QwenExperts {
  uint32_t n_experts, top_k, expert_dim, shared_dim;  // defaults
};

/// Adds the layers: experts in every decoder_sparse_step-th one that mlp_only_layers does not name, a dense FFN
/// elsewhere.
void AddQwenLayers(ConfigReader& reader, const QwenExperts& defaults, const BlockSpec& dense,
                   const std::vector<uint32_t>& windows, ModelConfig* config) {
  FfnSpec experts = dense.ffn;
  experts.n_experts = reader.Size(reader.Either({"num_experts", "num_local_experts"}), defaults.n_experts);
  experts.top_k = reader.Positive("num_experts_per_tok", defaults.top_k);
  experts.ffn_dim = reader.Positive("moe_intermediate_size", defaults.expert_dim);
  experts.normalize_top_k = reader.Flag("norm_topk_prob", false);
  if (defaults.shared_dim > 0) {
    experts.shared_ffn_dim = reader.Positive("shared_expert_intermediate_size", defaults.shared_dim);
    experts.shared_gate = true;
  }
  const uint32_t step = reader.Positive("decoder_sparse_step", 1);
  const std::vector<uint32_t> dense_layers = reader.Sizes("mlp_only_layers", kMaxLayers);
  reader.Ignore(kRouterTraining);
  AddLayers(*config, dense, [&](uint32_t layer, BlockSpec& own) {
    own.attention.window = windows[layer];
    const bool named = std::find(dense_layers.begin(), dense_layers.end(), layer) != dense_layers.end();
    if (experts.n_experts > 0 && !named && (layer + 1) % step == 0) own.ffn = experts;
  });
}

void ReadQwen2Moe(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadLlamaLike(reader, {{{151936, 2048, 24, 32768}, {16, 16, 0}, 5632}, 1e-6}, config, &block);
  block.attention.qkv_bias = reader.Flag("qkv_bias", true);
  const bool slides = reader.Flag("use_sliding_window", false);
  const uint32_t window = reader.Size("sliding_window", reader.IsNull("sliding_window") ? 0 : 4096);
  const uint32_t window_layers = reader.Size("max_window_layers", 28);
  const std::vector<bool> sliding = ReadSlidingLayers(
      reader, config->n_layers, [=](uint32_t layer) { return slides && layer % 2 == 0 && layer < window_layers; });
  std::vector<uint32_t> windows(config->n_layers, 0);
  for (uint32_t layer = 0; layer < config->n_layers; ++layer) windows[layer] = slides && sliding[layer] ? window : 0;
  AddQwenLayers(reader, {60, 4, 1408, 5632}, block, windows, config);
}

void ReadQwen3Moe(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadLlamaLike(reader, {{{151936, 2048, 24, 32768}, {32, 4, 0}, 6144}, 1e-6}, config, &block);
  ReadAttentionBias(reader, &block);
  AddHeadNorm(&block);
  const bool slides = reader.Flag("use_sliding_window", false);
  const uint32_t window = reader.Size("sliding_window", reader.IsNull("sliding_window") ? 0 : 4096);
  reader.Ignore({"max_window_layers"});  // this family's window, where used, is every layer's
  AddQwenLayers(reader, {128, 8, 768, 0}, block, std::vector<uint32_t>(config->n_layers, slides ? window : 0), config);
}

constexpr WeightPattern kGptOssPatterns[] = {
    {TensorRole::kSinks, PartKind::kAll, "{base}layers.{layer}.self_attn.sinks"},
    {TensorRole::kRouter, PartKind::kAll, "{base}layers.{layer}.mlp.router.weight"},
    {TensorRole::kRouterBias, PartKind::kAll, "{base}layers.{layer}.mlp.router.bias"},
    {TensorRole::kExpertUp, PartKind::kGateUpInterleaved, "{base}layers.{layer}.mlp.experts.gate_up_proj", true},
    {TensorRole::kExpertUpBias, PartKind::kGateUpInterleaved, "{base}layers.{layer}.mlp.experts.gate_up_proj_bias"},
    {TensorRole::kExpertDown, PartKind::kAll, "{base}layers.{layer}.mlp.experts.down_proj", true},
    {TensorRole::kExpertDownBias, PartKind::kAll, "{base}layers.{layer}.mlp.experts.down_proj_bias"},
};
constexpr std::span<const WeightPattern> kGptOssTables[] = {kLlamaGlobals, kLlamaNorms, kLlamaAttention,
                                                            kGptOssPatterns};
constexpr WeightNames kGptOssNames = {kModelBases, kGptOssTables, kRotaryBuffers};

/// The scaling that transformers assumes where the config names none.
RopeSpec GptOssRope(ConfigReader& reader, const RopeDefaults& defaults) {
  if (reader.Has("rope_scaling") || reader.Has("rope_parameters")) return ReadRope(reader, defaults).spec;
  const nlohmann::json assumed = {
      {"rope_type", "yarn"}, {"factor", 32.0},
      {"beta_fast", 32.0},   {"beta_slow", 1.0},
      {"truncate", false},   {"original_max_position_embeddings", 4096u}};  // as the parser types it
  ConfigReader parameters(assumed, "rope_parameters.", &reader.errors());
  return ReadRopeParameters(parameters, reader, defaults).spec;
}

void ReadGptOss(ConfigReader& reader, ModelConfig* config) {
  BlockSpec block;
  ReadSizes(reader, {201088, 2880, 36, 131072}, config);
  ReadHeads(reader, {64, 8, 64}, *config, &block.attention);
  RopeDefaults rope;
  rope.head_dim = block.attention.head_dim;
  rope.context_length = config->context_length;
  rope.theta = 150000.0;
  block.attention.rope = InternRope(*config, GptOssRope(reader, rope));
  block.norm = RmsNorm(reader, 1e-5);
  config->final_norm = block.norm;
  block.attention.qkv_bias = true;
  ReadAttentionBias(reader, &block);
  block.attention.sinks = true;
  block.ffn.activation = Activation::kClampedSwiglu;
  block.ffn.clamp = 7.0f;
  block.ffn.ffn_dim = reader.Positive("intermediate_size", 2880);
  block.ffn.n_experts = reader.Positive(reader.Either({"num_local_experts", "num_experts"}), 128);
  block.ffn.top_k = reader.Positive(reader.Either({"num_experts_per_tok", "experts_per_token"}), 4);
  block.ffn.router_score = RouterScore::kSoftmaxOfTopK;
  block.ffn.router_bias = block.ffn.up_bias = block.ffn.down_bias = true;
  reader.Expect("hidden_act", {"\"silu\""});
  // transformers has both as constants, whatever the file says.
  reader.Expect("swiglu_alpha", {"1.702"});
  reader.Expect("swiglu_limit", {"7.0", "7"});
  reader.Ignore(kRouterTraining);
  reader.Ignore({"initial_context_length"});  // repeats original_max_position_embeddings
  const uint32_t window = reader.Size("sliding_window", reader.IsNull("sliding_window") ? 0 : 128);
  const std::vector<bool> sliding =
      ReadSlidingLayers(reader, config->n_layers, [](uint32_t layer) { return layer % 2 == 0; });
  AddLayers(*config, block,
            [&](uint32_t layer, BlockSpec& own) { own.attention.window = sliding[layer] ? window : 0; });
}

constexpr Family kFamilies[] = {
    {"mixtral", ReadMixtral, &kMixtralNames},
    {"qwen2_moe", ReadQwen2Moe, &kQwenNames},
    {"qwen3_moe", ReadQwen3Moe, &kQwenNames},
    {"gpt_oss", ReadGptOss, &kGptOssNames},
};

}  // namespace

std::span<const Family> MixtureFamilies() { return kFamilies; }

}  // namespace linnet::formats
