#include "ops/activation.h"

#include "core/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/activation.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/math-inl.h"
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <Activation kKind>
HWY_INLINE F32Vec Activate(F32Vec x) {
  const F32Tag d;
  const F32Vec half = hn::Set(d, 0.5f), one = hn::Set(d, 1.0f);
  if constexpr (kKind == Activation::kRelu) {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);  // unlike a maximum, keeps NaN on every target
  } else if constexpr (kKind == Activation::kSquaredRelu) {
    const F32Vec positive = hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
    return hn::Mul(positive, positive);
  } else if constexpr (kKind == Activation::kGelu) {
    const F32Vec phi = Erf(d, hn::Mul(x, hn::Set(d, 0.70710678118654752f)));
    return hn::Mul(hn::Mul(x, half), hn::Add(one, phi));
  } else if constexpr (kKind == Activation::kGeluTanh) {
    const F32Vec cube = hn::Mul(hn::Mul(x, x), x);
    const F32Vec inner = hn::Mul(hn::Set(d, 0.79788456080286536f), hn::MulAdd(hn::Set(d, 0.044715f), cube, x));
    return hn::Mul(hn::Mul(x, half), hn::Add(one, TanhAll(d, inner)));
  } else if constexpr (kKind == Activation::kSilu) {
    return hn::Div(x, hn::Add(one, ExpAll(d, hn::Neg(x))));
  } else {
    return Sigmoid(d, x);
  }
}

template <Activation kKind>
HWY_NOINLINE void GatedRows(ConstRows gate_up, size_t n_rows, size_t ffn_dim, Rows out) {
  for (size_t r = 0; r < n_rows; ++r) {
    const float* gate = gate_up.row(r);
    MapRows(gate, gate + ffn_dim, ffn_dim, out.row(r),
            [](F32Vec g, F32Vec u) HWY_ATTR { return hn::Mul(Activate<kKind>(g), u); });
  }
}

HWY_NOINLINE void ClampedSwigluRows(float clamp, ConstRows gate_up, size_t n_rows, size_t ffn_dim, Rows out) {
  const F32Tag d;
  const F32Vec high = hn::Set(d, clamp), low = hn::Set(d, -clamp);
  for (size_t r = 0; r < n_rows; ++r) {
    const float* gate = gate_up.row(r);
    MapRows(gate, gate + ffn_dim, ffn_dim, out.row(r), [&](F32Vec g, F32Vec u) HWY_ATTR {
      // Selections rather than minimum and maximum: these keep NaN on every target.
      const F32Vec gate_clamped = hn::IfThenElse(hn::Gt(g, high), high, g);
      F32Vec up = hn::IfThenElse(hn::Gt(u, high), high, u);
      up = hn::IfThenElse(hn::Lt(up, low), low, up);
      const F32Vec swish = hn::Mul(gate_clamped, Sigmoid(d, hn::Mul(gate_clamped, hn::Set(d, 1.702f))));
      return hn::Mul(swish, hn::Add(up, hn::Set(d, 1.0f)));
    });
  }
}

void GatedImpl(const ActivationSpec& spec, ConstRows gate_up, size_t n_rows, size_t ffn_dim, Rows out) {
  switch (spec.kind) {
    case Activation::kRelu:
      return GatedRows<Activation::kRelu>(gate_up, n_rows, ffn_dim, out);
    case Activation::kSquaredRelu:
      return GatedRows<Activation::kSquaredRelu>(gate_up, n_rows, ffn_dim, out);
    case Activation::kGelu:
      return GatedRows<Activation::kGelu>(gate_up, n_rows, ffn_dim, out);
    case Activation::kGeluTanh:
      return GatedRows<Activation::kGeluTanh>(gate_up, n_rows, ffn_dim, out);
    case Activation::kSilu:
      return GatedRows<Activation::kSilu>(gate_up, n_rows, ffn_dim, out);
    case Activation::kSigmoid:
      return GatedRows<Activation::kSigmoid>(gate_up, n_rows, ffn_dim, out);
    case Activation::kClampedSwiglu:
      return ClampedSwigluRows(spec.clamp, gate_up, n_rows, ffn_dim, out);
  }
}

template <Activation kKind>
HWY_NOINLINE void PlainRows(ConstRows x, size_t n_rows, size_t width, Rows out) {
  for (size_t r = 0; r < n_rows; ++r) {
    MapRow(x.row(r), width, out.row(r), [](F32Vec v) HWY_ATTR { return Activate<kKind>(v); });
  }
}

void PlainImpl(Activation kind, ConstRows x, size_t n_rows, size_t width, Rows out) {
  switch (kind) {
    case Activation::kRelu:
      return PlainRows<Activation::kRelu>(x, n_rows, width, out);
    case Activation::kSquaredRelu:
      return PlainRows<Activation::kSquaredRelu>(x, n_rows, width, out);
    case Activation::kGelu:
      return PlainRows<Activation::kGelu>(x, n_rows, width, out);
    case Activation::kGeluTanh:
      return PlainRows<Activation::kGeluTanh>(x, n_rows, width, out);
    case Activation::kSilu:
      return PlainRows<Activation::kSilu>(x, n_rows, width, out);
    case Activation::kSigmoid:
      return PlainRows<Activation::kSigmoid>(x, n_rows, width, out);
    case Activation::kClampedSwiglu:
      return;  // gated only; refused at load
  }
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {

HWY_EXPORT(GatedImpl);
HWY_EXPORT(PlainImpl);

void GatedActivation(const ActivationSpec& spec, ConstRows gate_up, size_t n_rows, size_t ffn_dim, Rows out) {
  HWY_DYNAMIC_DISPATCH(GatedImpl)(spec, gate_up, n_rows, ffn_dim, out);
}

void PlainActivation(const ActivationSpec& spec, ConstRows x, size_t n_rows, size_t width, Rows out) {
  LINNET_DCHECK(spec.kind != Activation::kClampedSwiglu);
  HWY_DYNAMIC_DISPATCH(PlainImpl)(spec.kind, x, n_rows, width, out);
}

}  // namespace linnet::ops
#endif
