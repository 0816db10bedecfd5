// KL divergences between rows of logits that arrive in chunks of the vocabulary.
#ifndef LINNET_FORMATS_CONVERT_LOGITS_COMPARISON_H_
#define LINNET_FORMATS_CONVERT_LOGITS_COMPARISON_H_

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "formats/convert/resume_store.h"

namespace linnet::formats {

/// Logarithm of a sum of exponentials, taken as its terms come.
class LogSumExp {
 public:
  void Add(const float* logits, size_t n) {
    double largest = max_;
    for (size_t i = 0; i < n; ++i) largest = std::fmax(largest, double{logits[i]});
    double sum = max_ == largest ? sum_ : sum_ * std::exp(max_ - largest);
    const auto shift = static_cast<float>(largest);
    for (size_t i = 0; i < n; ++i) sum += std::exp(logits[i] - shift);
    max_ = largest;
    sum_ = sum;
  }
  double value() const { return max_ + std::log(sum_); }

 private:
  double max_ = -std::numeric_limits<double>::infinity(), sum_ = 0.0;
};

/// For each of n_streams streams of n_rows rows: KL divergence of its distribution from the reference's, in two passes
/// over the vocabulary, chunk after chunk: AddReference of every row; then SetReference and Add of every row.
/// Different rows may be added at once.
class LogitsComparison {
 public:
  LogitsComparison(size_t n_rows, size_t n_streams)
      : n_rows_(n_rows), reference_(n_rows), streams_(n_streams * n_rows), weighted_(n_streams * n_rows) {}

  size_t n_rows() const { return n_rows_; }

  void AddReference(size_t row, const float* logits, size_t n) { reference_[row].Add(logits, n); }

  /// Makes room for the reference's chunk of n logits a row.
  void BeginChunk(size_t n) {
    size_ = n;
    logits_.resize(n_rows_ * n);
    weights_.resize(n_rows_ * n);
  }
  void SetReference(size_t row, const float* logits) {
    const auto shift = static_cast<float>(reference_[row].value());
    for (size_t i = 0; i < size_; ++i) {
      logits_[row * size_ + i] = logits[i];
      weights_[row * size_ + i] = std::exp(logits[i] - shift);
    }
  }
  void Add(size_t stream, size_t row, const float* logits) {
    const float *base = logits_.data() + row * size_, *weight = weights_.data() + row * size_;
    double sum = 0.0;
    for (size_t i = 0; i < size_; ++i) sum += double{weight[i]} * (base[i] - logits[i]);
    weighted_[stream * n_rows_ + row] += sum;
    streams_[stream * n_rows_ + row].Add(logits, size_);
  }

  /// What the passes have come to so far. Restore: into one of the same size; false where the bytes are of another.
  void Save(PieceWriter* piece) const {
    piece->Bytes(std::as_bytes(std::span(reference_)));
    piece->Bytes(std::as_bytes(std::span(streams_)));
    piece->Bytes(std::as_bytes(std::span(weighted_)));
  }
  bool Restore(PieceReader* piece) {
    return piece->Fill(std::as_writable_bytes(std::span(reference_))) &&
           piece->Fill(std::as_writable_bytes(std::span(streams_))) &&
           piece->Fill(std::as_writable_bytes(std::span(weighted_)));
  }

  /// Mean over the rows, in nats.
  double MeanKl(size_t stream) const {
    double sum = 0.0;
    for (size_t row = 0; row < n_rows_; ++row) {
      const size_t i = stream * n_rows_ + row;
      sum += weighted_[i] - reference_[row].value() + streams_[i].value();
    }
    return sum / static_cast<double>(n_rows_);
  }

 private:
  size_t n_rows_, size_ = 0;
  std::vector<LogSumExp> reference_;  // [n_rows]
  std::vector<LogSumExp> streams_;    // [n_streams, n_rows]
  std::vector<double> weighted_;      // [n_streams, n_rows]: sum of p * (reference logit - logit)
  std::vector<float> logits_;         // [n_rows, size]: the reference's chunk
  std::vector<float> weights_;        // and the probabilities of its logits
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_LOGITS_COMPARISON_H_
