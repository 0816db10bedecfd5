// The end of a sensitivity run: what the probes' logits have lost.
#include <algorithm>
#include <utility>

#include "formats/convert/logits_comparison.h"
#include "formats/convert/model_parts.h"
#include "formats/convert/sensitivity.h"
#include "formats/quantize/quantize.h"

namespace linnet::formats {
namespace {

// Rows of the head whose logits are compared at once: a part of few megabytes. A multiple of 16, so that a part of the
// bias stays aligned.
constexpr uint64_t kHeadChunk = 4096;

}  // namespace

// What stands between the stream and the head.
Status SensitivityRun::AppendFinalNorm(PartTensors* tensors) {
  for (const TensorRole role : {TensorRole::kFinalNormGain, TensorRole::kFinalNormBias}) {
    const size_t index = PlanOf(role);
    if (index == plans_.size()) continue;
    LINNET_RETURN_IF_ERROR(AppendDecoded(checkpoint_, plans_[index], tensors, diagnostic_));
  }
  return Status::Ok();
}

// Final norm, rows [first, first + count) of the head as a table in the form of `plan` (by the moments where there are
// some), and their bias.
Result<PartTensors> SensitivityRun::HeadTensors(TensorPlan plan, uint64_t first, uint64_t count,
                                                const InputMoments* moments) {
  const size_t bias = PlanOf(TensorRole::kHeadBias);
  PartTensors tensors;
  LINNET_RETURN_IF_ERROR(AppendFinalNorm(&tensors));
  plan.spec.dims[0] = count;
  const uint64_t columns = plan.columns();
  std::vector<float> rows(count * columns);
  LINNET_RETURN_IF_ERROR(checkpoint_.ReadRows(plan.requirement, 0, first, count, rows, diagnostic_));
  LINNET_ASSIGN_OR_RETURN(const TensorBytes bytes,
                          ComputeTensorBytes(plan.spec.dtype, plan.spec.shape(), plan.spec.block_size));
  AlignedBytes data(bytes.data), scales(bytes.scales);
  CalibratedErrors errors;
  const Status rounded =
      moments == nullptr
          ? QuantizeRows(rows, columns, plan.form(), data.bytes(), scales.bytes(), &errors.weights)
          : rounding_.Quantize(rows, columns, plan.form(), *moments, data.bytes(), scales.bytes(), &errors);
  LINNET_RETURN_IF_ERROR(NameWeight(rounded, checkpoint_, plan, 0, first, diagnostic_));
  tensors.views.push_back(PartView(plan.spec, data.bytes(), scales.bytes()));
  tensors.views.back().role = TensorRole::kTokenEmbedding;
  tensors.memory.push_back(std::move(data));
  tensors.memory.push_back(std::move(scales));
  if (bias == plans_.size()) return tensors;
  LINNET_RETURN_IF_ERROR(AppendDecoded(checkpoint_, plans_[bias], &tensors, diagnostic_));
  tensors.views.back().dims[0] = count;
  tensors.views.back().data = tensors.views.back().data.subspan(first * sizeof(float), count * sizeof(float));
  return tensors;
}

// Logits of one stream for a part of the vocabulary.
Status SensitivityRun::RunHead(const PartTensors& tensors, uint64_t count, size_t index, PartLogitsSink logits) {
  ModelConfig part = HeadPart(config(), static_cast<uint32_t>(count));
  part.head_bias = config().head_bias;
  std::vector<float> rows(stream(index).begin(), stream(index).end());
  PartRun run;
  run.window = probe_window_;
  run.stream = rows;
  run.logits = logits;
  return RunPart(options_, part, tensors, run, Step());
}

// All streams through one chunk of the head. The stream of the table's own probe sees it rounded.
Status SensitivityRun::CompareChunk(uint64_t first, uint64_t count, bool comparing, const InputMoments* moments,
                                    LogitsComparison* comparison) {
  struct Sink {
    LogitsComparison* comparison;
    ops::ThreadPool* pool;
    uint64_t count;
    size_t probe;
    static void Reference(void* context, size_t row, const float* logits, size_t n) {
      const Sink& sink = *static_cast<Sink*>(context);
      sink.pool->ParallelFor(
          n, [&](size_t i, size_t) { sink.comparison->AddReference(row + i, logits + i * sink.count, sink.count); });
    }
    static void Keep(void* context, size_t row, const float* logits, size_t n) {
      const Sink& sink = *static_cast<Sink*>(context);
      sink.pool->ParallelFor(
          n, [&](size_t i, size_t) { sink.comparison->SetReference(row + i, logits + i * sink.count); });
    }
    static void Add(void* context, size_t row, const float* logits, size_t n) {
      const Sink& sink = *static_cast<Sink*>(context);
      sink.pool->ParallelFor(
          n, [&](size_t i, size_t) { sink.comparison->Add(sink.probe, row + i, logits + i * sink.count); });
    }
  } sink = {comparison, options_.pool, count, 0};
  LINNET_ASSIGN_OR_RETURN(const PartTensors exact, HeadTensors(plans_[table()].Unrounded(), first, count, nullptr));
  if (!comparing) return RunHead(exact, count, 0, {Sink::Reference, &sink});
  comparison->BeginChunk(count);
  LINNET_RETURN_IF_ERROR(RunHead(exact, count, 0, {Sink::Keep, &sink}));
  const size_t table_probe = TableProbe();
  for (size_t i = 0; i < n_probes(); ++i) {
    if (i == table_probe) continue;
    sink.probe = i;
    LINNET_RETURN_IF_ERROR(RunHead(exact, count, i + 1, {Sink::Add, &sink}));
  }
  if (table_probe == n_probes()) return Status::Ok();
  LINNET_ASSIGN_OR_RETURN(const PartTensors rounded, HeadTensors(plans_[table()], first, count, moments));
  sink.probe = table_probe;
  return RunHead(rounded, count, table_probe + 1, {Sink::Add, &sink});
}

// The probe whose stream is to see the head rounded; n_probes(): none.
size_t SensitivityRun::TableProbe() const {
  size_t i = 0;
  while (i < n_probes() && result_[i].index != table()) ++i;
  return i;
}

// The moments of the head's inputs, or null where it stays as it is.
Result<const InputMoments*> SensitivityRun::MeasureHead() {
  const TensorPlan& plan = plans_[table()];
  if (!IsCalibratedForm(plan)) return nullptr;
  if (!config().tied_head) Add(table());
  TensorSensitivity* sensitivity = &result_[TableProbe()];
  gatherer_.Choose(table(), table(), 0, table() + 1);
  PartTensors tensors;
  LINNET_RETURN_IF_ERROR(AppendFinalNorm(&tensors));
  AppendStandInTable(config().model_dim, &tensors);
  PartRun run;
  run.window = options_.window;
  run.stream = moments_stream_;
  run.inputs = gatherer_.sink(/*is_head=*/true);
  run.logits = {[](void*, size_t, const float*, size_t) {}, nullptr};
  LINNET_RETURN_IF_ERROR(RunPart(options_, HeadPart(config(), 1), tensors, run, Step()));
  gatherer_.Finish();
  const InputMoments* moments = gatherer_.Find(table(), 0, sensitivity->forms.front().block_size);
  LINNET_RETURN_IF_ERROR(MeasureForms(sensitivity, 0, moments));
  return moments;
}

Status SensitivityRun::CompareLogits() {
  LINNET_ASSIGN_OR_RETURN(const InputMoments* const moments, MeasureHead());
  LogitsComparison comparison(probe_ids_.size(), n_probes());
  HeadPlace place = RestoreLogits(&comparison);
  while (place.first < config().vocab_size) {
    const uint64_t count = std::min<uint64_t>(kHeadChunk, config().vocab_size - place.first);
    LINNET_RETURN_IF_ERROR(CompareChunk(place.first, count, place.comparing, moments, &comparison));
    place.first += count;
    if (place.comparing) {
      work_done_ += static_cast<double>(count * config().model_dim) * HeadWork(static_cast<double>(n_probes()));
    } else if (place.first == config().vocab_size) {
      place = {.comparing = true, .first = 0};
    }
    SaveLogits(place, comparison);
  }
  for (size_t i = 0; i < n_probes(); ++i) result_[i].probe_loss = comparison.MeanKl(i);
  return Status::Ok();
}

}  // namespace linnet::formats
