// What rounding each tensor costs the model, measured: the losses that a budget is shared out by.
#ifndef LINNET_FORMATS_CONVERT_SENSITIVITY_H_
#define LINNET_FORMATS_CONVERT_SENSITIVITY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "formats/checkpoint.h"
#include "formats/convert/calibration_run.h"
#include "formats/convert/convert.h"
#include "formats/convert/logits_comparison.h"
#include "formats/convert/moments_gatherer.h"
#include "formats/convert/part_tensors.h"
#include "formats/convert/resume_store.h"
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
  double probe_loss = 0.0;  // KL with only this tensor rounded, in the plan's form
  std::vector<StoredForm> forms;
};

/// Says when to save, so that saving takes a tenth of the time at most.
class SavePace {
 public:
  using Clock = std::chrono::steady_clock;

  bool IsDue() const { return Clock::now() >= due_; }
  void Saved(Clock::time_point begin) { due_ = Clock::now() + 9 * (Clock::now() - begin); }

 private:
  Clock::time_point due_;
};

/// How far the comparison of logits is: the pass over the vocabulary, and its next row of the head.
struct HeadPlace {
  bool comparing = false;  // the second pass
  uint64_t first = 0;
};

/// Measures every quantized matrix of a model, streaming block after block through the unrounded model. Most windows of
/// the calibration text give the second moments, the last ones are probes: for each tensor they go through the model
/// with that tensor alone rounded as the conversion will round it in the form of its plan. The KL divergence of what
/// comes out, times how much smaller or larger the squared error of the outputs is in another form (on a sample of
/// rows), is that form's loss. Losses of small, independent errors add. The probes' windows are not among those that
/// the rounding was fitted to (but where the text is one window), since a fit looks better there than it is.
/// Memory: a stream of the probes for every tensor before the block at hand, its logits' chunk, and that of
/// CalibrationRun. With a store the run goes on from where an earlier one was, a block or a chunk of the head at most
/// before its end; the streams are in the store then. Where there is no room for them it does without.
class SensitivityRun {
 public:
  /// Everything outlives the run. `plans` are all tensors, those in question in their 4-bit form. store: or null.
  SensitivityRun(const Checkpoint& checkpoint, const std::vector<TensorPlan>& plans, const CalibrationOptions& options,
                 const ResumeStore* store, RunStepFunction step, Diagnostic* diagnostic);

  /// One entry for every quantized tensor, in file order.
  Result<std::vector<TensorSensitivity>> Run();

 private:
  Status Embed();
  Status RunBlock(size_t begin, size_t end);
  Status MeasureBlock(size_t begin, size_t end, PartTensors* tensors);
  Status Gather(size_t begin, size_t index, uint64_t group, size_t end, const PartTensors& tensors);
  Status Round(size_t index, uint64_t group, const InputMoments& moments, std::span<std::byte> data,
               std::span<std::byte> scales);
  Status MeasureForms(TensorSensitivity* sensitivity, uint64_t group, const InputMoments* moments);
  Status CompareLogits();
  void SaveBlocks(size_t next);
  size_t RestoreBlocks();
  void SaveLogits(const HeadPlace& next, const LogitsComparison& comparison);
  HeadPlace RestoreLogits(LogitsComparison* comparison);
  void Save(const char* name, std::span<const std::span<const std::byte>> parts);
  Result<const InputMoments*> MeasureHead();
  Status CompareChunk(uint64_t first, uint64_t count, bool comparing, const InputMoments* moments,
                      LogitsComparison* comparison);
  Status AppendFinalNorm(PartTensors* tensors);
  Result<PartTensors> HeadTensors(TensorPlan plan, uint64_t first, uint64_t count, const InputMoments* moments);
  Status RunHead(const PartTensors& tensors, uint64_t count, size_t index, PartLogitsSink logits);
  size_t TableProbe() const;
  double BlockWork(double n_probes) const;
  double HeadWork(double n_probes) const;
  RunStepFunction Step() const;
  TensorSensitivity* Add(size_t index);
  size_t n_probes() const { return result_.size(); }
  size_t PlanOf(TensorRole role) const;
  size_t table() const { return config().tied_head ? 0 : PlanOf(TensorRole::kHead); }
  size_t stream_size() const { return probe_ids_.size() * config().model_dim; }
  // The probes without rounding are stream 0, those with the tensor of result_[i] rounded stream i + 1.
  std::span<float> stream(size_t i) { return std::span(streams_).subspan(i * stream_size(), stream_size()); }
  const ModelConfig& config() const { return checkpoint_.info().config; }

  const Checkpoint& checkpoint_;
  const std::vector<TensorPlan>& plans_;
  const CalibrationOptions& options_;
  const ResumeStore* store_;
  const RunStepFunction step_;
  Diagnostic* const diagnostic_;
  MomentsGatherer gatherer_;
  CalibratedRounding rounding_;
  std::vector<TensorSensitivity> result_;
  std::vector<std::vector<double>> errors_;  // as result_: squared error of each form
  std::vector<int32_t> ids_, probe_ids_;     // of the windows that give the moments, and of the probes'
  uint32_t probe_window_ = 0;
  std::vector<float> moments_stream_, next_stream_;  // of ids_, nothing rounded: before the block, and behind it
  std::vector<float> streams_;                       // [1 + result_, probe_ids_, model_dim]
  SavePace pace_;
  double work_done_ = 0.0, work_total_ = 1.0;
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_SENSITIVITY_H_
