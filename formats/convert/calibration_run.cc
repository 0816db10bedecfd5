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
  LINNET_RETURN_IF_ERROR(EmbedAs(plans_[0], &stream_));
  if (options_.correction == 0.0f) return Status::Ok();
  exact_.resize(stream_.size());
  TensorPlan exact = plans_[0];
  exact.spec.dtype = DType::kF32;
  exact.spec.block_size = exact.spec.rotation_block = 0;
  return EmbedAs(exact, &exact_);
}

Status CalibrationRun::EmbedAs(const TensorPlan& table, std::vector<float>* stream) {
  PartTensors tensors;
  std::vector<int32_t> places;
  const std::vector<int32_t> rows = DistinctIds(options_.ids, &places);
  LINNET_RETURN_IF_ERROR(AppendRounded(checkpoint_, table, rows, &tensors, diagnostic_));
  LINNET_RETURN_IF_ERROR(AppendEmbeddingRest(checkpoint_, plans_, &tensors, diagnostic_));
  PartRun run;
  run.window = options_.window;
  run.ids = places;
  run.stream = *stream;
  return RunPart(options_, EmbeddingPart(config(), static_cast<uint32_t>(rows.size())), tensors, run,
                 PartOf(step_, 0.0, 0.0));
}

Status CalibrationRun::FinishBlock() {
  gatherer_.Clear();
  LINNET_RETURN_IF_ERROR(AdvanceExact());
  exact_advanced_ = false;
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
  if (index < block_end_ || (layer < 0 && block_end_ == 0)) return Status::Ok();
  if (block_end_ == 0) {
    LINNET_RETURN_IF_ERROR(Embed());
  } else {
    LINNET_RETURN_IF_ERROR(FinishBlock());
  }
  block_begin_ = block_end_ = index;
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

Status CalibrationRun::AppendExactBlock(PartTensors* tensors) {
  for (size_t i = block_begin_; i < block_end_; ++i) {
    const TensorRole role = plans_[i].spec.role;
    if (role == TensorRole::kHead || role == TensorRole::kHeadBias) continue;  // only its inputs are wanted
    LINNET_RETURN_IF_ERROR(AppendDecoded(checkpoint_, plans_[i], tensors, diagnostic_));
  }
  AppendStandInTable(config().model_dim, tensors);
  return Status::Ok();
}

// Every window of the exact stream, and after it the same window of the other.
std::vector<float> CalibrationRun::Interleaved() const {
  const auto size = static_cast<ptrdiff_t>(options_.window * size_t{config().model_dim});
  std::vector<float> both;
  both.reserve(2 * stream_.size());
  for (ptrdiff_t begin = 0; begin < static_cast<ptrdiff_t>(stream_.size()); begin += size) {
    both.insert(both.end(), exact_.begin() + begin, exact_.begin() + begin + size);
    both.insert(both.end(), stream_.begin() + begin, stream_.begin() + begin + size);
  }
  return both;
}

// Both streams through the exact block. The rounded one's output is of no use: it goes through the rounded block later.
Status CalibrationRun::Gather(size_t index, uint64_t group) {
  gatherer_.Choose(block_begin_, index, group, block_end_);
  const int32_t layer = plans_[index].spec.layer;
  // Once the exact stream has moved on (a block with more moments than fit), the rest is gathered without it.
  const bool paired = !exact_.empty() && !exact_advanced_ && layer >= 0;
  PartTensors tensors;
  LINNET_RETURN_IF_ERROR(AppendExactBlock(&tensors));
  PartRun run;
  run.window = options_.window;
  run.inputs = gatherer_.sink(layer < 0, paired ? options_.window : 0);
  std::vector<float> stream = paired ? Interleaved() : stream_;
  run.stream = stream;
  if (layer < 0) run.logits = {[](void*, size_t, const float*, size_t) {}, nullptr};
  const ModelConfig part = layer < 0 ? HeadPart(config(), 1) : BlockPart(config(), static_cast<uint32_t>(layer));
  LINNET_RETURN_IF_ERROR(RunPart(options_, part, tensors, run, PartOf(step_, 0.0, kGatherShare)));
  gatherer_.Finish();
  if (!paired) return Status::Ok();
  const size_t size = options_.window * size_t{config().model_dim};
  for (size_t i = 0; i * size < exact_.size(); ++i) {
    std::copy_n(stream.begin() + static_cast<ptrdiff_t>(2 * i * size), size,
                exact_.begin() + static_cast<ptrdiff_t>(i * size));
  }
  exact_advanced_ = true;
  return Status::Ok();
}

// Where nothing was gathered for the block (it was there from an earlier run, or is not rounded).
Status CalibrationRun::AdvanceExact() {
  if (exact_.empty() || exact_advanced_) return Status::Ok();
  PartTensors tensors;
  LINNET_RETURN_IF_ERROR(AppendExactBlock(&tensors));
  PartRun run;
  run.window = options_.window;
  run.stream = exact_;
  const auto layer = static_cast<uint32_t>(plans_[block_begin_].spec.layer);
  return RunPart(options_, BlockPart(config(), layer), tensors, run, PartOf(step_, 0.0, kGatherShare));
}

Result<const InputMoments*> CalibrationRun::Moments(size_t index, uint64_t group) {
  const InputMoments* moments = gatherer_.Find(index, group);
  if (moments != nullptr) return moments;
  LINNET_RETURN_IF_ERROR(Gather(index, group));
  return gatherer_.Find(index, group);
}

}  // namespace linnet::formats
