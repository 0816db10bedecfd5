#include "ops/online_softmax.h"

#include <algorithm>
#include <cmath>

namespace linnet::ops {

namespace {
constexpr float kMasked = -std::numeric_limits<float>::infinity();
}  // namespace

OnlineSoftmax::OnlineSoftmax(std::span<float> output) : output_(output) {
  std::fill(output_.begin(), output_.end(), 0.0f);
}

void OnlineSoftmax::Add(std::span<const float> scores, const float* values) {
  float max = max_;
  for (const float score : scores) max = std::max(max, score);
  if (max == kMasked) return;
  const float keep = std::exp(max_ - max);  // 0 for the first block
  sum_ *= keep;
  for (float& o : output_) o *= keep;
  max_ = max;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] == kMasked) continue;
    const float p = std::exp(scores[i] - max_);
    sum_ += p;
    const float* value = values + i * output_.size();
    for (size_t d = 0; d < output_.size(); ++d) output_[d] += p * value[d];
  }
}

Status OnlineSoftmax::Finish() {
  if (max_ == kMasked) return Status(StatusCode::kInvalidArgument, "every score of a softmax is masked");
  for (float& o : output_) o /= sum_;
  return Status::Ok();
}

}  // namespace linnet::ops
