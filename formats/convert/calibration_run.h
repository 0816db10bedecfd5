// Runs the model block by block while it is converted, so that every block is rounded by the inputs that it will see.
#ifndef LINNET_FORMATS_CONVERT_CALIBRATION_RUN_H_
#define LINNET_FORMATS_CONVERT_CALIBRATION_RUN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/model_view.h"
#include "core/base/part_runner.h"
#include "core/base/status.h"
#include "formats/checkpoint.h"
#include "formats/convert/convert.h"
#include "formats/convert/moments_gatherer.h"
#include "formats/convert/part_tensors.h"
#include "formats/convert/tensor_plan.h"

namespace linnet::formats {

/// Called with the share of the work that is done; a status that is not Ok stops the run.
using RunStepFunction = std::function<Status(double share)>;

/// `step` for a part of the work: from `begin` on, `size` of it.
RunStepFunction PartOf(const RunStepFunction& step, double begin, double size);

/// Shares of a block's time: gathering its inputs, rounding it, running it rounded.
constexpr double kGatherShare = 0.5, kRoundShare = 0.25;

/// options.runner->Run with `step` as its progress; the step's own status comes back.
Status RunPart(const CalibrationOptions& options, const ModelConfig& config, const PartTensors& tensors, PartRun run,
               const RunStepFunction& step);

/// The residual stream of the calibration text at the block that is being converted, and the stored form of that
/// block's tensors. Blocks are entered in order. The stream goes through the stored (rounded) form of every block, with
/// the kernels that will run it, so that later blocks are fitted to the errors of earlier ones.
/// Memory: the stream, twice; one block's weights as f32, twice, while its inputs are gathered; the moments.
class CalibrationRun {
 public:
  /// Everything outlives the run. `plans` are all tensors in file order. `step` gets shares of the block at hand.
  CalibrationRun(const Checkpoint& checkpoint, const std::vector<TensorPlan>& plans, const CalibrationOptions& options,
                 RunStepFunction step, Diagnostic* diagnostic);

  /// To be called before plan `index` is converted, in file order but for the table of a tied model, which may come
  /// last: finishes the block before, once a new one begins.
  Status Enter(size_t index);
  /// The factored moments of the inputs of one group of plan `index`; valid until the next call. Runs the block where
  /// they have not been gathered yet. Groups come in order.
  Result<const InputMoments*> Moments(size_t index, uint64_t group);
  /// Appends to the stored form of plan `index`.
  void Keep(size_t index, std::span<const std::byte> data, std::span<const std::byte> scales);

  /// What Keep was given of plan `index`, whose block is at hand.
  struct StoredView {
    std::span<const std::byte> data, scales;
  };
  StoredView stored(size_t index) const;

  /// Matrices that the text gave too few inputs, so that they were rounded to nearest.
  uint32_t unseen_matrices() const { return gatherer_.unseen_matrices(); }

 private:
  struct Stored {
    AlignedBytes data, scales;
    size_t data_size = 0, scales_size = 0;  // filled
  };

  Status Embed();
  Status FinishBlock();
  Status Gather(size_t index, uint64_t group);
  const ModelConfig& config() const { return checkpoint_.info().config; }

  const Checkpoint& checkpoint_;
  const std::vector<TensorPlan>& plans_;
  const CalibrationOptions& options_;
  const RunStepFunction step_;
  Diagnostic* const diagnostic_;
  MomentsGatherer gatherer_;
  std::vector<float> stream_;               // [n_windows, window, model_dim]
  size_t block_begin_ = 0, block_end_ = 0;  // plans of the block at hand
  std::vector<Stored> stored_;              // of the block at hand
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_CALIBRATION_RUN_H_
