#include "ops/norm.h"

#include <cmath>

#include "core/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE float SumOfSquares(const float* x, size_t n, float mean) {
  const F32Tag d;
  const F32Vec center = hn::Set(d, mean);
  return SumOverRow(n, [&](size_t i, size_t count) HWY_ATTR {
    if (count == hn::Lanes(d)) {
      const F32Vec v = hn::Sub(hn::LoadU(d, x + i), center);
      return hn::Mul(v, v);
    }
    const F32Vec v = hn::Sub(hn::LoadN(d, x + i, count), center);
    return hn::IfThenElseZero(hn::FirstN(d, count), hn::Mul(v, v));
  });
}

HWY_INLINE float SumOfRow(const float* x, size_t n) {
  const F32Tag d;
  return SumOverRow(n, [&](size_t i, size_t count) HWY_ATTR {
    return count == hn::Lanes(d) ? hn::LoadU(d, x + i) : hn::LoadN(d, x + i, count);
  });
}

/// out = factor * ((x - mean) * inverse) + addend, in the order in which transformers rounds.
HWY_INLINE void NormalizeRow(const float* x, size_t n, float mean, float inverse, const NormParams& params, size_t row,
                             float* out) {
  const F32Tag d;
  const F32Vec center = hn::Set(d, mean), scale = hn::Set(d, inverse);
  const F32Vec plus = hn::Set(d, params.gain_plus_one ? 1.0f : 0.0f);
  const float* gain = params.gain == nullptr ? nullptr : params.gain + row * params.gain_stride;
  const float* bias = params.bias == nullptr ? nullptr : params.bias + row * params.gain_stride;
  if (gain == nullptr) {
    MapRow(x, n, out, [&](F32Vec v) HWY_ATTR { return hn::Mul(hn::Sub(v, center), scale); });
  } else {
    MapRows(x, gain, n, out,
            [&](F32Vec v, F32Vec g) HWY_ATTR { return hn::Mul(hn::Mul(hn::Sub(v, center), scale), hn::Add(g, plus)); });
  }
  if (bias != nullptr) {
    MapRows(out, bias, n, out, [&](F32Vec v, F32Vec b) HWY_ATTR { return hn::Add(v, b); });
  }
}

void RmsNormImpl(ConstRows x, size_t n_rows, size_t width, const NormParams& params, Rows out) {
  for (size_t r = 0; r < n_rows; ++r) {
    const float mean_square = SumOfSquares(x.row(r), width, 0.0f) / static_cast<float>(width);
    NormalizeRow(x.row(r), width, 0.0f, 1.0f / std::sqrt(mean_square + params.eps), params, r, out.row(r));
  }
}

void LayerNormImpl(ConstRows x, size_t n_rows, size_t width, const NormParams& params, Rows out) {
  const float count = static_cast<float>(width);
  for (size_t r = 0; r < n_rows; ++r) {
    const float mean = SumOfRow(x.row(r), width) / count;
    const float variance = SumOfSquares(x.row(r), width, mean) / count;
    NormalizeRow(x.row(r), width, mean, 1.0f / std::sqrt(variance + params.eps), params, r, out.row(r));
  }
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {

HWY_EXPORT(RmsNormImpl);
HWY_EXPORT(LayerNormImpl);

void RmsNorm(ConstRows x, size_t n_rows, size_t width, const NormParams& params, Rows out) {
  LINNET_DCHECK(width > 0);
  HWY_DYNAMIC_DISPATCH(RmsNormImpl)(x, n_rows, width, params, out);
}

void LayerNorm(ConstRows x, size_t n_rows, size_t width, const NormParams& params, Rows out) {
  LINNET_DCHECK(width > 0);
  HWY_DYNAMIC_DISPATCH(LayerNormImpl)(x, n_rows, width, params, out);
}

}  // namespace linnet::ops
#endif
