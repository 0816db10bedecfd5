#include "formats/convert/convert.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string_view>
#include <utility>

#include "formats/convert/balanced_checkpoint.h"
#include "formats/convert/calibration_run.h"
#include "formats/convert/mixed_precision.h"
#include "formats/convert/report_builder.h"
#include "formats/convert/resume_store.h"
#include "formats/convert/tensor_plan.h"
#include "formats/linnet/model_file_writer.h"
#include "formats/linnet/sha256.h"
#include "formats/linnet/tokenizer_section.h"
#include "formats/quantize/q4_grid.h"
#include "formats/quantize/quantize.h"

namespace linnet::formats {
namespace {

// Rows are read, rotated, rounded and written in parts of this size, which stay in a level-2 cache. One row at least,
// whatever its length: the other limit of a conversion's memory.
constexpr uint64_t kPartElements = 128 * 1024;
static_assert(kPartElements * 2 * sizeof(float) <= kConvertBufferBytes);
// Sources are hashed in parts, so that their pages can be dropped behind.
constexpr size_t kHashBytes = size_t{2} << 20;

struct RowRange {
  uint64_t group = 0, begin = 0, count = 0;
};

/// One conversion; its members are what the steps share.
class Conversion {
 public:
  Conversion(const Checkpoint& checkpoint, const ConvertProgressFunction& progress, Diagnostic* diagnostic)
      : checkpoint_(checkpoint), progress_(progress), diagnostic_(diagnostic) {}

  Status Run(const ConvertOptions& options, const std::string& target, ConvertReport* report);
  Status Check(const ConvertOptions& options);

 private:
  Status Report(const ConvertProgress& progress);
  Status ReportShare(double share);
  Status ReportBlock(double share);
  Status ReportRows(const TensorPlan& plan, uint64_t elements);
  Status HashSources();
  Status HashSource(const SourceFile& file, ConvertProgress* progress);
  std::vector<size_t> ConversionOrder() const;
  Status ConvertTensors(ModelFileWriter* writer, ReportBuilder* report);
  Status ConvertTensor(const TensorPlan& plan, ModelFileWriter* writer);
  Status ConvertPart(const TensorPlan& plan, const RowRange& range, ModelFileWriter* writer, CalibratedErrors* errors);
  Status RoundRows(const TensorPlan& plan, const RowRange& range, CalibratedErrors* errors);
  Status KeepRows(const TensorPlan& plan, const RowRange& range, CalibratedErrors* errors);
  size_t IndexOf(const TensorPlan& plan) const { return static_cast<size_t>(&plan - plans_.data()); }
  Result<ModelContent> MakeContent();
  Status MakePlans(const ConvertOptions& options);
  Result<ModelFileWriter> CreateWriter(const std::string& target);
  Status CheckCalibration(const ConvertOptions& options);
  Status CheckCalibratedTypes(const ConvertOptions& options);
  bool RestoreChoices(std::span<const std::byte> piece, std::vector<ConvertChoice>* choices);
  Status ShareOutBudget(const ConvertOptions& options, const ModelContent& content,
                        std::vector<ConvertChoice>* choices);
  void CountSourceTypes();
  Sha256Digest ResumeKey(const ConvertOptions& options) const;
  void BeginBlock(size_t begin);
  void RestoreBlock();
  void SaveBlock(size_t begin, size_t end) const;
  Status WriteRestored(size_t index, ModelFileWriter* writer, CalibratedErrors* errors);

