#include "ops/rope.h"

#include <cmath>

#include "core/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rope.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Pairs (i, i + half) of one head.
HWY_INLINE void RotateHalfSplit(float* x, size_t half, const float* cos, const float* sin) {
  const F32Tag d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < half; i += lanes) {
    const size_t count = HWY_MIN(lanes, half - i);
    const bool full = count == lanes;
    const F32Vec a = full ? hn::LoadU(d, x + i) : hn::LoadN(d, x + i, count);
    const F32Vec b = full ? hn::LoadU(d, x + half + i) : hn::LoadN(d, x + half + i, count);
    const F32Vec c = full ? hn::LoadU(d, cos + i) : hn::LoadN(d, cos + i, count);
    const F32Vec s = full ? hn::LoadU(d, sin + i) : hn::LoadN(d, sin + i, count);
    const F32Vec first = hn::NegMulAdd(b, s, hn::Mul(a, c));
    const F32Vec second = hn::MulAdd(a, s, hn::Mul(b, c));
    if (full) {
      hn::StoreU(first, d, x + i);
      hn::StoreU(second, d, x + half + i);
    } else {
      hn::StoreN(first, d, x + i, count);
      hn::StoreN(second, d, x + half + i, count);
    }
  }
}

/// Pairs (2i, 2i + 1) of one head.
HWY_INLINE void RotateInterleaved(float* x, size_t half, const float* cos, const float* sin) {
  const F32Tag d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    F32Vec a, b;
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    const F32Vec c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
    const F32Vec first = hn::NegMulAdd(b, s, hn::Mul(a, c));
    const F32Vec second = hn::MulAdd(a, s, hn::Mul(b, c));
    hn::StoreInterleaved2(first, second, d, x + 2 * i);
  }
  for (; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cos[i] - b * sin[i];
    x[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

void ApplyRopeImpl(Rows x, size_t n_tokens, const RopeHeads& heads, const float* cos, const float* sin) {
  const size_t half = heads.rope_dim / 2;
  for (size_t t = 0; t < n_tokens; ++t) {
    const float* token_cos = cos + t * half;
    const float* token_sin = sin + t * half;
    float* head = x.row(t) + heads.rope_offset;
    for (size_t h = 0; h < heads.n_heads; ++h, head += heads.head_stride) {
      if (heads.layout == RopeLayout::kHalfSplit) {
        RotateHalfSplit(head, half, token_cos, token_sin);
      } else {
        RotateInterleaved(head, half, token_cos, token_sin);
      }
    }
  }
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {

HWY_EXPORT(ApplyRopeImpl);

void ComputeRopeTable(const RopeTableSpec& spec, float* cos, float* sin) {
  const size_t half = spec.inv_freq.size();
  for (size_t t = 0; t < spec.n_tokens; ++t) {
    const float pos = static_cast<float>(spec.first_pos + t);
    for (size_t i = 0; i < half; ++i) {
      const float angle = pos * spec.inv_freq[i];
      cos[t * half + i] = static_cast<float>(std::cos(static_cast<double>(angle))) * spec.cos_sin_scale;
      sin[t * half + i] = static_cast<float>(std::sin(static_cast<double>(angle))) * spec.cos_sin_scale;
    }
  }
}

void ApplyRope(Rows x, size_t n_tokens, const RopeHeads& heads, const float* cos, const float* sin) {
  LINNET_DCHECK(heads.rope_dim % 2 == 0);
  HWY_DYNAMIC_DISPATCH(ApplyRopeImpl)(x, n_tokens, heads, cos, sin);
}

}  // namespace linnet::ops
#endif
