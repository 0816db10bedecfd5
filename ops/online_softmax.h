// Public header. Softmax-weighted sum of values whose scores arrive in blocks: the recurrence behind ops/attention.h.
#ifndef LINNET_OPS_ONLINE_SOFTMAX_H_
#define LINNET_OPS_ONLINE_SOFTMAX_H_

#include <cstddef>
#include <limits>
#include <span>

#include "core/base/status.h"

namespace linnet::ops {

/// sum_i softmax(scores)_i * values_i in one pass and constant memory. Kept between blocks: m, the largest score so
/// far; l = sum_i exp(s_i - m); o = sum_i exp(s_i - m) * v_i. A block with a larger maximum m' multiplies l and o by
/// exp(m - m') first, so that no exponential overflows, whatever the scores.
///
/// Scores 2, 3 | 5, 1 and values 1, 2 | 3, 4:
///   after 2, 3:  m = 3, l = e^-1 + 1 = 1.3679,  o = 1 * e^-1 + 2 * 1 = 2.3679
///   after 5, 1:  m = 5, both times e^-2:  l = 0.1851 + 1 + e^-4 = 1.2034,  o = 0.3205 + 3 + 4 * e^-4 = 3.3937
///   result o / l = 2.8200
///
/// Numerics: f32; blocks of any size give the same result to rounding. Source: arXiv:1805.02867, arXiv:2205.14135.
class OnlineSoftmax {
 public:
  /// output: [value_dim], holds o between blocks and the result after Finish; the caller's, and cleared here.
  explicit OnlineSoftmax(std::span<float> output);

  /// Adds a block: scores [n], values [n][value_dim] without gaps. A score of -inf is masked: its value is not read.
  void Add(std::span<const float> scores, const float* values);

  /// output = o / l. Errors: kInvalidArgument where no score was above -inf: a row that is masked whole has no softmax.
  Status Finish();

  float max() const { return max_; }
  float sum() const { return sum_; }

 private:
  std::span<float> output_;
  float max_ = -std::numeric_limits<float>::infinity();
  float sum_ = 0.0f;
};

}  // namespace linnet::ops

#endif  // LINNET_OPS_ONLINE_SOFTMAX_H_
