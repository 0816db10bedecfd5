#include "formats/convert/calibration_run.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "formats/convert/model_parts.h"

namespace linnet::formats {

Status RunPart(const CalibrationOptions& options, const ModelConfig& config, const PartTensors& tensors, PartRun run,
               const RunStepFunction& step) {
  struct Watch {
    const RunStepFunction& step;
    Status status;
  } watch = {step, Status::Ok()};
  const auto progress = [](void* context, size_t rows_done, size_t rows_total) {
    auto& state = *static_cast<Watch*>(context);
    state.status = state.step(static_cast<double>(rows_done) / static_cast<double>(rows_total));
    return state.status.ok();
  };
  run.progress = {progress, &watch};
  const Status status = options.runner->Run(config, tensors.views, run);
  return watch.status.ok() ? status : watch.status;
}

RunStepFunction PartOf(const RunStepFunction& step, double begin, double size) {
  return [&step, begin, size](double share) { return step(begin + size * share); };
}

CalibrationRun::CalibrationRun(const Checkpoint& checkpoint, const std::vector<TensorPlan>& plans,
                               const CalibrationOptions& options, RunStepFunction step, Diagnostic* diagnostic)
    : checkpoint_(checkpoint),
      plans_(plans),
      options_(options),
      step_(std::move(step)),
      diagnostic_(diagnostic),
      gatherer_(plans, options),
      stream_(options.ids.size() * checkpoint.info().config.model_dim) {}

Status CalibrationRun::Embed() {
  LINNET_CHECK(plans_[0].spec.role == TensorRole::kTokenEmbedding);
  PartTensors tensors;
  std::vector<int32_t> places;
  const std::vector<int32_t> rows = DistinctIds(options_.ids, &places);
  LINNET_RETURN_IF_ERROR(AppendRounded(checkpoint_, plans_[0], rows, &tensors, diagnostic_));
  LINNET_RETURN_IF_ERROR(AppendEmbeddingRest(checkpoint_, plans_, &tensors, diagnostic_));
  PartRun run;
  run.window = options_.window;
  run.ids = places;
  run.stream = stream_;
  return RunPart(options_, EmbeddingPart(config(), static_cast<uint32_t>(rows.size())), tensors, run,
                 PartOf(step_, 0.0, 0.0));
}

Status CalibrationRun::FinishBlock() {
  gatherer_.Clear();
  PartTensors tensors;
  for (size_t i = block_begin_; i < block_end_; ++i) {
    Stored& form = stored_[i - block_begin_];
    LINNET_CHECK(form.data_size == form.data.bytes().size() && form.scales_size == form.scales.bytes().size());
    tensors.views.push_back(PartView(plans_[i].spec, form.data.bytes(), form.scales.bytes()));
  }
  AppendStandInTable(config().model_dim, &tensors);
  PartRun run;
  run.window = options_.window;
  run.stream = stream_;
  const auto layer = static_cast<uint32_t>(plans_[block_begin_].spec.layer);
  return RunPart(options_, BlockPart(config(), layer), tensors, run,
                 PartOf(step_, kGatherShare + kRoundShare, 1.0 - kGatherShare - kRoundShare));
}

Status CalibrationRun::Enter(size_t index) {
  const int32_t layer = plans_[index].spec.layer;
  const bool is_inside = index >= block_begin_ && index < block_end_, is_before = layer < 0 && block_end_ == 0;
  const bool is_last_table = layer < 0 && index < block_begin_ && plans_[block_begin_].spec.layer < 0;
  if (is_inside || is_before || is_last_table) return Status::Ok();
  if (block_end_ == 0) {
    LINNET_RETURN_IF_ERROR(Embed());
  } else {
    LINNET_RETURN_IF_ERROR(FinishBlock());
  }
  block_begin_ = std::max(index, block_end_);  // the table comes last where nothing else comes after the blocks
  block_end_ = block_begin_;
  while (block_end_ < plans_.size() && plans_[block_end_].spec.layer == layer) ++block_end_;
  gatherer_.Clear();
  stored_.clear();
  if (layer < 0) return Status::Ok();  // nothing comes after the head
  for (size_t i = block_begin_; i < block_end_; ++i) {
    const TensorSpec& spec = plans_[i].spec;
    LINNET_ASSIGN_OR_RETURN(const TensorBytes bytes, ComputeTensorBytes(spec.dtype, spec.shape(), spec.block_size));
    stored_.push_back({AlignedBytes(bytes.data), AlignedBytes(bytes.scales), 0, 0});
  }
  return Status::Ok();
}

void CalibrationRun::Keep(size_t index, std::span<const std::byte> data, std::span<const std::byte> scales) {
  if (index < block_begin_ || index >= block_end_ || stored_.empty()) return;
  Stored& form = stored_[index - block_begin_];
  std::copy(data.begin(), data.end(), form.data.bytes().data() + form.data_size);
  std::copy(scales.begin(), scales.end(), form.scales.bytes().data() + form.scales_size);
  form.data_size += data.size();
  form.scales_size += scales.size();
}

CalibrationRun::StoredView CalibrationRun::stored(size_t index) const {
  const Stored& form = stored_[index - block_begin_];
  return {form.data.bytes(), form.scales.bytes()};
}

Status CalibrationRun::Gather(size_t index, uint64_t group) {
  gatherer_.Choose(block_begin_, index, group, index < block_begin_ ? index + 1 : block_end_);
  const int32_t layer = plans_[index].spec.layer;
  PartTensors tensors;
  for (size_t i = block_begin_; i < block_end_; ++i) {
    const TensorRole role = plans_[i].spec.role;
    if (role == TensorRole::kHead || role == TensorRole::kHeadBias) continue;  // only its inputs are wanted
    LINNET_RETURN_IF_ERROR(AppendDecoded(checkpoint_, plans_[i], &tensors, diagnostic_));
  }
  AppendStandInTable(config().model_dim, &tensors);
  PartRun run;
  run.window = options_.window;
  run.inputs = gatherer_.sink(layer < 0);
  // The stream itself goes through the rounded block later.
  std::vector<float> stream = stream_;
  run.stream = stream;
  if (layer < 0) run.logits = {[](void*, size_t, const float*, size_t) {}, nullptr};
  const ModelConfig part = layer < 0 ? HeadPart(config(), 1) : BlockPart(config(), static_cast<uint32_t>(layer));
  LINNET_RETURN_IF_ERROR(RunPart(options_, part, tensors, run, PartOf(step_, 0.0, kGatherShare)));
  gatherer_.Finish();
  return Status::Ok();
}

Result<const InputMoments*> CalibrationRun::Moments(size_t index, uint64_t group) {
  const uint32_t block_size = plans_[index].spec.block_size;
  const InputMoments* moments = gatherer_.Find(index, group, block_size);
  if (moments != nullptr) return moments;
  LINNET_RETURN_IF_ERROR(Gather(index, group));
  return gatherer_.Find(index, group, block_size);
}

}  // namespace linnet::formats
