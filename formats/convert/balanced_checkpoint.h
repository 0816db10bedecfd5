// A checkpoint whose keys suit a cache of few bits. Internal to formats/convert.
#ifndef LINNET_FORMATS_CONVERT_BALANCED_CHECKPOINT_H_
#define LINNET_FORMATS_CONVERT_BALANCED_CHECKPOINT_H_

#include <vector>

#include "formats/checkpoint.h"

namespace linnet::formats {

/// Passes a source on, with the channels of some keys divided by powers of two and those of their queries multiplied by
/// the same: every score, hence every logit, stays what it is to the bit, in every type of weights. Where a bias makes
/// a few channels of a key a hundred times as large as the others (Qwen2), an int8 cache would round the others away.
/// README.md has the measurement.
class BalancedCheckpoint final : public Checkpoint {
 public:
  /// Reads the query and key rows of layers with such a bias. `source` outlives the result. Errors: ReadRows'.
  static Result<BalancedCheckpoint> Create(const Checkpoint& source, Diagnostic* diagnostic);

  const CheckpointInfo& info() const override { return source_->info(); }
  std::span<const SourceFile> files() const override { return source_->files(); }
  SourceType TypeOf(const TensorRequirement& tensor) const override { return source_->TypeOf(tensor); }
  Status ReadRows(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                  std::span<float> out, Diagnostic* diagnostic) const override;
  uint32_t Q4GridBlock(const TensorRequirement& tensor) const override { return source_->Q4GridBlock(tensor); }
  Status ReadQ4Grid(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                    const Q4GridRows& out, Diagnostic* diagnostic) const override;
  void Release(const TensorRequirement& tensor) const override { source_->Release(tensor); }

 private:
  explicit BalancedCheckpoint(const Checkpoint& source) : source_(&source) {}

  // Factors of a layer's query and key rows; empty where nothing is changed.
  std::span<const float> factors(const TensorRequirement& tensor) const;

  const Checkpoint* source_;
  std::vector<std::vector<float>> factors_;  // [n_layers]
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_BALANCED_CHECKPOINT_H_
