// Public header. Rotary position embedding: the table of cosines and sines, and its application to heads.
#ifndef LINNET_OPS_ROPE_H_
#define LINNET_OPS_ROPE_H_

#include <cstddef>
#include <span>

#include "core/base/model_config.h"
#include "ops/rows.h"

namespace linnet::ops {

struct RopeTableSpec {
  std::span<const float> inv_freq;  // [rope_dim / 2], radians per position, scaling already applied
  float cos_sin_scale = 1.0f;       // multiplies cos and sin (YaRN, LongRoPE)
  size_t first_pos = 0;             // absolute position of the first token
  size_t n_tokens = 0;
};

/// cos[t, i] = cos_sin_scale * cos(float(first_pos + t) * inv_freq[i]), sin likewise.
/// Shapes: cos, sin [n_tokens, rope_dim / 2], without gaps.
/// Numerics: the angle is a product rounded to f32, as transformers computes it; cos and sin are libm's in f64 of that
/// f32 angle, rounded once, so that large angles stay accurate.
void ComputeRopeTable(const RopeTableSpec& spec, float* cos, float* sin);

/// Which values of a row are rotated: rope_dim values of every head, from rope_offset inside the head.
struct RopeHeads {
  size_t n_heads = 0;
  size_t head_stride = 0;  // elements from head to head; head_dim where heads lie side by side
  size_t rope_dim = 0;     // even; rope_offset + rope_dim <= head_dim
  size_t rope_offset = 0;  // 0, or qk_nope_dim for the latent attention, whose last part is rotated
  RopeLayout layout = RopeLayout::kHalfSplit;
};

/// Rotates in place, for every token t, head and pair (a, b) number i:
/// a' = a * cos[t, i] - b * sin[t, i], b' = b * cos[t, i] + a * sin[t, i].
/// Shapes: x [n_tokens, at least n_heads * head_stride]; cos, sin [n_tokens, rope_dim / 2]. Source: arXiv:2104.09864.
void ApplyRope(Rows x, size_t n_tokens, const RopeHeads& heads, const float* cos, const float* sin);

}  // namespace linnet::ops

#endif  // LINNET_OPS_ROPE_H_
