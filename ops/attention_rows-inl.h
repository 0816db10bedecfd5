// Softmax of score rows, and merging of splits. One copy per instruction set.
#if defined(LINNET_OPS_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_OPS_ATTENTION_ROWS_INL_H_
#undef LINNET_OPS_ATTENTION_ROWS_INL_H_
#else
#define LINNET_OPS_ATTENTION_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <limits>

#include "hwy/highway.h"
#include "ops/attention_geometry.h"
#include "ops/attention_kernels-inl.h"
#include "ops/fast_exp-inl.h"
#include "ops/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The part of a score row that its query sees: entries first to last (inclusive) of a split. Vectors start at
/// multiples of the vector width from the split's start, so that a position's lane is fixed.
struct VisibleScores {
  float* scores;
  uint32_t first, last;
};

/// s = c * tanh(s / c).
HWY_NOINLINE void CapScores(const VisibleScores& row, float cap) {
  const KvTag d;
  const size_t lanes = hn::Lanes(d);
  const auto c = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  for (size_t i = row.first / lanes * lanes; i <= row.last; i += lanes) {
    hn::StoreU(hn::Mul(c, TanhAll(d, hn::Mul(hn::LoadU(d, row.scores + i), inverse))), d, row.scores + i);
  }
}

/// s += slope * (j - i); relative_pos is j - i of entry 0.
HWY_NOINLINE void AddAlibi(const VisibleScores& row, float slope, int32_t relative_pos) {
  const KvTag d;
  const hn::RebindToSigned<KvTag> di;
  const size_t lanes = hn::Lanes(d);
  const auto m = hn::Set(d, slope);
  for (size_t i = row.first / lanes * lanes; i <= row.last; i += lanes) {
    const auto distance = hn::ConvertTo(d, hn::Iota(di, relative_pos + static_cast<int32_t>(i)));
    hn::StoreU(hn::MulAdd(m, distance, hn::LoadU(d, row.scores + i)), d, row.scores + i);
  }
}

/// x[i] *= factors[i] over the visible entries' vectors.
HWY_NOINLINE void ScaleScores(const VisibleScores& row, const float* factors) {
  const KvTag d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = row.first / lanes * lanes; i <= row.last; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row.scores + i), hn::LoadU(d, factors + i)), d, row.scores + i);
  }
}

/// Replaces the visible scores by exp(score - max). The other lanes of the row's first and last vector are replaced
/// by -inf beforehand, whatever they hold (they may come from memory that nothing was stored in), so that they add 0.
HWY_NOINLINE SoftmaxState SoftmaxOfRow(const VisibleScores& row) {
  const KvTag d;
  const size_t lanes = hn::Lanes(d);
  const size_t begin = row.first / lanes * lanes;
  const size_t end = (row.last / lanes + 1) * lanes;
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  for (size_t i = begin; i < row.first; ++i) row.scores[i] = kMasked;
  for (size_t i = row.last + size_t{1}; i < end; ++i) row.scores[i] = kMasked;
  auto largest = hn::Set(d, kMasked);
  for (size_t i = begin; i < end; i += lanes) largest = hn::Max(largest, hn::LoadU(d, row.scores + i));
  const float max = hn::ReduceMax(d, largest);
  const auto all_max = hn::Set(d, max);
  auto sum = hn::Zero(d);
  for (size_t i = begin; i < end; i += lanes) {
    const auto p = ExpOfNonPositive(d, hn::Sub(hn::LoadU(d, row.scores + i), all_max));
    sum = hn::Add(sum, p);
    hn::StoreU(p, d, row.scores + i);
  }
  return {max, hn::ReduceSum(d, sum)};
}

HWY_INLINE float ScalarExp(float x) {
  const hn::CappedTag<float, 1> d;
  return hn::GetLane(ExpOfNonPositive(d, hn::Set(d, x)));
}

/// merged = merged with part, as if their positions had been in one softmax. Vectors of any width: n floats are used.
/// One function for prefill and decode, so that both round alike.
HWY_NOINLINE void MergeSplit(SoftmaxState& state, float* merged, const SoftmaxState& part_state, const float* part,
                             size_t n) {
  const KvTag d;
  const size_t lanes = hn::Lanes(d);
  const float max = std::max(state.max, part_state.max);
  const float keep = ScalarExp(state.max - max), take = ScalarExp(part_state.max - max);
  const hn::CappedTag<float, 1> d1;
  state.max = max;
  state.sum = hn::GetLane(
      hn::MulAdd(hn::Set(d1, state.sum), hn::Set(d1, keep), hn::Mul(hn::Set(d1, part_state.sum), hn::Set(d1, take))));
  const auto a = hn::Set(d, keep), b = hn::Set(d, take);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::MulAdd(hn::LoadU(d, merged + i), a, hn::Mul(hn::LoadU(d, part + i), b)), d, merged + i);
  }
  if (i < n) {
    const auto rest = hn::MulAdd(hn::LoadN(d, merged + i, n - i), a, hn::Mul(hn::LoadN(d, part + i, n - i), b));
    hn::StoreN(rest, d, merged + i, n - i);
  }
}

/// out = merged / sum, or with a sink, which joins the denominator only.
HWY_NOINLINE void FinishRow(SoftmaxState state, const float* merged, const float* sink, float* out, size_t n) {
  const KvTag d;
  const size_t lanes = hn::Lanes(d);
  float scale = 1.0f;
  if (sink != nullptr) {
    const float max = std::max(state.max, *sink);
    scale = ScalarExp(state.max - max);
    const hn::CappedTag<float, 1> d1;
    state.sum =
        hn::GetLane(hn::MulAdd(hn::Set(d1, state.sum), hn::Set(d1, scale), hn::Set(d1, ScalarExp(*sink - max))));
  }
  const auto factor = hn::Set(d, scale), sum = hn::Set(d, state.sum);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Div(hn::Mul(hn::LoadU(d, merged + i), factor), sum), d, out + i);
  }
  if (i < n) hn::StoreN(hn::Div(hn::Mul(hn::LoadN(d, merged + i, n - i), factor), sum), d, out + i, n - i);
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
