// What GGUF's architectures leave unsaid in their metadata, as one row of data for each.
#ifndef LINNET_FORMATS_GGUF_ARCHITECTURES_H_
#define LINNET_FORMATS_GGUF_ARCHITECTURES_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/model_config.h"

namespace linnet::formats {

/// Whether attention and FFN read the same input.
enum class GgufParallel : uint8_t {
  kNo,
  kYes,
  kByKey,           // use_parallel_residual, true where it is absent
  kWithoutFfnNorm,  // where the layer has no ffn_norm (StableLM 2 12B); the key is written by habit and says nothing
};

/// The rotation of layers with a window.
enum class GgufLocalRope : uint8_t {
  kSame,
  kUnscaled,  // the same theta without the scaling (OLMo 3)
  kOwnTheta,  // rope.freq_base_swa, 10000 where absent, without the scaling (Gemma 3)
};

/// One architecture. Sizes, widths and most switches come from the metadata and from which tensors exist; this row has
/// the rest. Sources: each family's definition in transformers, and the names and permutations that llama.cpp's
/// converter writes.
struct GgufArchitecture {
  const char* name;
  NormKind norm = NormKind::kRmsNorm;
  NormPlacement placement = NormPlacement::kPre;
  // Tensor names of the norms of a layer, without "blk.N." and suffix.
  const char* attention_norm = "attn_norm";
  const char* attention_norm_instead = nullptr;  // taken where it exists: then attention has a norm of its own
  const char* ffn_norm = "ffn_norm";
  GgufParallel parallel = GgufParallel::kNo;

  bool permuted_qk = false;  // rows of q and k stand in interleaved order and are put back to half-split
  bool has_rope = true;
  RopeLayout rope_layout = RopeLayout::kHalfSplit;
  bool yarn_truncate = true;
  uint32_t unrotated_period = 0;   // every n-th layer has no rotation; 0: all have
  QkNorm qk_norm = QkNorm::kNone;  // its kind, where the tensors exist
  uint32_t window_period = 1;      // layer i has the window unless i % period == period - 1; 1: all have it
  GgufLocalRope local_rope = GgufLocalRope::kSame;
  uint32_t wide_scale_layers = 0;  // with exactly so many layers the query scale is 1 / sqrt(model_dim / n_heads)
  bool latent = false;             // multi-head latent attention

  Activation activation = Activation::kSilu;
  bool gated = true;
  float clamp = 0.0f;
  RouterScore router_score = RouterScore::kSoftmax;  // where expert_gating_func is absent
  bool normalize_top_k = false;                      // where expert_weights_norm is absent

  EmbeddingPositions positions = EmbeddingPositions::kNone;
  bool scaled_embedding = false;  // by sqrt(model_dim)
  bool granite_scales = false;    // embedding_scale, residual_scale, logit_scale (a divisor)
};

/// The row of `general.architecture`, or null.
const GgufArchitecture* FindGgufArchitecture(std::string_view name);
std::span<const GgufArchitecture> GgufArchitectures();

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_GGUF_ARCHITECTURES_H_
