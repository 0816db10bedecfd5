#include "formats/convert/sensitivity.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "formats/convert/logits_comparison.h"
#include "formats/convert/model_parts.h"
#include "formats/quantize/quantize.h"
#include "ops/compensated_rounding.h"

namespace linnet::formats {
namespace {

// The probe: windows of the calibration text and their tokens. The first quarter of each is context only.
constexpr uint32_t kProbeWindows = 2, kProbeTokens = 128;
// Rows of a matrix (of an expert) that are rounded in each form, tiles evenly spread, and experts that are looked at.
constexpr size_t kSampledTiles = 4, kSampledGroups = 4;
// Rows of the head whose logits are compared at once: a part of few megabytes. A multiple of 16, so that a part of the
// bias stays aligned.
constexpr uint64_t kHeadChunk = 4096;

struct Form {
  DType dtype;
  uint32_t block_size;
};
constexpr Form kForms[] = {{DType::kQ4, 128}, {DType::kQ4, 64}, {DType::kQ4, 32}, {DType::kQ8, 0}};

// First rows of the tiles that stand for a matrix.
std::vector<uint64_t> SampledRows(uint64_t n_rows) {
  const uint64_t n_tiles = (n_rows + ops::kRoundingRows - 1) / ops::kRoundingRows;
  const uint64_t n = std::min<uint64_t>(n_tiles, kSampledTiles);
  std::vector<uint64_t> first;
  for (uint64_t i = 0; i < n; ++i) first.push_back(i * n_tiles / n * ops::kRoundingRows);
  return first;
}

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
                               const CalibrationOptions& options, RunStepFunction step, Diagnostic* diagnostic)
    : checkpoint_(checkpoint),
      plans_(plans),
      options_(options),
      step_(std::move(step)),
      diagnostic_(diagnostic),
      gatherer_(plans, options),
      rounding_(*options.pool) {
  probe_window_ = std::min(kProbeTokens, options.window);
  const size_t n_windows = std::min<size_t>(kProbeWindows, options.ids.size() / options.window);
  for (size_t i = 0; i < n_windows; ++i) {
    const auto begin = options.ids.begin() + static_cast<ptrdiff_t>(i * options.window);
    probe_ids_.insert(probe_ids_.end(), begin, begin + probe_window_);
  }
}

RunStepFunction SensitivityRun::Step() const { return PartOf(step_, share_, 0.0); }

size_t SensitivityRun::PlanOf(TensorRole role) const {
  size_t i = 0;
  while (i < plans_.size() && plans_[i].spec.role != role) ++i;
  return i;
}

TensorSensitivity* SensitivityRun::Add(size_t index) {
  result_.emplace_back();
  result_.back().index = index;
  result_.back().forms = PossibleForms(plans_[index]);
  errors_.emplace_back(1 + result_.back().forms.size());
  return &result_.back();
}

// Both streams, and the probe of a rounded embedding table.
Status SensitivityRun::Embed() {
  const bool rounded = HasChoice(plans_[0]);
  for (const int which : {0, 1, 2}) {
    if (which == 2 && !rounded) continue;
    TensorPlan table = plans_[0];
    if (which != 2) table.spec.dtype = DType::kF32, table.spec.block_size = table.spec.rotation_block = 0;
    PartTensors tensors;
    std::vector<int32_t> places;
    const std::vector<int32_t> rows = DistinctIds(which == 0 ? options_.ids : probe_ids_, &places);
    LINNET_RETURN_IF_ERROR(AppendRounded(checkpoint_, table, rows, &tensors, diagnostic_));
    LINNET_RETURN_IF_ERROR(AppendEmbeddingRest(checkpoint_, plans_, &tensors, diagnostic_));
    std::vector<float>* stream = which == 0 ? &stream_ : &clean_;
    if (which == 2) {
      Add(0);
      probes_.push_back({0, {}});
      stream = &probes_.back().stream;
    }
    stream->resize(places.size() * config().model_dim);
    PartRun run;
    run.window = which == 0 ? options_.window : probe_window_;
    run.ids = places;
    run.stream = *stream;
    const ModelConfig part = EmbeddingPart(config(), static_cast<uint32_t>(rows.size()));
    LINNET_RETURN_IF_ERROR(RunPart(options_, part, tensors, run, Step()));
  }
  return rounded ? MeasureForms(0, &result_[0], 0, nullptr) : Status::Ok();
}

// Squared errors of a sample of rows in every form; of the outputs where there are moments, else of the weights.
Status SensitivityRun::MeasureForms(size_t index, TensorSensitivity* sensitivity, uint64_t group,
                                    const InputMoments* moments) {
  const TensorPlan& plan = plans_[index];
  const uint64_t columns = plan.columns();
  std::vector<double>& errors = errors_[static_cast<size_t>(sensitivity - result_.data())];
  std::vector<float> rows, copy;
  for (const uint64_t first : SampledRows(plan.rows())) {
    const uint64_t n = std::min<uint64_t>(ops::kRoundingRows, plan.rows() - first);
    rows.resize(n * columns);
    LINNET_RETURN_IF_ERROR(checkpoint_.ReadRows(plan.requirement, group, first, n, rows, diagnostic_));
    for (size_t f = 0; f <= sensitivity->forms.size(); ++f) {
      QuantizeOptions options = {plan.spec.dtype, plan.spec.block_size, plan.spec.rotation_block};
      if (f > 0)
        options.dtype = sensitivity->forms[f - 1].dtype, options.block_size = sensitivity->forms[f - 1].block_size;
      copy = rows;
      const bool compensated = f > 0;  // the probe form is rounded to nearest
      LINNET_ASSIGN_OR_RETURN(const double error, rounding_.Error(copy, columns, options, moments, compensated));
      errors[f] += error;
    }
  }
  return Status::Ok();
}

// Every run of the unrounded block gives the same output, which becomes the stream.
Status SensitivityRun::GatherAndMeasure(size_t begin, size_t end, const PartTensors& tensors) {
  const auto layer = static_cast<uint32_t>(plans_[begin].spec.layer);
  std::vector<float> output;
  for (size_t i = begin; i < end; ++i) {
    if (!IsCalibratedForm(plans_[i])) continue;
    TensorSensitivity* sensitivity = Add(i);
    const uint32_t block_size = sensitivity->forms.front().block_size;  // the largest
    for (uint64_t group = 0; group < plans_[i].groups(); group += GroupStride(plans_[i], kSampledGroups)) {
      const InputMoments* moments = gatherer_.Find(i, group, block_size);
      if (moments == nullptr) {
        gatherer_.Choose(begin, i, group, end, kSampledGroups);
        output = stream_;
        PartRun run;
        run.window = options_.window;
        run.stream = output;
        run.inputs = gatherer_.sink(false);
        LINNET_RETURN_IF_ERROR(RunPart(options_, BlockPart(config(), layer), tensors, run, Step()));
        gatherer_.Finish();
        moments = gatherer_.Find(i, group, block_size);
      }
      LINNET_RETURN_IF_ERROR(MeasureForms(i, sensitivity, group, moments));
    }
  }
  if (!output.empty()) stream_ = std::move(output);
  gatherer_.Clear();
  return Status::Ok();
}

// One stream more for every tensor of the block: the clean one through the block with that tensor rounded.
Status SensitivityRun::ProbeTensors(size_t begin, size_t end, PartTensors* tensors) {
  const auto layer = static_cast<uint32_t>(plans_[begin].spec.layer);
  size_t sensitivity = result_.size();
  while (sensitivity > 0 && result_[sensitivity - 1].index >= begin) --sensitivity;
  for (size_t i = begin; i < end; ++i) {
    if (!IsCalibratedForm(plans_[i])) continue;
    PartTensors rounded;
    LINNET_RETURN_IF_ERROR(AppendRounded(checkpoint_, plans_[i], {}, &rounded, diagnostic_));
    std::swap(rounded.views[0], tensors->views[i - begin]);
    probes_.push_back({sensitivity++, clean_});
    PartRun run;
    run.window = probe_window_;
    run.stream = probes_.back().stream;
    const Status status = RunPart(options_, BlockPart(config(), layer), *tensors, run, Step());
    std::swap(rounded.views[0], tensors->views[i - begin]);
    LINNET_RETURN_IF_ERROR(status);
  }
  return Status::Ok();
}

// The clean stream and those of tensors before this block, all at once, through the unrounded block.
Status SensitivityRun::RunProbes(size_t begin, size_t n_probes, const PartTensors& tensors) {
  const size_t size = clean_.size();
  std::vector<float> streams(clean_);
  for (size_t i = 0; i < n_probes; ++i) {
    streams.insert(streams.end(), probes_[i].stream.begin(), probes_[i].stream.end());
  }
  PartRun run;
  run.window = probe_window_;
  run.stream = streams;
  const ModelConfig part = BlockPart(config(), static_cast<uint32_t>(plans_[begin].spec.layer));
  LINNET_RETURN_IF_ERROR(RunPart(options_, part, tensors, run, Step()));
  const auto stream = [&](size_t i) { return streams.begin() + static_cast<ptrdiff_t>(i * size); };
  std::copy(stream(0), stream(1), clean_.begin());
  for (size_t i = 0; i < n_probes; ++i) std::copy(stream(i + 1), stream(i + 2), probes_[i].stream.begin());
  return Status::Ok();
}

Status SensitivityRun::RunBlock(size_t begin, size_t end) {
  PartTensors tensors;
  for (size_t i = begin; i < end; ++i) {
    LINNET_RETURN_IF_ERROR(AppendDecoded(checkpoint_, plans_[i], &tensors, diagnostic_));
  }
  AppendStandInTable(config().model_dim, &tensors);
  const size_t n_probes = probes_.size();
  LINNET_RETURN_IF_ERROR(GatherAndMeasure(begin, end, tensors));
  LINNET_RETURN_IF_ERROR(ProbeTensors(begin, end, &tensors));
  LINNET_RETURN_IF_ERROR(RunProbes(begin, n_probes, tensors));
  for (size_t i = begin; i < end; ++i) checkpoint_.Release(plans_[i].requirement);
  return Status::Ok();
}

// Final norm, rows [first, first + count) of the head as a table, and their bias.
Result<PartTensors> SensitivityRun::HeadTensors(bool rounded, uint64_t first, uint64_t count) {
  const size_t table = config().tied_head ? 0 : PlanOf(TensorRole::kHead), bias = PlanOf(TensorRole::kHeadBias);
  PartTensors tensors;
  for (const TensorRole role : {TensorRole::kFinalNormGain, TensorRole::kFinalNormBias}) {
    const size_t index = PlanOf(role);
    if (index == plans_.size()) continue;
    LINNET_RETURN_IF_ERROR(AppendDecoded(checkpoint_, plans_[index], &tensors, diagnostic_));
  }
  TensorPlan plan = plans_[table];
  if (!rounded) plan.spec.dtype = DType::kF32, plan.spec.block_size = plan.spec.rotation_block = 0;
  std::vector<int32_t> rows(count);
  for (uint64_t i = 0; i < count; ++i) rows[i] = static_cast<int32_t>(first + i);
  LINNET_RETURN_IF_ERROR(AppendRounded(checkpoint_, plan, rows, &tensors, diagnostic_));
  tensors.views.back().role = TensorRole::kTokenEmbedding;
  if (bias == plans_.size()) return tensors;
  LINNET_RETURN_IF_ERROR(AppendDecoded(checkpoint_, plans_[bias], &tensors, diagnostic_));
  tensors.views.back().dims[0] = count;
  tensors.views.back().data = tensors.views.back().data.subspan(first * sizeof(float), count * sizeof(float));
  return tensors;
}

// Logits of some rows of the stream for a part of the vocabulary.
Status SensitivityRun::RunHead(const PartTensors& tensors, uint64_t count, std::vector<float> rows,
                               PartLogitsSink logits) {
  ModelConfig part = HeadPart(config(), static_cast<uint32_t>(count));
  part.head_bias = config().head_bias;
  PartRun run;
  run.window = probe_window_;
  run.stream = rows;
  run.logits = logits;
  return RunPart(options_, part, tensors, run, Step());
}

// Streams from first_stream on through one chunk of the head. The stream of the table's own probe sees it rounded.
Status SensitivityRun::CompareChunk(uint64_t first, uint64_t count, LogitsComparison* comparison) {
  struct Sink {
    LogitsComparison* comparison;
    size_t stream;
    static void Keep(void* context, size_t row, const float* logits, size_t n) {
      LogitsComparison& to = *static_cast<Sink*>(context)->comparison;
      std::copy_n(logits, n * to.chunk_size, to.chunk.data() + row * to.chunk_size);
    }
    static void Add(void* context, size_t row, const float* logits, size_t n) {
      const Sink& sink = *static_cast<Sink*>(context);
      for (size_t i = 0; i < n; ++i) {
        sink.comparison->Add(sink.stream + (row + i) / sink.comparison->n_rows, (row + i) % sink.comparison->n_rows,
                             logits + i * sink.comparison->chunk_size);
      }
    }
  } sink = {comparison, 0};
  LINNET_ASSIGN_OR_RETURN(const PartTensors exact, HeadTensors(/*rounded=*/false, first, count));
  comparison->chunk_size = count;
  comparison->chunk.resize(comparison->n_rows * count);
  LINNET_RETURN_IF_ERROR(RunHead(exact, count, clean_, {Sink::Keep, &sink}));
  for (size_t row = 0; row < comparison->n_rows && !comparing_; ++row) {
    comparison->reference[row].Add(comparison->chunk.data() + row * count, count);
  }
  if (!comparing_) return Status::Ok();
  const size_t table = TableProbe();
  for (size_t i = 0; i < probes_.size(); ++i) {
    if (i == table) continue;
    sink.stream = i;
    LINNET_RETURN_IF_ERROR(RunHead(exact, count, probes_[i].stream, {Sink::Add, &sink}));
  }
  if (table == probes_.size()) return Status::Ok();
  LINNET_ASSIGN_OR_RETURN(const PartTensors rounded, HeadTensors(/*rounded=*/true, first, count));
  sink.stream = table;
  return RunHead(rounded, count, probes_[table].stream, {Sink::Add, &sink});
}

// The probe whose stream is to see the head rounded; probes_.size(): none.
size_t SensitivityRun::TableProbe() const {
  const size_t table = config().tied_head ? 0 : PlanOf(TensorRole::kHead);
  size_t i = 0;
  while (i < probes_.size() && result_[probes_[i].sensitivity].index != table) ++i;
  return i;
}

Status SensitivityRun::CompareLogits() {
  const size_t head = PlanOf(TensorRole::kHead);
  if (head < plans_.size() && HasChoice(plans_[head])) {
    TensorSensitivity* sensitivity = Add(head);
    probes_.push_back({result_.size() - 1, clean_});
    LINNET_RETURN_IF_ERROR(MeasureForms(head, sensitivity, 0, nullptr));
  }
  LogitsComparison comparison(clean_.size() / config().model_dim, probes_.size());
  for (const bool comparing : {false, true}) {
    comparing_ = comparing;
    for (uint64_t first = 0; first < config().vocab_size; first += kHeadChunk) {
      const uint64_t count = std::min<uint64_t>(kHeadChunk, config().vocab_size - first);
      LINNET_RETURN_IF_ERROR(CompareChunk(first, count, &comparison));
    }
  }
  for (size_t i = 0; i < probes_.size(); ++i) result_[probes_[i].sensitivity].probe_loss = comparison.MeanKl(i);
  return Status::Ok();
}

Result<std::vector<TensorSensitivity>> SensitivityRun::Run() {
  LINNET_RETURN_IF_ERROR(Embed());
  for (size_t begin = 0; begin < plans_.size();) {
    // Later blocks take longer, by the probes of those before them; the rest is the head's.
    share_ = 0.8 * std::max<int32_t>(plans_[begin].spec.layer, 0) / config().n_layers;
    size_t end = begin;
    while (end < plans_.size() && plans_[end].spec.layer == plans_[begin].spec.layer) ++end;
    if (plans_[begin].spec.layer >= 0) LINNET_RETURN_IF_ERROR(RunBlock(begin, end));
    begin = end;
  }
  share_ = 0.8;
  LINNET_RETURN_IF_ERROR(CompareLogits());
  for (size_t i = 0; i < result_.size(); ++i) {
    const std::vector<double>& errors = errors_[i];
    for (size_t f = 0; f < result_[i].forms.size(); ++f) {
      const double ratio = errors[0] > 0.0 ? errors[f + 1] / errors[0] : 0.0;
      result_[i].forms[f].loss = std::max(0.0, result_[i].probe_loss) * ratio;
    }
  }
  return std::move(result_);
}

}  // namespace linnet::formats
