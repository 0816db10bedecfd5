#include "formats/convert/sensitivity.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/checked.h"
#include "formats/convert/model_parts.h"
#include "formats/quantize/quantize.h"
#include "ops/compensated_rounding.h"

namespace linnet::formats {
namespace {

// The probes: beginnings of the calibration text's last windows, of a fifth of them at most.
constexpr uint32_t kProbeWindows = 4, kProbeTokens = 128;
// Tiles of a matrix that are rounded in each form, evenly spread; of each expert one at least.
constexpr uint64_t kSampledTiles = 4;
struct Form {
  DType dtype;
  uint32_t block_size;
};
constexpr Form kForms[] = {{DType::kQ4, 128}, {DType::kQ4, 64}, {DType::kQ4, 32}, {DType::kQ8, 0}};

// First rows of the tiles that stand for a matrix.
std::vector<uint64_t> SampledRows(const TensorPlan& plan) {
  const uint64_t n_tiles = CeilDiv(plan.rows(), ops::kRoundingRows);
  const uint64_t n = std::min(n_tiles, std::max<uint64_t>(1, kSampledTiles / plan.groups()));
  std::vector<uint64_t> first;
  for (uint64_t i = 0; i < n; ++i) first.push_back(i * n_tiles / n * ops::kRoundingRows);
  return first;
}

// Passes of its windows that gathering and rounding a block take, in those of a probe.
constexpr double kMomentsPasses = 3.0;

}  // namespace

std::vector<StoredForm> PossibleForms(const TensorPlan& plan) {
  std::vector<StoredForm> forms;
  for (const Form& form : kForms) {
    if (form.dtype == DType::kQ4 && plan.columns() % form.block_size != 0) continue;
    const auto bytes = ComputeTensorBytes(form.dtype, plan.spec.shape(), form.block_size);
    LINNET_CHECK(bytes.ok());  // shapes were checked with the description
    forms.push_back({form.dtype, form.block_size, bytes->data + bytes->scales, 0.0});
  }
  return forms;
}

SensitivityRun::SensitivityRun(const Checkpoint& checkpoint, const std::vector<TensorPlan>& plans,
                               const CalibrationOptions& options, const ResumeStore* store, RunStepFunction step,
                               Diagnostic* diagnostic)
    : checkpoint_(checkpoint),
      plans_(plans),
      options_(options),
      store_(store),
      step_(std::move(step)),
      diagnostic_(diagnostic),
      gatherer_(plans, options),
      rounding_(*options.pool) {
  const size_t n_windows = options.ids.size() / options.window;
  const size_t n_probes = std::clamp<size_t>(n_windows / 5, 1, kProbeWindows);
  const size_t n_moments = n_windows > 1 ? n_windows - n_probes : n_windows;
  const auto window = [&options](size_t i) { return options.ids.begin() + static_cast<ptrdiff_t>(i * options.window); };
  ids_.assign(window(0), window(n_moments));
  probe_window_ = std::min(kProbeTokens, options.window);
  for (size_t i = n_windows - n_probes; i < n_windows; ++i) {
    probe_ids_.insert(probe_ids_.end(), window(i), window(i) + probe_window_);
  }
  double n_probed = 0.0;
  work_total_ = 0.0;
  for (const TensorPlan& plan : plans) {
    const auto weights = static_cast<double>(plan.elements());
    if (plan.spec.layer >= 0) work_total_ += weights * BlockWork(n_probed);
    n_probed += HasChoice(plan);
  }
  work_total_ += static_cast<double>(plans[table()].elements()) * HeadWork(n_probed);
  streams_.reserve((1 + static_cast<size_t>(n_probed)) * stream_size());  // growing would copy and take twice as much
}

// Multiply-adds for each weight of a block that comes after so many probes; and of the head, in both passes.
double SensitivityRun::BlockWork(double n_probes) const {
  return kMomentsPasses * static_cast<double>(ids_.size()) + n_probes * static_cast<double>(probe_ids_.size());
}
double SensitivityRun::HeadWork(double n_probes) const { return n_probes * static_cast<double>(probe_ids_.size()); }

RunStepFunction SensitivityRun::Step() const { return PartOf(step_, std::min(work_done_ / work_total_, 1.0), 0.0); }

size_t SensitivityRun::PlanOf(TensorRole role) const {
  size_t i = 0;
  while (i < plans_.size() && plans_[i].spec.role != role) ++i;
  return i;
}

// A probe of one more tensor. Its stream is the one without rounding, where that is now.
TensorSensitivity* SensitivityRun::Add(size_t index) {
  result_.emplace_back();
  result_.back().index = index;
  result_.back().forms = PossibleForms(plans_[index]);
  errors_.emplace_back(result_.back().forms.size());
  streams_.resize(streams_.size() + stream_size());
  std::copy_n(stream(0).begin(), stream_size(), stream(n_probes()).begin());
  return &result_.back();
}

// Both texts, and the probe of a rounded embedding table.
Status SensitivityRun::Embed() {
  const auto embed = [this](const TensorPlan& table, std::span<const int32_t> ids, uint32_t window,
                            std::span<float> stream) -> Status {
    PartTensors tensors;
    std::vector<int32_t> places;
    const std::vector<int32_t> rows = DistinctIds(ids, &places);
    LINNET_RETURN_IF_ERROR(AppendRounded(checkpoint_, table, rows, &tensors, diagnostic_));
    LINNET_RETURN_IF_ERROR(AppendEmbeddingRest(checkpoint_, plans_, &tensors, diagnostic_));
    PartRun run;
    run.window = window;
    run.ids = places;
    run.stream = stream;
    return RunPart(options_, EmbeddingPart(config(), static_cast<uint32_t>(rows.size())), tensors, run, Step());
  };
  const TensorPlan exact = plans_[0].Unrounded();
  moments_stream_.resize(ids_.size() * config().model_dim);
  streams_.resize(stream_size());
  LINNET_RETURN_IF_ERROR(embed(exact, ids_, options_.window, moments_stream_));
  LINNET_RETURN_IF_ERROR(embed(exact, probe_ids_, probe_window_, stream(0)));
  if (!HasChoice(plans_[0])) return Status::Ok();
  TensorSensitivity* sensitivity = Add(0);
  LINNET_RETURN_IF_ERROR(embed(plans_[0], probe_ids_, probe_window_, stream(n_probes())));
  // A tied table is rounded by the inputs of its products, which are not known yet.
  return IsCalibratedForm(plans_[0]) ? Status::Ok() : MeasureForms(sensitivity, 0, nullptr);
}

// Squared errors of a sample of rows in every form; of the outputs where there are moments, else of the weights.
Status SensitivityRun::MeasureForms(TensorSensitivity* sensitivity, uint64_t group, const InputMoments* moments) {
  const TensorPlan& plan = plans_[sensitivity->index];
  const uint64_t columns = plan.columns();
  std::vector<double>& errors = errors_[static_cast<size_t>(sensitivity - result_.data())];
  std::vector<float> rows, copy;
  for (const uint64_t first : SampledRows(plan)) {
    const uint64_t n = std::min<uint64_t>(ops::kRoundingRows, plan.rows() - first);
    rows.resize(n * columns);
    LINNET_RETURN_IF_ERROR(checkpoint_.ReadRows(plan.requirement, group, first, n, rows, diagnostic_));
    for (size_t f = 0; f < sensitivity->forms.size(); ++f) {
      const StoredForm& form = sensitivity->forms[f];
      copy = rows;
      const auto error =
          rounding_.Error(copy, columns, {form.dtype, form.block_size, plan.spec.rotation_block}, moments);
      LINNET_RETURN_IF_ERROR(NameWeight(error.status(), checkpoint_, plan, group, first, diagnostic_));
      errors[f] += *error;
    }
  }
  return Status::Ok();
}

// The moments of as many matrices of a block as there is room for. Every run of the unrounded block gives the same
// output: the next block's input, which is kept until this block is done.
Status SensitivityRun::Gather(size_t begin, size_t index, uint64_t group, size_t end, const PartTensors& tensors) {
  gatherer_.Choose(begin, index, group, end);
  next_stream_ = moments_stream_;
  PartRun run;
  run.window = options_.window;
  run.stream = next_stream_;
  run.inputs = gatherer_.sink(false);
  const ModelConfig part = BlockPart(config(), static_cast<uint32_t>(plans_[begin].spec.layer));
  LINNET_RETURN_IF_ERROR(RunPart(options_, part, tensors, run, Step()));
  gatherer_.Finish();
  return Status::Ok();
}

// One group of a tensor in its plan's form.
Status SensitivityRun::Round(size_t index, uint64_t group, const InputMoments& moments, std::span<std::byte> data,
                             std::span<std::byte> scales) {
  const TensorPlan& plan = plans_[index];
  const size_t row_bytes = data.size() / plan.rows(), row_scales = scales.size() / plan.rows();
  std::vector<float> rows;
  CalibratedErrors errors;
  for (uint64_t first = 0; first < plan.rows(); first += kCalibratedRows) {
    const uint64_t n = std::min(kCalibratedRows, plan.rows() - first);
    rows.resize(n * plan.columns());
    LINNET_RETURN_IF_ERROR(checkpoint_.ReadRows(plan.requirement, group, first, n, rows, diagnostic_));
    const Status rounded =
        rounding_.Quantize(rows, plan.columns(), plan.form(), moments, data.subspan(first * row_bytes, n * row_bytes),
                           scales.subspan(first * row_scales, n * row_scales), &errors);
    LINNET_RETURN_IF_ERROR(NameWeight(rounded, checkpoint_, plan, group, first, diagnostic_));
  }
  return Status::Ok();
}

// A probe of every tensor of the block: the text so far without rounding, through the block with that tensor rounded.
Status SensitivityRun::MeasureBlock(size_t begin, size_t end, PartTensors* tensors) {
  const ModelConfig part = BlockPart(config(), static_cast<uint32_t>(plans_[begin].spec.layer));
  for (size_t i = begin; i < end; ++i) {
    if (!IsCalibratedForm(plans_[i])) continue;
    TensorSensitivity* sensitivity = Add(i);
    const uint32_t block_size = sensitivity->forms.front().block_size;  // the largest
    const TensorSpec& spec = plans_[i].spec;
    LINNET_ASSIGN_OR_RETURN(const TensorBytes bytes, ComputeTensorBytes(spec.dtype, spec.shape(), spec.block_size));
    const AlignedBytes data(bytes.data), scales(bytes.scales);
    const uint64_t n_groups = plans_[i].groups(), group_bytes = bytes.data / n_groups;
    const uint64_t group_scales = bytes.scales / n_groups;
    for (uint64_t group = 0; group < n_groups; ++group) {
      const InputMoments* moments = gatherer_.Find(i, group, block_size);
      if (moments == nullptr) {
        LINNET_RETURN_IF_ERROR(Gather(begin, i, group, end, *tensors));
        moments = gatherer_.Find(i, group, block_size);
      }
      LINNET_RETURN_IF_ERROR(Round(i, group, *moments, data.bytes().subspan(group * group_bytes, group_bytes),
                                   scales.bytes().subspan(group * group_scales, group_scales)));
      LINNET_RETURN_IF_ERROR(MeasureForms(sensitivity, group, moments));
    }
    TensorView rounded = PartView(spec, data.bytes(), scales.bytes());
    PartRun run;
    run.window = probe_window_;
    run.stream = stream(n_probes());
    std::swap(rounded, tensors->views[i - begin]);
    const Status status = RunPart(options_, part, *tensors, run, Step());
    std::swap(rounded, tensors->views[i - begin]);
    LINNET_RETURN_IF_ERROR(status);
  }
  gatherer_.Clear();
  return Status::Ok();
}

Status SensitivityRun::RunBlock(size_t begin, size_t end) {
  PartTensors tensors;
  uint64_t weights = 0;
  for (size_t i = begin; i < end; ++i) {
    LINNET_RETURN_IF_ERROR(AppendDecoded(checkpoint_, plans_[i], &tensors, diagnostic_));
    weights += plans_[i].elements();
  }
  AppendStandInTable(config().model_dim, &tensors);
  const size_t n_before = n_probes();
  next_stream_.clear();
  LINNET_RETURN_IF_ERROR(MeasureBlock(begin, end, &tensors));
  // What came from before this block goes on through it as it is.
  const ModelConfig part = BlockPart(config(), static_cast<uint32_t>(plans_[begin].spec.layer));
  PartRun run;
  run.window = probe_window_;
  run.stream = std::span(streams_).first((1 + n_before) * stream_size());
  LINNET_RETURN_IF_ERROR(RunPart(options_, part, tensors, run, Step()));
  if (next_stream_.empty()) {  // nothing in the block had a choice
    run.window = options_.window;
    run.stream = moments_stream_;
    LINNET_RETURN_IF_ERROR(RunPart(options_, part, tensors, run, Step()));
  } else {
    moments_stream_.swap(next_stream_);
  }
  for (size_t i = begin; i < end; ++i) checkpoint_.Release(plans_[i].requirement);
  work_done_ += static_cast<double>(weights) * BlockWork(static_cast<double>(n_before));
  return Status::Ok();
}

Result<std::vector<TensorSensitivity>> SensitivityRun::Run() {
  size_t begin = RestoreBlocks();
  if (begin == 0) LINNET_RETURN_IF_ERROR(Embed());
  while (begin < plans_.size()) {
    size_t end = begin;
    while (end < plans_.size() && plans_[end].spec.layer == plans_[begin].spec.layer) ++end;
    if (plans_[begin].spec.layer >= 0) {
      LINNET_RETURN_IF_ERROR(RunBlock(begin, end));
      SaveBlocks(end);
    }
    begin = end;
  }
  LINNET_RETURN_IF_ERROR(CompareLogits());
  for (size_t i = 0; i < result_.size(); ++i) {
    const TensorSpec& spec = plans_[result_[i].index].spec;
    std::vector<StoredForm>& forms = result_[i].forms;
    const auto probe = std::find_if(forms.begin(), forms.end(), [&](const StoredForm& form) {
      return form.dtype == spec.dtype && form.block_size == spec.block_size;
    });
    LINNET_CHECK(probe != forms.end());
    const double error = errors_[i][static_cast<size_t>(probe - forms.begin())];
    for (size_t f = 0; f < forms.size(); ++f) {
      forms[f].loss = error > 0.0 ? std::max(0.0, result_[i].probe_loss) * errors_[i][f] / error : 0.0;
    }
  }
  return std::move(result_);
}

}  // namespace linnet::formats
