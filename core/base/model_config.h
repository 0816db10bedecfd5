// Public header. What a model computes, as data: the block description that one executor reads for every family.
#ifndef LINNET_CORE_BASE_MODEL_CONFIG_H_
#define LINNET_CORE_BASE_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace linnet {

// Enumerators' values are part of the file format and never change; new ones go last.

enum class NormKind : uint8_t { kNone = 0, kRmsNorm = 1, kLayerNorm = 2 };

/// One normalization. Gain and bias tensors are present where the flags say so.
struct NormSpec {
  NormKind kind = NormKind::kNone;
  float eps = 0.0f;            // from the model file, > 0 unless kind is kNone
  bool has_gain = false;       // a learned gain tensor
  bool gain_plus_one = false;  // the factor is 1 + gain (Gemma)
  bool has_bias = false;       // LayerNorm's bias
  bool operator==(const NormSpec&) const = default;
};

/// Where the norms of a block stand; x is the residual stream, f a sub-layer (attention or FFN).
enum class NormPlacement : uint8_t {
  kPre = 0,             // x + f(norm(x))
  kPost = 1,            // norm(x + f(x))                      (2017, GPT-1)
  kSubLayerOutput = 2,  // x + norm(f(x))                      (OLMo 2)
  kBothSides = 3,       // x + post_norm(f(norm(x)))           (Gemma 2 and 3, Peri-LN)
};

/// Positions that are added to the embedding.
enum class EmbeddingPositions : uint8_t { kNone = 0, kLearned = 1, kSinusoidal = 2 };

enum class RopeLayout : uint8_t {
  kHalfSplit = 0,    // pairs (i, i + rope_dim / 2)
  kInterleaved = 1,  // pairs (2i, 2i + 1)
};

enum class RopeScaling : uint8_t { kNone = 0, kLinear = 1, kDynamicNtk = 2, kYarn = 3, kLlama3 = 4, kLongRope = 5 };

/// A rotary embedding. Layers refer to one by index; several may exist in one model (Gemma 3).
struct RopeSpec {
  double theta = 10000.0;  // base frequency, > 0
  uint32_t rope_dim = 0;   // rotated width, even, <= head_dim; the first rope_dim values of a head are rotated
  RopeLayout layout = RopeLayout::kHalfSplit;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;                                   // linear, dynamic NTK, YaRN, Llama 3
  uint32_t original_context_length = 0;                  // dynamic NTK, YaRN, Llama 3, LongRoPE
  double beta_fast = 32.0, beta_slow = 1.0;              // YaRN
  bool truncate = true;                                  // YaRN: whole-number correction range (gpt-oss: false)
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // Llama 3
  float cos_sin_scale = 1.0f;                            // YaRN and LongRoPE: both cos and sin are multiplied by it
  std::vector<float> short_factors, long_factors;        // LongRoPE, [rope_dim / 2] each
  bool operator==(const RopeSpec&) const = default;
};

enum class AttentionKind : uint8_t {
  kGrouped = 0,  // MHA, GQA and MQA: query head h reads kv head h / (n_heads / n_kv_heads)
  kLatent = 1,   // MLA (DeepSeek-V2): keys and values are low-rank projections of a cached latent
};

enum class QkNorm : uint8_t {
  kNone = 0,
  kPerHead = 1,      // over head_dim, one gain [head_dim] for all heads (Qwen3, Gemma 3)
  kPerHeadGain = 2,  // over head_dim, a gain [n_heads, head_dim] of every head's own (StableLM 2)
  kFullWidth = 3,    // over all heads together, gain [n_heads * head_dim] (OLMo 2)
};

struct AttentionSpec {
  AttentionKind kind = AttentionKind::kGrouped;
  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;  // divides n_heads; for kLatent equal to n_heads
  uint32_t head_dim = 0;    // width of a query and a key; for kLatent qk_nope_dim + rope_dim
  uint32_t value_dim = 0;   // width of a value; head_dim unless kLatent
  bool qkv_bias = false;    // a bias over the stacked q, k, v rows (kLatent: over the q_a / kv_a rows)
  bool out_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  NormSpec qk_norm_spec;        // kind and eps of the QK-norm; applied before the rotation
  float score_scale = 0.0f;     // q.k is multiplied by it
  float logit_soft_cap = 0.0f;  // c * tanh(score / c) before the mask; 0: none
  uint32_t window = 0;          // position i sees j with i - window < j <= i; 0: all j <= i
  bool sinks = false;           // a learned logit per head joins the softmax's denominator (gpt-oss)
  bool alibi = false;           // slopes of arXiv:2108.12409 for n_heads heads
  int32_t rope = -1;            // index into ModelConfig::ropes; -1: no rotation in this layer
  // kLatent only; head_dim = qk_nope_dim + ropes[rope].rope_dim. The rotated part of a query head comes last.
  uint32_t q_lora_rank = 0;  // 0: q is projected directly
  uint32_t kv_lora_rank = 0;
  NormSpec latent_norm;  // of the q_a and kv_a latents
  bool operator==(const AttentionSpec&) const = default;
};

