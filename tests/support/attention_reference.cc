#include "tests/support/attention_reference.h"

#include <algorithm>
#include <cmath>

#include "tests/support/guarded.h"

namespace linnet::testing {

namespace {

constexpr double kUnit = 1.0 / (1 << 24);

void Fill(std::vector<float>& values, size_t n, Random& random) {
  values.resize(n);
  for (float& value : values) value = random.Uniform(-1, 1);
}

struct Score {
  double value, error;
};

Score ScoreOf(const AttentionInputs& in, const ops::AttentionOptions& options, uint32_t pos, uint32_t head, uint32_t j,
              double stored_rounding) {
  const uint32_t group = in.shape.n_heads / in.shape.n_kv_heads;
  const float* q = in.q_row(pos, head);
  const float* k = in.k_row(j, head / group);
  double sum = 0, magnitude = 0;
  for (uint32_t d = 0; d < in.shape.head_dim; ++d) {
    sum += double{q[d]} * k[d];
    magnitude += std::abs(double{q[d]} * k[d]);
  }
  const double scale = options.score_scale, cap = options.logit_soft_cap;
  Score score = {sum * scale, ((in.shape.head_dim + 8) * kUnit + stored_rounding) * magnitude * std::abs(scale)};
  if (cap > 0) score = {cap * std::tanh(score.value / cap), score.error + 12 * kUnit * cap};
  if (options.alibi_slopes != nullptr) {
    const double bias = double{options.alibi_slopes[head]} * (double(j) - double(pos));
    score.value += bias;
    score.error += 4 * kUnit * (std::abs(bias) + std::abs(score.value));
  }
  return score;
}

}  // namespace

AttentionInputs RandomInputs(const AttentionShape& shape, uint32_t n_tokens, uint64_t seed) {
  AttentionInputs inputs;
  inputs.shape = shape;
  inputs.n_tokens = n_tokens;
  Random random(seed);
  Fill(inputs.q, size_t{n_tokens} * shape.n_heads * shape.head_dim, random);
  Fill(inputs.k, size_t{n_tokens} * shape.n_kv_heads * shape.head_dim, random);
  if (!shape.latent) Fill(inputs.v, size_t{n_tokens} * shape.n_kv_heads * shape.value_dim, random);
  return inputs;
}

ReferenceRow ReferenceAttention(const AttentionInputs& in, const ops::AttentionOptions& options, uint32_t pos,
                                uint32_t head, double stored_rounding) {
  const uint32_t first = options.window != 0 && pos >= options.window ? pos - options.window + 1 : 0;
  const uint32_t kv_head = head / (in.shape.n_heads / in.shape.n_kv_heads);
  std::vector<Score> scores;
  double max = options.sinks != nullptr ? options.sinks[head] : -INFINITY, worst = 0;
  for (uint32_t j = first; j <= pos; ++j) {
    scores.push_back(ScoreOf(in, options, pos, head, j, stored_rounding));
    max = std::max(max, scores.back().value);
    worst = std::max(worst, scores.back().error);
  }
  const size_t value_dim = in.shape.value_dim;
  std::vector<double> sums(value_dim), magnitudes(value_dim);
  double denominator = options.sinks != nullptr ? std::exp(options.sinks[head] - max) : 0, weighted_distance = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    const double p = std::exp(scores[i].value - max);
    denominator += p;
    weighted_distance = std::max(weighted_distance, p * (max - scores[i].value));
    const float* v = in.v_row(first + static_cast<uint32_t>(i), kv_head);
    for (size_t d = 0; d < value_dim; ++d) {
      sums[d] += p * v[d];
      magnitudes[d] += p * std::abs(double{v[d]});
    }
  }
  const double chain = std::min<double>(static_cast<double>(scores.size()), ops::kAttentionSplit) +
                       static_cast<double>(scores.size()) / ops::kAttentionSplit + 32;
  const double relative = std::expm1(2 * worst) + 2 * chain * kUnit + 8 * kUnit * weighted_distance + stored_rounding;
  ReferenceRow row;
  for (size_t d = 0; d < value_dim; ++d) {
    row.out.push_back(sums[d] / denominator);
    // The denominator's error is relative to the result, which the magnitude bounds. 1e-37: what exp flushes to zero.
    row.bound.push_back(2 * relative * magnitudes[d] / denominator + 1e-37);
  }
  return row;
}

}  // namespace linnet::testing
