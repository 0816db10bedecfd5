#include "ops/elementwise.h"

#include <cmath>
#include <cstring>

#include "core/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/math-inl.h"
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void AddBiasImpl(Rows x, size_t n_rows, size_t width, const float* bias) {
  for (size_t r = 0; r < n_rows; ++r) {
    MapRows(x.row(r), bias, width, x.row(r), [](F32Vec a, F32Vec b) HWY_ATTR { return hn::Add(a, b); });
  }
}

void AccumulateImpl(ConstRows x, size_t n_rows, size_t width, Rows out) {
  for (size_t r = 0; r < n_rows; ++r) {
    MapRows(out.row(r), x.row(r), width, out.row(r), [](F32Vec a, F32Vec b) HWY_ATTR { return hn::Add(a, b); });
  }
}

/// Products are rounded before the sum, as transformers does: with both scales 1 this is a plain addition.
void ResidualAddImpl(const ResidualScales& scales, ConstRows branch, size_t n_rows, size_t width, Rows stream) {
  const F32Tag d;
  const F32Vec residual_scale = hn::Set(d, scales.residual), branch_scale = hn::Set(d, scales.branch);
  for (size_t r = 0; r < n_rows; ++r) {
    MapRows(stream.row(r), branch.row(r), width, stream.row(r),
            [&](F32Vec x, F32Vec f) HWY_ATTR { return hn::Add(hn::Mul(residual_scale, x), hn::Mul(branch_scale, f)); });
  }
}

HWY_INLINE void ScaleRow(float* x, size_t width, float factor) {
  const F32Vec scale = hn::Set(F32Tag(), factor);
  MapRow(x, width, x, [&](F32Vec v) HWY_ATTR { return hn::Mul(v, scale); });
}

void ScaleRowsImpl(Rows x, size_t n_rows, size_t width, float factor) {
  for (size_t r = 0; r < n_rows; ++r) ScaleRow(x.row(r), width, factor);
}

void SigmoidGateImpl(Rows x, size_t n_rows, size_t width, const float* gates) {
  for (size_t r = 0; r < n_rows; ++r) ScaleRow(x.row(r), width, 1.0f / (1.0f + std::exp(-gates[r])));
}

void SoftCapImpl(Rows x, size_t n_rows, size_t width, float cap) {
  const F32Tag d;
  const F32Vec limit = hn::Set(d, cap);
  for (size_t r = 0; r < n_rows; ++r) {
    MapRow(x.row(r), width, x.row(r), [&](F32Vec v) HWY_ATTR { return hn::Mul(limit, TanhAll(d, hn::Div(v, limit))); });
  }
}

void AddWeightedRowsImpl(const WeightedRows& rows, size_t n_rows, size_t width, Rows out) {
  const F32Tag d;
  for (size_t r = 0; r < n_rows; ++r) {
    float* target = out.row(rows.row_ids == nullptr ? r : rows.row_ids[r]);
    const F32Vec weight = hn::Set(d, rows.weights[r]);
    MapRows(target, rows.x.row(r), width, target,
            [&](F32Vec sum, F32Vec v) HWY_ATTR { return hn::MulAdd(weight, v, sum); });
  }
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {

HWY_EXPORT(AddBiasImpl);
HWY_EXPORT(AccumulateImpl);
HWY_EXPORT(ResidualAddImpl);
HWY_EXPORT(ScaleRowsImpl);
HWY_EXPORT(SigmoidGateImpl);
HWY_EXPORT(SoftCapImpl);
HWY_EXPORT(AddWeightedRowsImpl);

void AddBias(Rows x, size_t n_rows, size_t width, const float* bias) {
  HWY_DYNAMIC_DISPATCH(AddBiasImpl)(x, n_rows, width, bias);
}

void Accumulate(ConstRows x, size_t n_rows, size_t width, Rows out) {
  HWY_DYNAMIC_DISPATCH(AccumulateImpl)(x, n_rows, width, out);
}

void ResidualAdd(const ResidualScales& scales, ConstRows branch, size_t n_rows, size_t width, Rows stream) {
  HWY_DYNAMIC_DISPATCH(ResidualAddImpl)(scales, branch, n_rows, width, stream);
}

void ScaleRows(Rows x, size_t n_rows, size_t width, float factor) {
  HWY_DYNAMIC_DISPATCH(ScaleRowsImpl)(x, n_rows, width, factor);
}

void SoftCap(Rows x, size_t n_rows, size_t width, float cap) {
  LINNET_DCHECK(cap > 0.0f);
  HWY_DYNAMIC_DISPATCH(SoftCapImpl)(x, n_rows, width, cap);
}

void SigmoidGate(Rows x, size_t n_rows, size_t width, const float* gates) {
  HWY_DYNAMIC_DISPATCH(SigmoidGateImpl)(x, n_rows, width, gates);
}

void AddWeightedRows(const WeightedRows& rows, size_t n_rows, size_t width, Rows out) {
  HWY_DYNAMIC_DISPATCH(AddWeightedRowsImpl)(rows, n_rows, width, out);
}

void GatherRows(ConstRows x, const uint32_t* row_ids, size_t n_rows, size_t width, Rows out) {
  for (size_t r = 0; r < n_rows; ++r) std::memcpy(out.row(r), x.row(row_ids[r]), width * sizeof(float));
}

}  // namespace linnet::ops
#endif