  const Checkpoint& checkpoint_;
  const ConvertProgressFunction& progress_;
  Diagnostic* const diagnostic_;
  std::vector<TensorPlan> plans_;
  ConvertProgress progress_state_;
  Provenance provenance_;
  std::vector<float> rows_;
  std::vector<uint8_t> levels_;  // of a kept grid, with rows_ for its scales
  std::vector<std::byte> data_, scales_;
  std::optional<CalibrationRun> calibration_;
  std::optional<CalibratedRounding> rounding_;
  // Blocks that an earlier run has finished.
  struct Restored {
    std::span<const std::byte> data, scales;  // into piece_
    CalibratedErrors errors;
  };
  std::optional<ResumeStore> store_;
  ResumePiece piece_;                     // of the block at hand
  std::vector<Restored> restored_;        // of its tensors; empty: it is to be converted
  std::vector<CalibratedErrors> errors_;  // one a plan
  size_t block_begin_ = 0;
  uint64_t block_elements_ = 0, block_total_ = 0;  // converted, and in all
  bool blocks_begun_ = false, block_gathered_ = false;
  double told_share_ = 0.0;
  double table_blocks_ = 0.0;  // time that a table takes which comes last, in blocks
};

Status Conversion::Report(const ConvertProgress& progress) {
  if (!progress_ || progress_(progress)) return Status::Ok();
  return Fail(diagnostic_, StatusCode::kCancelled, "the conversion was cancelled", "the conversion was cancelled");
}

// Work is told in parts of this number.
constexpr uint64_t kWorkParts = 1'000'000;

Status Conversion::ReportShare(double share) {
  progress_state_.elements_total = kWorkParts;
  progress_state_.elements_done = static_cast<uint64_t>(share * static_cast<double>(kWorkParts));
  return Report(progress_state_);
}

// Blocks count alike: what takes time in them is the same. What lies outside is small beside them, but for a table that
// comes last.
Status Conversion::ReportBlock(double share) {
  const double n_layers = checkpoint_.info().config.n_layers;
  double done = progress_state_.layer + share;
  if (progress_state_.layer < 0) done = blocks_begun_ ? n_layers + share * table_blocks_ : 0.0;
  // A block with more moments than fit is gathered several times; what is told never goes back.
  told_share_ = std::max(told_share_, std::min(done / (n_layers + table_blocks_), 1.0));
  return ReportShare(told_share_);
}

// Rows of a tensor have been converted.
Status Conversion::ReportRows(const TensorPlan& plan, uint64_t elements) {
  block_elements_ += elements;
  if (!calibration_) {
    progress_state_.elements_done += elements;
    return Report(progress_state_);
  }
  const double share = static_cast<double>(block_elements_) / static_cast<double>(block_total_);
  if (plan.spec.layer < 0) return ReportBlock(IndexOf(plan) == 0 ? std::min(share, 1.0) : 0.0);
  // A norm before the first of the block's matrices comes before the gathering.
  block_gathered_ = block_gathered_ || IsCalibratedForm(plan) || !restored_.empty();
  if (!block_gathered_) return ReportBlock(0.0);
  return ReportBlock(kGatherShare + kRoundShare * std::min(share, 1.0));
}

Status Conversion::HashSource(const SourceFile& file, ConvertProgress* progress) {
  Sha256 hash;
  for (size_t offset = 0; offset < file.bytes.size(); offset += kHashBytes) {
    const size_t part = std::min(kHashBytes, file.bytes.size() - offset);
    hash.Update(file.bytes.subspan(offset, part));
    if (file.mapping != nullptr) file.mapping->DropPages(offset, part);
    progress->elements_done += part;
    LINNET_RETURN_IF_ERROR(Report(*progress));
  }
  provenance_.sources.push_back({file.name, file.bytes.size(), hash.Finish()});
  return Status::Ok();
}

Status Conversion::HashSources() {
  ConvertProgress progress;
  progress.stage = "hashing";
  for (const SourceFile& file : checkpoint_.files()) progress.elements_total += file.bytes.size();
  for (const SourceFile& file : checkpoint_.files()) LINNET_RETURN_IF_ERROR(HashSource(file, &progress));
  return Status::Ok();
}

Status Conversion::RoundRows(const TensorPlan& plan, const RowRange& range, CalibratedErrors* errors) {
  const InputMoments* moments = nullptr;
  if (calibration_ && IsCalibratedForm(plan)) {
    LINNET_ASSIGN_OR_RETURN(moments, calibration_->Moments(IndexOf(plan), range.group));
  }
  rows_.resize(range.count * plan.columns());
  LINNET_RETURN_IF_ERROR(
      checkpoint_.ReadRows(plan.requirement, range.group, range.begin, range.count, rows_, diagnostic_));
  const QuantizeOptions options = plan.form();
  const Status rounded = moments == nullptr
                             ? QuantizeRows(rows_, plan.columns(), options, data_, scales_, &errors->weights)
                             : rounding_->Quantize(rows_, plan.columns(), options, *moments, data_, scales_, errors);
  return NameWeight(rounded, checkpoint_, plan, range.group, range.begin, diagnostic_);
}

Status Conversion::KeepRows(const TensorPlan& plan, const RowRange& range, CalibratedErrors* errors) {
  const uint64_t weights = range.count * plan.columns();
  levels_.resize(weights / 2);
  rows_.resize(weights / plan.spec.block_size);
  LINNET_RETURN_IF_ERROR(
      checkpoint_.ReadQ4Grid(plan.requirement, range.group, range.begin, range.count, {levels_, rows_}, diagnostic_));
  const Status stored = StoreQ4Grid(levels_, rows_, plan.spec.block_size, data_, scales_, &errors->weights);
  return NameWeight(stored, checkpoint_, plan, range.group, range.begin, diagnostic_);
}

Status Conversion::ConvertPart(const TensorPlan& plan, const RowRange& range, ModelFileWriter* writer,
                               CalibratedErrors* errors) {
  const TensorSpec& spec = plan.spec;
  // A part has the shape [range.count, columns]; one row of a vector is no matrix, and is never quantized.
  const std::array<uint64_t, 2> shape = {range.count, plan.columns()};
  LINNET_ASSIGN_OR_RETURN(const TensorBytes bytes, ComputeTensorBytes(spec.dtype, shape, spec.block_size));
  data_.resize(bytes.data);
  scales_.resize(bytes.scales);
  LINNET_RETURN_IF_ERROR(plan.keeps_grid ? KeepRows(plan, range, errors) : RoundRows(plan, range, errors));
  if (calibration_) calibration_->Keep(IndexOf(plan), data_, scales_);
  LINNET_RETURN_IF_ERROR(writer->WriteData(data_, diagnostic_));
  return writer->WriteScales(scales_, diagnostic_);
}

Status Conversion::ConvertTensor(const TensorPlan& plan, ModelFileWriter* writer) {
  const size_t index = IndexOf(plan);
  CalibratedErrors& errors = errors_[index];
  if (plan.spec.layer >= 0 && !restored_.empty()) {
    LINNET_RETURN_IF_ERROR(WriteRestored(index, writer, &errors));
    return ReportRows(plan, plan.elements());
  }
  const bool calibrated = calibration_ && IsCalibratedForm(plan);
  const uint64_t part_rows = calibrated ? kCalibratedRows : std::max<uint64_t>(1, kPartElements / plan.columns());
  for (uint64_t group = 0; group < plan.groups(); ++group) {
    for (uint64_t row = 0; row < plan.rows(); row += part_rows) {
      const uint64_t count = std::min(part_rows, plan.rows() - row);
      LINNET_RETURN_IF_ERROR(ConvertPart(plan, {group, row, count}, writer, &errors));
      LINNET_RETURN_IF_ERROR(ReportRows(plan, count * plan.columns()));
    }
  }
  return Status::Ok();
}

// File order, but for a table that is rounded by the inputs of its products: they are known once all blocks have run.
std::vector<size_t> Conversion::ConversionOrder() const {
  std::vector<size_t> order(plans_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const bool table_last =
      calibration_ && plans_[0].spec.role == TensorRole::kTokenEmbedding && IsCalibratedForm(plans_[0]);
  if (table_last) std::rotate(order.begin(), order.begin() + 1, order.end());
  return order;
}

Status Conversion::ConvertTensors(ModelFileWriter* writer, ReportBuilder* report) {
  ConvertProgress& progress = progress_state_;
  progress.stage = calibration_ ? "calibrated weights" : "weights";
  progress.tensors_total = static_cast<uint32_t>(plans_.size());
  progress.elements_done = progress.elements_total = 0;
  for (const TensorPlan& plan : plans_) progress.elements_total += plan.elements();
  errors_.assign(plans_.size(), {});
  const std::vector<size_t> order = ConversionOrder();
  if (order.back() == 0 && plans_.size() > 1) {
    // Rounded as the weights of a block are, but never run.
    const auto table = static_cast<double>(plans_[0].elements()), all = static_cast<double>(progress.elements_total);
    table_blocks_ = kRoundShare * checkpoint_.info().config.n_layers * table / std::max(all - table, 1.0);
  }
  for (const size_t i : order) {
    // Entering a block finishes the one before.
    if (calibration_) LINNET_RETURN_IF_ERROR(calibration_->Enter(i));
    progress.role = plans_[i].spec.role;
    progress.layer = plans_[i].spec.layer;
    if (i == 0 || plans_[i - 1].spec.layer != progress.layer) BeginBlock(i);
    writer->BeginTensor(i);
    LINNET_RETURN_IF_ERROR(ConvertTensor(plans_[i], writer));
    checkpoint_.Release(plans_[i].requirement);
    const bool block_ends = i + 1 == plans_.size() || plans_[i + 1].spec.layer != progress.layer;
    if (store_ && progress.layer >= 0 && block_ends) SaveBlock(block_begin_, i + 1);
    ++progress.tensors_done;
  }
  for (size_t i = 0; i < plans_.size(); ++i) {
    report->Add(plans_[i], checkpoint_.TypeOf(plans_[i].requirement).name, errors_[i]);
  }
  return Report(progress);
}

// Everything that the stored forms of a block depend on.
Sha256Digest Conversion::ResumeKey(const ConvertOptions& options) const {
  PieceWriter key;
  key.Value(kFormatVersion);
  key.Bytes(std::as_bytes(std::span(std::string_view(LINNET_VERSION))));
  for (const SourceRecord& source : provenance_.sources) {
    key.Bytes(std::as_bytes(std::span(source.name)));
    key.Value(source.size_bytes);
    key.Value(source.sha256);
  }
  for (const auto& type : {options.weights, options.embedding, options.head}) {
    key.Value(type ? static_cast<int>(*type) : -1);
  }
  key.Value(options.block_size);
  key.Value(options.rotate);
  key.Value(options.bits);
  key.Value(options.file_bytes);
  key.Value(options.calibration->window);
  key.Value(options.calibration->damping);
  key.Bytes(std::as_bytes(std::span(options.calibration->ids)));
  Sha256 hash;
  hash.Update(key.content());
  return hash.Finish();
}

void Conversion::BeginBlock(size_t begin) {
  const int32_t layer = plans_[begin].spec.layer;
  block_begin_ = begin;
  block_elements_ = block_total_ = 0;
  for (size_t i = begin; i < plans_.size() && plans_[i].spec.layer == layer; ++i) block_total_ += plans_[i].elements();
  restored_.clear();
  block_gathered_ = false;
  blocks_begun_ = blocks_begun_ || layer >= 0;
  if (store_ && layer >= 0) RestoreBlock();
}

// Takes the block from the store, where it is there whole.
void Conversion::RestoreBlock() {
  const size_t begin = block_begin_;
  const int32_t layer = plans_[begin].spec.layer;
  auto piece = store_->Load(BlockPiece(layer));
  if (!piece) return;
  piece_ = std::move(*piece);
  PieceReader reader(piece_.content);
  std::vector<Restored> restored;
  for (size_t i = begin; i < plans_.size() && plans_[i].spec.layer == layer; ++i) {
    const TensorSpec& spec = plans_[i].spec;
    const auto expected = ComputeTensorBytes(spec.dtype, spec.shape(), spec.block_size);
    Restored tensor;
    tensor.errors = reader.Value<CalibratedErrors>();
    tensor.data = reader.Bytes();
    tensor.scales = reader.Bytes();
    if (!reader.ok() || tensor.data.size() != expected->data || tensor.scales.size() != expected->scales) return;
    restored.push_back(tensor);
  }
  if (reader.at_end()) restored_ = std::move(restored);
}

void Conversion::SaveBlock(size_t begin, size_t end) const {
  if (!restored_.empty()) return;
  PieceWriter piece;
  for (size_t i = begin; i < end; ++i) {
    piece.Value(errors_[i]);
    piece.Bytes(calibration_->stored(i).data);
    piece.Bytes(calibration_->stored(i).scales);
  }
  store_->Save(BlockPiece(plans_[begin].spec.layer), piece.content());
}

Status Conversion::WriteRestored(size_t index, ModelFileWriter* writer, CalibratedErrors* errors) {
  const Restored& tensor = restored_[index - block_begin_];
  *errors = tensor.errors;
  calibration_->Keep(index, tensor.data, tensor.scales);
  LINNET_RETURN_IF_ERROR(writer->WriteData(tensor.data, diagnostic_));
  return writer->WriteScales(tensor.scales, diagnostic_);
}

void Conversion::CountSourceTypes() {
  std::vector<SourceTypeRecord>& types = provenance_.source_types;
  for (const TensorPlan& plan : plans_) {
    const std::string_view name = checkpoint_.TypeOf(plan.requirement).name;
    auto type = std::find_if(types.begin(), types.end(), [name](const SourceTypeRecord& t) { return t.name == name; });
    if (type == types.end()) type = types.insert(types.end(), {std::string(name), 0, 0});
    ++type->tensors;
    type->elements += plan.elements();
  }
  std::stable_sort(types.begin(), types.end(),
                   [](const SourceTypeRecord& a, const SourceTypeRecord& b) { return a.elements > b.elements; });
}

Result<ModelContent> Conversion::MakeContent() {
  const CheckpointInfo& info = checkpoint_.info();
  ModelContent content;
  content.config = info.config;
  LINNET_ASSIGN_OR_RETURN(content.tokenizer, WriteTokenizerSection(info.tokenizer, diagnostic_));
  content.chat_template = info.chat_template;
  content.license = info.license;
  content.name = info.name;
  content.generation = info.generation;
  CountSourceTypes();
  provenance_.converter = "linnet " LINNET_VERSION;
  content.provenance = std::move(provenance_);
  return content;
}

Status Conversion::CheckCalibratedTypes(const ConvertOptions& options) {
  if (options.calibration == nullptr || !options.weights || IsQuantized(*options.weights)) return Status::Ok();
  return Fail(diagnostic_, StatusCode::kInvalidArgument, "nothing to calibrate",
              "calibration: expected weights of type q4 or q8, found %s", DTypeName(*options.weights));
}

Status Conversion::CheckCalibration(const ConvertOptions& options) {
  if (options.calibration == nullptr) {
    if (!options.has_budget()) return Status::Ok();
    return Fail(diagnostic_, StatusCode::kInvalidArgument, "a budget needs a calibration text",
                "bits or size: expected a calibration text to measure losses with, found none");
  }
  const CalibrationOptions& calibration = *options.calibration;
  LINNET_RETURN_IF_ERROR(CheckCalibratedTypes(options));
  const auto vocab_size = static_cast<int64_t>(checkpoint_.info().config.vocab_size);
  bool valid = calibration.window > 0 && !calibration.ids.empty() && calibration.ids.size() % calibration.window == 0;
  for (const int32_t id : calibration.ids) valid = valid && id >= 0 && id < vocab_size;
  if (valid) return Status::Ok();
  return Fail(diagnostic_, StatusCode::kInvalidArgument, "calibration ids do not fit the model",
              "calibration: expected whole windows of ids below %lld, found %zu ids in windows of %u",
              static_cast<long long>(vocab_size), calibration.ids.size(), calibration.window);
}

// The choices that an earlier run has made. False where they do not fit these plans.
bool Conversion::RestoreChoices(std::span<const std::byte> piece, std::vector<ConvertChoice>* choices) {
  PieceReader reader(piece);
  std::vector<TensorPlan> plans = plans_;
  while (!reader.at_end()) {
    const auto choice = reader.Value<ConvertChoice>();
    const auto plan = std::find_if(plans.begin(), plans.end(), [&](const TensorPlan& p) {
      return p.spec.role == choice.role && p.spec.layer == choice.layer;
    });
    if (!reader.ok() || plan == plans.end()) return false;
    SetForm(choice.dtype, choice.block_size, &*plan);
    choices->push_back(choice);
  }
  plans_ = std::move(plans);
  return true;
}

// Measures losses and gives every tensor its form.
Status Conversion::ShareOutBudget(const ConvertOptions& options, const ModelContent& content,
                                  std::vector<ConvertChoice>* choices) {
  progress_state_.stage = "measuring losses";
  std::optional<ResumePiece> piece;
  if (store_) piece = store_->Load(kChoicesPiece);
  if (piece && RestoreChoices(piece->content, choices)) return Status::Ok();
  LINNET_RETURN_IF_ERROR(ChooseByBudget(
      checkpoint_, options, content, store_ ? &*store_ : nullptr, [this](double share) { return ReportShare(share); },
      &plans_, choices, diagnostic_));
  if (!store_) return Status::Ok();
  PieceWriter saved;
  for (const ConvertChoice& choice : *choices) saved.Value(choice);
  store_->Save(kChoicesPiece, saved.content());
  store_->Remove(kLossesPiece);
  store_->Remove(kLogitsPiece);
  return Status::Ok();
}

// With a budget: those that losses are measured with.
Status Conversion::MakePlans(const ConvertOptions& options) {
  LINNET_ASSIGN_OR_RETURN(
      plans_, PlanTensors(checkpoint_,
                          options.has_budget() ? ProbeOptions(options, checkpoint_.info().config.tied_head) : options,
                          diagnostic_));
  return Status::Ok();
}

Result<ModelFileWriter> Conversion::CreateWriter(const std::string& target) {
  std::vector<TensorSpec> specs;
  for (const TensorPlan& plan : plans_) specs.push_back(plan.spec);
  return ModelFileWriter::Create(target, std::move(specs), diagnostic_);
}

// Sources are not hashed: records of the same size stand for theirs.
Status Conversion::Check(const ConvertOptions& options) {
  LINNET_RETURN_IF_ERROR(CheckCalibratedTypes(options));
  LINNET_RETURN_IF_ERROR(MakePlans(options));
  if (!options.has_budget()) return Status::Ok();
  Sha256Digest digest;
  digest.fill(1);
  for (const SourceFile& file : checkpoint_.files()) {
    provenance_.sources.push_back({file.name, file.bytes.size(), digest});
  }
  LINNET_ASSIGN_OR_RETURN(const ModelContent content, MakeContent());
  return CheckBudget(options, checkpoint_.info().config.tied_head, plans_, content, diagnostic_);
}

Status Conversion::Run(const ConvertOptions& options, const std::string& target, ConvertReport* report) {
  const auto start = std::chrono::steady_clock::now();
  LINNET_RETURN_IF_ERROR(CheckCalibration(options));
  LINNET_RETURN_IF_ERROR(MakePlans(options));
  // First of all, so that a target that cannot be written is told before the work.
  LINNET_ASSIGN_OR_RETURN(ModelFileWriter writer, CreateWriter(target));
  LINNET_RETURN_IF_ERROR(HashSources());
  if (options.calibration != nullptr && !options.calibration->resume_folder.empty()) {
    store_.emplace(options.calibration->resume_folder, ResumeKey(options));
  }
  LINNET_ASSIGN_OR_RETURN(const ModelContent content, MakeContent());
  std::vector<ConvertChoice> choices;
  if (options.has_budget()) {
    LINNET_RETURN_IF_ERROR(ShareOutBudget(options, content, &choices));
    LINNET_ASSIGN_OR_RETURN(writer, CreateWriter(target));  // for the types that were chosen
  }
  // With the final types, and where only one writer is left.
  LINNET_RETURN_IF_ERROR(writer.Reserve(diagnostic_));
  if (options.calibration != nullptr) {
    calibration_.emplace(
        checkpoint_, plans_, *options.calibration, [this](double share) { return ReportBlock(share); }, diagnostic_);
    rounding_.emplace(*options.calibration->pool);
  }
  ReportBuilder builder;
  LINNET_RETURN_IF_ERROR(ConvertTensors(&writer, &builder));
  LINNET_RETURN_IF_ERROR(writer.Finish(content, diagnostic_));
  if (report != nullptr) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    *report = builder.Take(writer.file_bytes(), seconds.count());
    report->choices = std::move(choices);
    if (calibration_) report->unseen_matrices = calibration_->unseen_matrices();
  }
  return Status::Ok();
}

}  // namespace

Status Convert(const Checkpoint& checkpoint, const ConvertOptions& options, const std::string& target,
               const ConvertProgressFunction& progress, ConvertReport* report, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const BalancedCheckpoint balanced, BalancedCheckpoint::Create(checkpoint, diagnostic));
  return Conversion(balanced, progress, diagnostic).Run(options, target, report);
}

Status CheckConversion(const Checkpoint& checkpoint, const ConvertOptions& options, Diagnostic* diagnostic) {
  return Conversion(checkpoint, {}, diagnostic).Check(options);
}

}  // namespace linnet::formats
