// Public header. Chooses the next token from logits.
#ifndef LINNET_CORE_SAMPLER_H_
#define LINNET_CORE_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/status.h"

namespace linnet {

/// Applied in the order that transformers applies them: penalty, temperature, top_k, top_p, min_p.
struct SamplerOptions {
  float temperature = 0.0f;         // 0: greedy (the penalty still applies); at most kMaxTemperature
  int32_t top_k = 0;                // the k most likely; 0 or >= vocab_size: all
  float top_p = 1.0f;               // in [0, 1]: the fewest tokens whose probability reaches it, at least one; 1: all
  float min_p = 0.0f;               // in [0, 1]: tokens at least this likely, relative to the most likely; 0: all
  float repetition_penalty = 1.0f;  // > 0: a seen token's logit is divided by it (multiplied where negative)
  uint32_t penalty_window = 0;      // the penalty sees the last this many tokens; 0: all since Reset
  uint64_t seed = 0;
};

constexpr float kMaxTemperature = 1e4f;   // above it, softmax over any vocabulary is flat
constexpr float kMinTemperature = 1e-5f;  // below it (but 0), 1 / temperature would overflow differences of logits
constexpr uint32_t kMaxPenaltyWindow = 1u << 24;  // kMaxContext of core/base/model_config.h
constexpr size_t kMaxSamplerVocab = 1u << 24;     // kMaxVocab of core/base/model_config.h

/// Draws tokens. Deterministic: the same options, seed and logits give the same tokens. Its memory is the caller's;
/// no call after Create allocates.
class Sampler {
 public:
  /// Bytes of scratch for these options; at most about 9 bytes per token of the vocabulary plus 4 per token of the
  /// window.
  static size_t ScratchBytes(const SamplerOptions& options, size_t vocab_size);

  /// `scratch` is aligned to 8 bytes, outlives the Sampler and is its own.
  /// Errors: kInvalidArgument naming the option that is out of range (NaN included) or vocab_size 0 or too large;
  /// kOutOfMemory where scratch is too small.
  static Result<Sampler> Create(const SamplerOptions& options, size_t vocab_size, std::span<std::byte> scratch);

  /// Forgets the tokens seen and starts the random sequence again from the seed.
  void Reset();

  /// Records a token of the prompt or of the answer (Sample does not record its own). Ids outside the vocabulary are
  /// ignored.
  void Accept(int32_t id);
  void Accept(std::span<const int32_t> ids);

  /// The next token, from logits [vocab_size], which are not changed. Greedy takes the lowest index among equals.
  /// Errors: kInvalidArgument where the size is another; kInvalidModel where a logit is NaN or +inf, or all are -inf.
  Result<int32_t> Sample(std::span<const float> logits);

 private:
  Sampler() = default;
  void ApplyPenalty();
  void Penalize(uint32_t id);
  int32_t Draw(float max);
  size_t SelectCandidates(double total);
  bool Likelier(uint32_t a, uint32_t b) const;
  void CollectTopK(size_t k);
  size_t CollectReaching(double target);
  size_t KeepTopP(size_t n, double target);
  template <typename CandidateId>
  int32_t PickFrom(size_t n, const CandidateId& candidate_id);
  double NextUniform();

  SamplerOptions options_;
  size_t vocab_size_ = 0;
  std::span<float> weights_;    // [vocab_size]: penalized logits, then their exponentials
  std::span<uint32_t> order_;   // [vocab_size]: ids, the likeliest first as far as top_k and top_p need
  std::span<uint64_t> seen_;    // one bit a token of the vocabulary
  std::span<uint32_t> window_;  // [penalty_window]: ring of the last tokens
  size_t window_used_ = 0;
  size_t window_next_ = 0;
  uint64_t rng_state_ = 0;
};

}  // namespace linnet

#endif  // LINNET_CORE_SAMPLER_H_
