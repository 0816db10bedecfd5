#include "core/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/sampling.h"

namespace linnet {
namespace {

constexpr size_t kBitsPerWord = 64;
// How many of the likeliest tokens top_p sorts first; it rarely needs more, and then takes twice as many each time.
constexpr size_t kFirstSorted = 64;

/// The parts of the scratch. The one layout: ScratchBytes measures it, Create places it.
struct SamplerLayout {
  size_t seen_words = 0;
  size_t weights = 0;
  size_t order = 0;
  size_t window = 0;

  SamplerLayout(const SamplerOptions& options, size_t vocab_size) {
    const bool penalizes = options.repetition_penalty != 1.0f;
    seen_words = penalizes ? (vocab_size + kBitsPerWord - 1) / kBitsPerWord : 0;
    weights = vocab_size;
    order = vocab_size;
    window = penalizes ? options.penalty_window : 0;
  }
  size_t bytes() const {
    return seen_words * sizeof(uint64_t) + weights * sizeof(float) + (order + window) * sizeof(uint32_t);
  }
};

Status ValidateOptions(const SamplerOptions& options) {
  const StatusCode invalid = StatusCode::kInvalidArgument;
  const float temperature = options.temperature;
  // Written so that NaN fails every test.
  if (!(temperature == 0.0f || (temperature >= kMinTemperature && temperature <= kMaxTemperature))) {
    return Status(invalid, "temperature must be 0 or from 0.00001 to 10000");
  }
  if (options.top_k < 0) return Status(invalid, "top_k must not be negative", options.top_k);
  if (!(options.top_p >= 0.0f && options.top_p <= 1.0f)) return Status(invalid, "top_p must be from 0 to 1");
  if (!(options.min_p >= 0.0f && options.min_p <= 1.0f)) return Status(invalid, "min_p must be from 0 to 1");
  if (!(options.repetition_penalty > 0.0f && std::isfinite(options.repetition_penalty))) {
    return Status(invalid, "repetition_penalty must be greater than 0 and finite");
  }
  if (options.penalty_window > kMaxPenaltyWindow) {
    return Status(invalid, "penalty_window is above the largest context", options.penalty_window);
  }
  return Status::Ok();
}

}  // namespace

size_t Sampler::ScratchBytes(const SamplerOptions& options, size_t vocab_size) {
  return SamplerLayout(options, vocab_size).bytes();
}

Result<Sampler> Sampler::Create(const SamplerOptions& options, size_t vocab_size, std::span<std::byte> scratch) {
  LINNET_RETURN_IF_ERROR(ValidateOptions(options));
  if (vocab_size == 0 || vocab_size > kMaxSamplerVocab) {
    return Status(StatusCode::kInvalidArgument, "the sampler's vocabulary size is out of range",
                  static_cast<int64_t>(vocab_size));
  }
  const SamplerLayout layout(options, vocab_size);
  if (scratch.size() < layout.bytes()) {
    return Status(StatusCode::kOutOfMemory, "the sampler's scratch is too small", static_cast<int64_t>(layout.bytes()));
  }
  if (reinterpret_cast<uintptr_t>(scratch.data()) % alignof(uint64_t) != 0) {
    return Status(StatusCode::kInvalidArgument, "the sampler's scratch is not aligned to 8 bytes");
  }
  Sampler sampler;
  sampler.options_ = options;
  sampler.vocab_size_ = vocab_size;
  sampler.seen_ = {reinterpret_cast<uint64_t*>(scratch.data()), layout.seen_words};
  sampler.weights_ = {reinterpret_cast<float*>(sampler.seen_.data() + layout.seen_words), layout.weights};
  sampler.order_ = {reinterpret_cast<uint32_t*>(sampler.weights_.data() + layout.weights), layout.order};
  sampler.window_ = {sampler.order_.data() + layout.order, layout.window};
  sampler.Reset();
  return sampler;
}

void Sampler::Reset() {
  std::ranges::fill(seen_, 0u);
  window_used_ = 0;
  window_next_ = 0;
  rng_state_ = options_.seed;
}

void Sampler::Accept(std::span<const int32_t> ids) {
  for (const int32_t id : ids) Accept(id);
}

void Sampler::Accept(int32_t id) {
  if (seen_.empty() || id < 0 || static_cast<size_t>(id) >= vocab_size_) return;
  const uint32_t token = static_cast<uint32_t>(id);
  if (window_.empty()) {
    seen_[token / kBitsPerWord] |= uint64_t{1} << (token % kBitsPerWord);
    return;
  }
  window_[window_next_] = token;
  window_next_ = window_next_ + 1 == window_.size() ? 0 : window_next_ + 1;
  window_used_ = std::min(window_used_ + 1, window_.size());
}

void Sampler::Penalize(uint32_t id) {
  float& logit = weights_[id];
  logit = logit < 0.0f ? logit * options_.repetition_penalty : logit / options_.repetition_penalty;
}

/// Every token seen is penalized once, however often it occurred.
void Sampler::ApplyPenalty() {
  if (window_.empty()) {
    for (size_t word = 0; word < seen_.size(); ++word) {
      for (uint64_t bits = seen_[word]; bits != 0; bits &= bits - 1) {
        Penalize(static_cast<uint32_t>(word * kBitsPerWord + static_cast<size_t>(__builtin_ctzll(bits))));
      }
    }
    return;
  }
  const std::span<const uint32_t> used = window_.first(window_used_);
  for (const uint32_t id : used) {  // the bits only find repetitions here, and are cleared again below
    const uint64_t bit = uint64_t{1} << (id % kBitsPerWord);
    if ((seen_[id / kBitsPerWord] & bit) == 0) Penalize(id);
    seen_[id / kBitsPerWord] |= bit;
  }
  for (const uint32_t id : used) seen_[id / kBitsPerWord] = 0;
}

Result<int32_t> Sampler::Sample(std::span<const float> logits) {
  if (logits.size() != vocab_size_) {
    return Status(StatusCode::kInvalidArgument, "the logits have another size than the sampler's vocabulary",
                  static_cast<int64_t>(logits.size()));
  }
  std::span<const float> scored = logits;
  const bool draws = options_.temperature != 0.0f;
  ops::LogitScan scan = ops::ScanLogits(logits);
  if (scan.all_valid && (draws || !seen_.empty())) {
    std::ranges::copy(logits, weights_.begin());
    scored = weights_;
    if (!seen_.empty()) {
      ApplyPenalty();
      scan = ops::ScanLogits(scored);
    }
  }
  if (!scan.all_valid) return Status(StatusCode::kInvalidModel, "a logit is not a number or infinite");
  if (!std::isfinite(scan.max)) return Status(StatusCode::kInvalidModel, "no token has a finite logit");
  if (!draws) return static_cast<int32_t>(scan.argmax);
  return Draw(scan.max);
}

/// True where token a comes before token b: the likelier first, the lower id among equals, which makes the order, and
/// with it the result, unique.
bool Sampler::Likelier(uint32_t a, uint32_t b) const {
  return weights_[a] != weights_[b] ? weights_[a] > weights_[b] : a < b;
}

/// order_[0, k) becomes the k likeliest tokens, sorted. A heap with the least likely of the best so far on top: one
/// comparison for nearly every token of a large vocabulary.
void Sampler::CollectTopK(size_t k) {
  const auto likelier = [this](uint32_t a, uint32_t b) { return Likelier(a, b); };
  const std::span<uint32_t> best = order_.first(k);
  for (size_t i = 0; i < k; ++i) best[i] = static_cast<uint32_t>(i);
  std::ranges::make_heap(best, likelier);
  for (size_t i = k; i < vocab_size_; ++i) {
    if (weights_[i] <= weights_[best[0]]) continue;  // an equal weight loses by its higher id
    std::ranges::pop_heap(best, likelier);
    best[k - 1] = static_cast<uint32_t>(i);
    std::ranges::push_heap(best, likelier);
  }
  std::ranges::sort_heap(best, likelier);
}

/// order_ becomes the tokens of weight at least some threshold that together reach `target`, in no useful order;
/// returns how many. Tokens below the threshold cannot be among the fewest that reach it, so they need no sorting.
size_t Sampler::CollectReaching(double target) {
  size_t count = 0;
  for (const float threshold : {0x1p-10f, 0x1p-20f, 0.0f}) {
    count = 0;
    double sum = 0.0;
    for (size_t i = 0; i < vocab_size_; ++i) {
      if (weights_[i] < threshold) continue;
      order_[count++] = static_cast<uint32_t>(i);
      sum += static_cast<double>(weights_[i]);
    }
    if (sum >= target) break;
  }
  return count;
}

/// How many of the first `n` tokens of order_ top_p keeps: the likeliest ones up to the sum `target`, at least one.
/// Sorts only as far as it needs to.
size_t Sampler::KeepTopP(size_t n, double target) {
  const auto likelier = [this](uint32_t a, uint32_t b) { return Likelier(a, b); };
  const auto begin = order_.begin();
  double sum = 0.0;
  size_t kept = 0, sorted = 0, step = kFirstSorted;
  while (kept < n) {
    if (kept == sorted) {
      sorted = std::min(n, sorted + step);
      step *= 2;
      std::nth_element(begin + kept, begin + sorted - 1, begin + n, likelier);
      std::sort(begin + kept, begin + sorted, likelier);
    }
    sum += static_cast<double>(weights_[order_[kept++]]);
    if (sum >= target) break;
  }
  return kept;
}

/// Makes order_ start with the tokens that top_k and top_p leave, the likeliest first; returns how many.
/// `total` is the sum of all weights.
size_t Sampler::SelectCandidates(double total) {
  const double top_p = static_cast<double>(options_.top_p);
  const size_t top_k = static_cast<size_t>(options_.top_k);
  if (top_k == 0 || top_k >= vocab_size_) return KeepTopP(CollectReaching(top_p * total), top_p * total);
  CollectTopK(top_k);
  if (options_.top_p >= 1.0f) return top_k;
  double kept_total = 0.0;
  for (const uint32_t id : order_.first(top_k)) kept_total += static_cast<double>(weights_[id]);
  return KeepTopP(top_k, top_p * kept_total);
}

/// weights_ holds penalized logits whose greatest is `max`.
int32_t Sampler::Draw(float max) {
  const double total = ops::ExpOfLogits(weights_, max, 1.0f / options_.temperature);
  const bool all =
      options_.top_p >= 1.0f && (options_.top_k == 0 || static_cast<size_t>(options_.top_k) >= vocab_size_);
  if (all) return PickFrom(vocab_size_, [](size_t i) { return static_cast<uint32_t>(i); });
  const size_t n_candidates = SelectCandidates(total);
  return PickFrom(n_candidates, [this](size_t i) { return order_[i]; });
}

/// Draws among `n` candidates in proportion to their weights; those below min_p (the greatest weight is 1) do not
/// count.
template <typename CandidateId>
int32_t Sampler::PickFrom(size_t n, const CandidateId& candidate_id) {
  double total = 0.0;
  for (size_t i = 0; i < n; ++i) {
    const float weight = weights_[candidate_id(i)];
    if (weight >= options_.min_p) total += static_cast<double>(weight);
  }
  const double target = NextUniform() * total;
  double sum = 0.0;
  uint32_t chosen = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t id = candidate_id(i);
    const float weight = weights_[id];
    if (weight <= 0.0f || weight < options_.min_p) continue;
    chosen = id;  // the last one where rounding leaves the sum just below the target
    sum += static_cast<double>(weight);
    if (sum > target) break;
  }
  return static_cast<int32_t>(chosen);
}

/// In [0, 1), 53 bits. SplitMix64: one addition and a mixing function, the same on every platform.
double Sampler::NextUniform() {
  rng_state_ += 0x9E3779B97F4A7C15u;
  uint64_t z = rng_state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1.0p-53;
}

}  // namespace linnet
