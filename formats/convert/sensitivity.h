// What rounding each tensor costs the model, measured: the losses that a budget is shared out by.
#ifndef LINNET_FORMATS_CONVERT_SENSITIVITY_H_
#define LINNET_FORMATS_CONVERT_SENSITIVITY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "formats/checkpoint.h"
#include "formats/convert/calibration_run.h"
#include "formats/convert/convert.h"
#include "formats/convert/moments_gatherer.h"
#include "formats/convert/part_tensors.h"
#include "formats/convert/tensor_plan.h"

namespace linnet::formats {

/// A way to store a tensor, and the KL divergence that it is expected to cost.
struct StoredForm {
  DType dtype = DType::kQ8;
  uint32_t block_size = 0;
  uint64_t bytes = 0;
  double loss = 0.0;  // nats a token
};

/// The forms that the tensor can have, without losses.
std::vector<StoredForm> PossibleForms(const TensorPlan& plan);

struct TensorSensitivity {
  size_t index = 0;         // of the plan
  double probe_loss = 0.0;  // KL with only this tensor rounded to nearest in the plan's form
  std::vector<StoredForm> forms;
};

/// Measures every quantized matrix of a model, streaming block after block through the unrounded model. For each tensor
/// a short text goes through the model with that tensor alone rounded (to nearest, in the form of its plan); the KL
/// divergence of what comes out, times how much smaller or larger the squared error of the outputs is in another form
/// (with compensation, on a sample of rows), is that form's loss. Losses of small, independent errors add.
/// Memory: two streams of the probe for every tensor before the block at hand, and that of CalibrationRun.
class SensitivityRun {
 public:
  /// Everything outlives the run. `plans` are all tensors, those in question in their 4-bit form.
  SensitivityRun(const Checkpoint& checkpoint, const std::vector<TensorPlan>& plans, const CalibrationOptions& options,
                 RunStepFunction step, Diagnostic* diagnostic);

  /// One entry for every quantized tensor, in file order.
  Result<std::vector<TensorSensitivity>> Run();

 private:
  // A stream in which one tensor was rounded.
  struct Probe {
    size_t sensitivity = 0;  // index into result_
    std::vector<float> stream;
  };

  Status Embed();
  Status RunBlock(size_t begin, size_t end);
  Status GatherAndMeasure(size_t begin, size_t end, const PartTensors& tensors);
  Status MeasureForms(size_t index, TensorSensitivity* sensitivity, uint64_t group, const InputMoments* moments);
  Status ProbeTensors(size_t begin, size_t end, PartTensors* tensors);
  Status RunProbes(size_t begin, size_t n_probes, const PartTensors& tensors);
  Status CompareLogits();
  Status CompareChunk(uint64_t first, uint64_t count, struct LogitsComparison* comparison);
  Result<PartTensors> HeadTensors(bool rounded, uint64_t first, uint64_t count);
  Status RunHead(const PartTensors& tensors, uint64_t count, std::vector<float> rows, PartLogitsSink logits);
  size_t TableProbe() const;
  RunStepFunction Step() const;
  TensorSensitivity* Add(size_t index);
  size_t PlanOf(TensorRole role) const;
  const ModelConfig& config() const { return checkpoint_.info().config; }

  const Checkpoint& checkpoint_;
  const std::vector<TensorPlan>& plans_;
  const CalibrationOptions& options_;
  const RunStepFunction step_;
  Diagnostic* const diagnostic_;
  MomentsGatherer gatherer_;
  CalibratedRounding rounding_;
  std::vector<TensorSensitivity> result_;
  std::vector<std::vector<double>> errors_;  // as result_: squared error of the probe form, then of each form
  std::vector<int32_t> probe_ids_;
  uint32_t probe_window_ = 0;
  std::vector<float> stream_, clean_;  // of the calibration text and of the probe's, nothing rounded
  std::vector<Probe> probes_;
  double share_ = 0.0;      // of the work that is done
  bool comparing_ = false;  // the second pass over the head
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_SENSITIVITY_H_
