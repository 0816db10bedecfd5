// KL divergences between rows of logits that arrive in chunks of the vocabulary.
#ifndef LINNET_FORMATS_CONVERT_LOGITS_COMPARISON_H_
#define LINNET_FORMATS_CONVERT_LOGITS_COMPARISON_H_

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

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
/// over the vocabulary: the reference alone (AddReference), then everything (SetReference, Add).
struct LogitsComparison {
  size_t n_rows = 0, n_streams = 0;
  std::vector<LogSumExp> reference;  // [n_rows]
  std::vector<LogSumExp> streams;    // [n_streams, n_rows]
  std::vector<double> weighted;      // [n_streams, n_rows]: sum of p * (reference logit - logit)
  std::vector<float> chunk;          // [n_rows, chunk]: the reference's logits of the chunk at hand
  size_t chunk_size = 0;

  LogitsComparison(size_t rows, size_t n)
      : n_rows(rows), n_streams(n), reference(rows), streams(n * rows), weighted(n * rows) {}

  void Add(size_t stream, size_t row, const float* logits) {
    const float* base = chunk.data() + row * chunk_size;
    const double shift = reference[row].value();
    double sum = 0.0;
    for (size_t i = 0; i < chunk_size; ++i) sum += std::exp(base[i] - shift) * (base[i] - logits[i]);
    weighted[stream * n_rows + row] += sum;
    streams[stream * n_rows + row].Add(logits, chunk_size);
  }
  /// Mean over the rows, in nats.
  double MeanKl(size_t stream) const {
    double sum = 0.0;
    for (size_t row = 0; row < n_rows; ++row) {
      const size_t i = stream * n_rows + row;
      sum += weighted[i] - reference[row].value() + streams[i].value();
    }
    return sum / static_cast<double>(n_rows);
  }
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_LOGITS_COMPARISON_H_