enum class Activation : uint8_t {
  kRelu = 0,
  kSquaredRelu = 1,
  kGelu = 2,      // exact, with erf
  kGeluTanh = 3,  // tanh approximation
  kSilu = 4,
  kSigmoid = 5,        // gated: GLU of arXiv:1612.08083
  kClampedSwiglu = 6,  // gpt-oss: min(g, c) * sigmoid(1.702 g) * (clamp(u, -c, c) + 1)
};

enum class RouterScore : uint8_t {
  kSoftmax = 0,        // softmax over all experts, then the top k
  kSigmoid = 1,        // sigmoid of each (DeepSeek-V3)
  kSoftmaxOfTopK = 2,  // the top k logits, then softmax over them (gpt-oss)
};

enum class GroupScore : uint8_t { kMax = 0, kSumOfTopTwo = 1 };

struct FfnSpec {
  Activation activation = Activation::kSilu;
  bool gated = true;     // down(act(gate(x)) * up(x)), else down(act(up(x)))
  bool up_bias = false;  // over the stacked gate, up rows
  bool down_bias = false;
  float clamp = 0.0f;    // kClampedSwiglu's c
  uint32_t ffn_dim = 0;  // dense width; with experts: width of one expert
  // Mixture of experts where n_experts > 0.
  uint32_t n_experts = 0;
  uint32_t top_k = 0;
  RouterScore router_score = RouterScore::kSoftmax;
  bool router_bias = false;      // added to the router's logits
  bool selection_bias = false;   // added to the scores for the choice only (DeepSeek-V3)
  bool normalize_top_k = false;  // the chosen weights are divided by their sum
  float routed_scale = 1.0f;     // multiplies the chosen weights
  uint32_t n_groups = 1;         // experts are chosen from the best top_groups groups only
  uint32_t top_groups = 1;
  GroupScore group_score = GroupScore::kMax;
  uint32_t shared_ffn_dim = 0;  // shared expert's width (several are one wide one); 0: none
  bool shared_gate = false;     // its output is multiplied by sigmoid(gate(x)) (Qwen2-MoE)
  bool operator==(const FfnSpec&) const = default;
};

struct BlockSpec {
  NormSpec norm;  // all norms of the block
  NormPlacement placement = NormPlacement::kPre;
  bool parallel = false;              // x + attention(n1(x)) + ffn(n2(x)): both read the block's input
  bool parallel_shared_norm = false;  // n2 is n1
  float residual_scale = 1.0f;        // multiplies x in every residual addition (DeepNorm's alpha)
  float branch_scale = 1.0f;          // multiplies f(...) in every residual addition (Granite)
  AttentionSpec attention;
  FfnSpec ffn;
  bool operator==(const BlockSpec&) const = default;
};

// Limits: far above any published model, low enough that no sum of products overflows.
constexpr uint32_t kMaxLayers = 1024;
constexpr uint32_t kMaxBlockKinds = 1024;  // at most one a layer
constexpr uint32_t kMaxRopes = 64;
constexpr uint32_t kMaxDim = 1u << 20;  // model_dim, ffn_dim, head counts times head_dim
constexpr uint32_t kMaxVocab = 1u << 24;
constexpr uint32_t kMaxContext = 1u << 24;
constexpr uint32_t kMaxExperts = 4096;
constexpr uint32_t kMaxEndTokens = 64;

struct ModelConfig {
  std::string family;       // for people and provenance only; the executor never reads it
  uint32_t vocab_size = 0;  // rows of the embedding
  uint32_t model_dim = 0;
  uint32_t n_layers = 0;
  uint32_t context_length = 0;   // trained maximum
  float embedding_scale = 1.0f;  // multiplies the token embedding (Gemma: sqrt(model_dim))
  EmbeddingPositions positions = EmbeddingPositions::kNone;
  uint32_t position_offset = 0;  // OPT: row pos + 2 of the table
  uint32_t position_rows = 0;    // rows of the learned table
  NormSpec embedding_norm;       // after embedding and positions (BLOOM)
  NormSpec final_norm;
  float logit_scale = 1.0f;     // multiplies the logits (Granite: 1 / logits_scaling)
  float logit_soft_cap = 0.0f;  // c * tanh(logit / c); 0: none
  bool tied_head = false;       // lm_head is the embedding table
  bool head_bias = false;
  std::vector<RopeSpec> ropes;
  std::vector<BlockSpec> blocks;      // the kinds of block
  std::vector<uint16_t> layer_block;  // [n_layers]: index into blocks

  const BlockSpec& layer(uint32_t index) const { return blocks[layer_block[index]]; }
  bool operator==(const ModelConfig&) const = default;
};

/// Appends `block` or finds an equal one; returns its index. For mappings that describe layer after layer.
uint16_t InternBlock(ModelConfig& config, const BlockSpec& block);

/// Checks every field against the limits and against each other. Called by the converter and by the reader, so
/// that everything behind them may trust a ModelConfig. Errors: kInvalidModel naming the field.
Status ValidateModelConfig(const ModelConfig& config);

}  // namespace linnet

#endif  // LINNET_CORE_BASE_MODEL_CONFIG_H_
