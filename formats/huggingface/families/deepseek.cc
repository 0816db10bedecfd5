// DeepSeek V2 and V3: multi-head latent attention and experts in groups.
#include <cmath>

#include "formats/huggingface/families/common.h"

namespace linnet::formats {
namespace {

constexpr WeightPattern kPatterns[] = {
    {TensorRole::kLatentIn, PartKind::kLatentQ, "{base}layers.{layer}.self_attn.q_a_proj.weight"},
    {TensorRole::kLatentIn, PartKind::kLatentQ, "{base}layers.{layer}.self_attn.q_proj.weight"},
    {TensorRole::kLatentIn, PartKind::kLatentKv, "{base}layers.{layer}.self_attn.kv_a_proj_with_mqa.weight"},
    {TensorRole::kLatentInBias, PartKind::kLatentQ, "{base}layers.{layer}.self_attn.q_a_proj.bias"},
    {TensorRole::kLatentInBias, PartKind::kLatentKv, "{base}layers.{layer}.self_attn.kv_a_proj_with_mqa.bias"},
    {TensorRole::kLatentQNormGain, PartKind::kAll, "{base}layers.{layer}.self_attn.q_a_layernorm.weight"},
    {TensorRole::kLatentKvNormGain, PartKind::kAll, "{base}layers.{layer}.self_attn.kv_a_layernorm.weight"},
    {TensorRole::kLatentQ, PartKind::kAll, "{base}layers.{layer}.self_attn.q_b_proj.weight"},
    {TensorRole::kLatentKeyUp, PartKind::kKeyOfKvB, "{base}layers.{layer}.self_attn.kv_b_proj.weight"},
    {TensorRole::kLatentValueUp, PartKind::kValueOfKvB, "{base}layers.{layer}.self_attn.kv_b_proj.weight"},
    {TensorRole::kAttentionOut, PartKind::kAll, "{base}layers.{layer}.self_attn.o_proj.weight"},
    {TensorRole::kAttentionOutBias, PartKind::kAll, "{base}layers.{layer}.self_attn.o_proj.bias"},
    {TensorRole::kRouter, PartKind::kAll, "{base}layers.{layer}.mlp.gate.weight"},
    {TensorRole::kRouterSelectionBias, PartKind::kAll, "{base}layers.{layer}.mlp.gate.e_score_correction_bias"},
    {TensorRole::kExpertUp, PartKind::kGate, "{base}layers.{layer}.mlp.experts.{expert}.gate_proj.weight"},
    {TensorRole::kExpertUp, PartKind::kUp, "{base}layers.{layer}.mlp.experts.{expert}.up_proj.weight"},
    {TensorRole::kExpertDown, PartKind::kAll, "{base}layers.{layer}.mlp.experts.{expert}.down_proj.weight"},
    {TensorRole::kSharedUp, PartKind::kGate, "{base}layers.{layer}.mlp.shared_experts.gate_proj.weight"},
    {TensorRole::kSharedUp, PartKind::kUp, "{base}layers.{layer}.mlp.shared_experts.up_proj.weight"},
    {TensorRole::kSharedDown, PartKind::kAll, "{base}layers.{layer}.mlp.shared_experts.down_proj.weight"},
};
constexpr std::span<const WeightPattern> kTables[] = {kLlamaGlobals, kLlamaNorms, kPatterns, kLlamaFfn};
constexpr WeightNames kNames = {kModelBases, kTables, kRotaryBuffers, true};

constexpr const char* kIgnored[] = {
    "aux_loss_alpha",
    "seq_aux",
    "ep_size",                   // training
    "head_dim",                  // transformers writes qk_rope_head_dim here
    "num_key_value_heads",       // every head has keys and values of its own
    "num_nextn_predict_layers",  // further layers that no token's logits pass through
};

struct Defaults {
  ShapeDefaults shape;
  uint32_t expert_dim, n_experts, n_shared, top_k, first_sparse;
  double routed_scale;
};

void ReadLatentAttention(ConfigReader& reader, uint32_t default_heads, RopeLayout layout, ModelConfig* config,
                         AttentionSpec* attention) {
  attention->kind = AttentionKind::kLatent;
  attention->n_heads = attention->n_kv_heads = reader.Positive("num_attention_heads", default_heads);
  const uint32_t plain_dim = reader.Positive("qk_nope_head_dim", 128);
  const uint32_t rope_dim = reader.Positive("qk_rope_head_dim", 64);
  attention->head_dim = plain_dim <= kMaxDim && rope_dim <= kMaxDim ? plain_dim + rope_dim : 0;  // 0: refused later
  if (reader.Positive("qk_head_dim", attention->head_dim) != attention->head_dim) {
    reader.Invalid("qk_head_dim", "expected qk_nope_head_dim + qk_rope_head_dim");
  }
  attention->value_dim = reader.Positive("v_head_dim", 128);
  attention->kv_lora_rank = reader.Positive("kv_lora_rank", 512);
  attention->q_lora_rank = reader.Size("q_lora_rank", reader.IsNull("q_lora_rank") ? 0 : 1536);
  attention->latent_norm.kind = NormKind::kRmsNorm;
  attention->latent_norm.eps = 1e-6f;  // both latents' norms have it whatever rms_norm_eps says
  attention->latent_norm.has_gain = true;

  RopeDefaults rope;
  rope.head_dim = rope_dim;
  rope.context_length = config->context_length;
  rope.layout = layout;
  const RopeReading reading = ReadRope(reader, rope);
  attention->rope = InternRope(*config, reading.spec);
  double scale = 1.0 / std::sqrt(static_cast<double>(attention->head_dim));
  if (reading.spec.scaling == RopeScaling::kYarn && reading.mscale_all_dim != 0.0) {
    const double magnitude = YarnMagnitude(reading.spec.factor, reading.mscale_all_dim);
    scale *= magnitude * magnitude;
  }
  attention->score_scale = static_cast<float>(scale);
}

void ReadLatentBias(ConfigReader& reader, AttentionSpec* attention) {
  const bool bias = reader.Flag("attention_bias", false);
  // Without a query latent only the key's projection would have a bias, which the stacked tensor cannot say.
  if (bias && attention->q_lora_rank == 0) reader.Refuse("attention_bias", "false, without q_lora_rank");
  attention->qkv_bias = attention->out_bias = bias;
}

/// Block with a dense FFN; `experts` is the FFN of the layers from `first_sparse` on.
void ReadDeepSeek(ConfigReader& reader, const Defaults& defaults, RopeLayout layout, FfnSpec experts,
                  ModelConfig* config) {
  BlockSpec block;
  ReadSizes(reader, defaults.shape.sizes, config);
  ReadLatentAttention(reader, defaults.shape.heads.n_heads, layout, config, &block.attention);
  ReadLatentBias(reader, &block.attention);
  block.norm = RmsNorm(reader, 1e-6);
  config->final_norm = block.norm;
  block.ffn.activation = experts.activation = ReadActivation(reader, "hidden_act", "silu");
  block.ffn.ffn_dim = reader.Positive("intermediate_size", defaults.shape.ffn_dim);
  experts.ffn_dim = reader.Positive("moe_intermediate_size", defaults.expert_dim);
  experts.n_experts =
      reader.Positive(reader.Either({"n_routed_experts", "num_local_experts", "num_experts"}), defaults.n_experts);
  experts.top_k = reader.Positive("num_experts_per_tok", defaults.top_k);
  const uint32_t n_shared = reader.Size("n_shared_experts", reader.IsNull("n_shared_experts") ? 0 : defaults.n_shared);
  const uint64_t shared_dim = uint64_t{n_shared} * experts.ffn_dim;  // several shared experts are one wide one
  if (shared_dim > kMaxDim) reader.Invalid("n_shared_experts", "the shared experts are too wide");
  experts.shared_ffn_dim = static_cast<uint32_t>(shared_dim <= kMaxDim ? shared_dim : 0);
  experts.routed_scale = static_cast<float>(reader.Number("routed_scaling_factor", defaults.routed_scale));
  const uint32_t first_sparse = reader.Size("first_k_dense_replace", defaults.first_sparse);
  reader.Expect("moe_layer_freq", {"1"});
  reader.Expect("mlp_bias", {"false"});
  reader.Ignore(kIgnored);
  AddLayers(*config, block, [&](uint32_t layer, BlockSpec& own) {
    if (layer >= first_sparse) own.ffn = experts;
  });
}

void ReadDeepSeekV2(ConfigReader& reader, ModelConfig* config) {
  FfnSpec experts;
  experts.router_score = RouterScore::kSoftmax;
  const std::string method = reader.Text("topk_method", "greedy");
  const uint32_t n_groups = reader.Positive("n_group", 1), top_groups = reader.Positive("topk_group", 1);
  if (method == "group_limited_greedy") {
    experts.n_groups = n_groups;
    experts.top_groups = top_groups;
    experts.group_score = GroupScore::kMax;
  } else if (method != "greedy") {
    reader.Refuse("topk_method", "greedy, group_limited_greedy");
  }
  reader.Expect("scoring_func", {"\"softmax\""});
  reader.Expect("norm_topk_prob", {"false"});  // transformers' class leaves the weights as they are
  reader.Expect("rope_interleave", {"true"});
  ReadDeepSeek(reader, {{{32000, 4096, 32, 2048}, {32, 0, 0}, 11008}, 1407, 64, 2, 0, 0, 1.0}, RopeLayout::kInterleaved,
               experts, config);
}

void ReadDeepSeekV3(ConfigReader& reader, ModelConfig* config) {
  FfnSpec experts;
  experts.router_score = RouterScore::kSigmoid;
  experts.selection_bias = true;
  experts.normalize_top_k = reader.Flag("norm_topk_prob", true);
  experts.n_groups = reader.Positive("n_group", 8);
  experts.top_groups = reader.Positive("topk_group", 4);
  experts.group_score = GroupScore::kSumOfTopTwo;
  reader.Expect("topk_method", {"\"noaux_tc\""});
  reader.Expect("scoring_func", {"\"sigmoid\""});
  const bool interleaved = reader.Flag("rope_interleave", true);
  ReadDeepSeek(reader, {{{129280, 7168, 61, 4096}, {128, 0, 0}, 18432}, 2048, 256, 1, 8, 3, 2.5},
               interleaved ? RopeLayout::kInterleaved : RopeLayout::kHalfSplit, experts, config);
}

constexpr Family kFamilies[] = {
    {"deepseek_v2", ReadDeepSeekV2, &kNames},
    {"deepseek_v3", ReadDeepSeekV3, &kNames},
};

}  // namespace

std::span<const Family> DeepSeekFamilies() { return kFamilies; }

}  // namespace linnet::formats
