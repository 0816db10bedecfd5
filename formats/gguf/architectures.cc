#include "formats/gguf/architectures.h"

namespace linnet::formats {
namespace {

// To add an architecture: one row here, and a golden's weights written under llama.cpp's names in the tests.
constexpr GgufArchitecture kArchitectures[] = {
    // Llama, Mistral, SmolLM 1 and 2, and Mixtral where the file has experts.
    {.name = "llama", .permuted_qk = true, .normalize_top_k = true},
    {.name = "smollm3", .permuted_qk = true, .unrotated_period = 4},
    {.name = "granite", .permuted_qk = true, .granite_scales = true},
    {.name = "qwen2"},
    {.name = "qwen2moe"},
    {.name = "qwen3", .qk_norm = QkNorm::kPerHead},
    {.name = "qwen3moe", .qk_norm = QkNorm::kPerHead, .normalize_top_k = true},
    {.name = "phi3"},
    {.name = "olmo2",
     .placement = NormPlacement::kSubLayerOutput,
     .attention_norm = "post_attention_norm",
     .ffn_norm = "post_ffw_norm",
     .qk_norm = QkNorm::kFullWidth,
     .window_period = 4,
     .local_rope = GgufLocalRope::kUnscaled},
    // Gemma's gains are stored with their 1 added.
    {.name = "gemma", .activation = Activation::kGeluTanh, .scaled_embedding = true},
    {.name = "gemma2",
     .placement = NormPlacement::kBothSides,
     .window_period = 2,
     .wide_scale_layers = 46,  // 27B
     .activation = Activation::kGeluTanh,
     .scaled_embedding = true},
    {.name = "gemma3",
     .placement = NormPlacement::kBothSides,
     .qk_norm = QkNorm::kPerHead,
     .window_period = 6,
     .local_rope = GgufLocalRope::kOwnTheta,
     .wide_scale_layers = 62,  // 27B
     .activation = Activation::kGeluTanh,
     .scaled_embedding = true},
    {.name = "gpt2",
     .norm = NormKind::kLayerNorm,
     .has_rope = false,
     .activation = Activation::kGeluTanh,
     .gated = false,
     .positions = EmbeddingPositions::kLearned},
    {.name = "gptneox",
     .norm = NormKind::kLayerNorm,
     .parallel = GgufParallel::kByKey,
     .activation = Activation::kGelu,
     .gated = false},
    // 7B: one norm before both sub-layers; 40B: attn_norm_2 before attention, attn_norm before the FFN.
    {.name = "falcon",
     .norm = NormKind::kLayerNorm,
     .attention_norm_instead = "attn_norm_2",
     .ffn_norm = "attn_norm",
     .parallel = GgufParallel::kYes,
     .activation = Activation::kGelu,
     .gated = false},
    {.name = "starcoder2", .norm = NormKind::kLayerNorm, .activation = Activation::kGeluTanh, .gated = false},
    {.name = "stablelm",
     .norm = NormKind::kLayerNorm,
     .parallel = GgufParallel::kWithoutFfnNorm,
     .qk_norm = QkNorm::kPerHeadGain},
    {.name = "deepseek2", .rope_layout = RopeLayout::kInterleaved, .latent = true},
    {.name = "gpt-oss",
     .ffn_norm = "post_attention_norm",
     .yarn_truncate = false,
     .window_period = 2,
     .activation = Activation::kClampedSwiglu,
     .clamp = 7.0f,
     .router_score = RouterScore::kSoftmaxOfTopK},
};

}  // namespace

const GgufArchitecture* FindGgufArchitecture(std::string_view name) {
  for (const GgufArchitecture& architecture : kArchitectures) {
    if (name == architecture.name) return &architecture;
  }
  return nullptr;
}

std::span<const GgufArchitecture> GgufArchitectures() { return kArchitectures; }

}  // namespace linnet::formats
