#include "formats/convert/convert.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "formats/convert/report_builder.h"
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

/// One conversion; its members are what the steps share.
class Conversion {
 public:
  Conversion(const Checkpoint& checkpoint, const ConvertProgressFunction& progress, Diagnostic* diagnostic)
      : checkpoint_(checkpoint), progress_(progress), diagnostic_(diagnostic) {}

  Status Run(const ConvertOptions& options, const std::string& target, ConvertReport* report);

 private:
  Status Report(const ConvertProgress& progress);
  Status HashSources();
  Status HashSource(const SourceFile& file, ConvertProgress* progress);
  Status ConvertTensors(ModelFileWriter* writer, ReportBuilder* report);
  Status ConvertTensor(const TensorPlan& plan, ModelFileWriter* writer, ReportBuilder* report,
                       ConvertProgress* progress);
  Status RoundRows(const TensorPlan& plan, uint64_t group, uint64_t row_begin, uint64_t row_count, ErrorSums* errors);
  Status KeepRows(const TensorPlan& plan, uint64_t group, uint64_t row_begin, uint64_t row_count, ErrorSums* errors);
  Status ConvertPart(const TensorPlan& plan, uint64_t group, uint64_t row_begin, uint64_t row_count,
                     ModelFileWriter* writer, ErrorSums* errors);
  Status NameWeight(const Status& status, const TensorPlan& plan, uint64_t group, uint64_t row_begin);
  Result<ModelContent> MakeContent();
  void CountSourceTypes();

  const Checkpoint& checkpoint_;
  const ConvertProgressFunction& progress_;
  Diagnostic* const diagnostic_;
  std::vector<TensorPlan> plans_;
  Provenance provenance_;
  std::vector<float> rows_;
  std::vector<uint8_t> levels_;  // of a kept grid, with rows_ for its scales
  std::vector<std::byte> data_, scales_;
};

Status Conversion::Report(const ConvertProgress& progress) {
  if (!progress_ || progress_(progress)) return Status::Ok();
  return Fail(diagnostic_, StatusCode::kCancelled, "the conversion was cancelled", "the conversion was cancelled");
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

Status Conversion::NameWeight(const Status& status, const TensorPlan& plan, uint64_t group, uint64_t row_begin) {
  const uint64_t index = static_cast<uint64_t>(std::max<int64_t>(status.value(), 0));
  return Fail(diagnostic_, status.code(), status.message(),
              "tensor %s of layer %d, group %llu, row %llu, column %llu: %s (stored as %s, wanted as %s)",
              TensorRoleName(plan.spec.role), plan.spec.layer, static_cast<unsigned long long>(group),
              static_cast<unsigned long long>(row_begin + index / plan.columns()),
              static_cast<unsigned long long>(index % plan.columns()), status.message(),
              checkpoint_.TypeOf(plan.requirement).name, DTypeName(plan.spec.dtype));
}

Status Conversion::RoundRows(const TensorPlan& plan, uint64_t group, uint64_t row_begin, uint64_t row_count,
                             ErrorSums* errors) {
  const TensorSpec& spec = plan.spec;
  rows_.resize(row_count * plan.columns());
  LINNET_RETURN_IF_ERROR(checkpoint_.ReadRows(plan.requirement, group, row_begin, row_count, rows_, diagnostic_));
  const QuantizeOptions options = {spec.dtype, spec.block_size, spec.rotation_block};
  const Status quantized = QuantizeRows(rows_, plan.columns(), options, data_, scales_, errors);
  return quantized.ok() ? quantized : NameWeight(quantized, plan, group, row_begin);
}

Status Conversion::KeepRows(const TensorPlan& plan, uint64_t group, uint64_t row_begin, uint64_t row_count,
                            ErrorSums* errors) {
  const uint64_t weights = row_count * plan.columns();
  levels_.resize(weights / 2);
  rows_.resize(weights / plan.spec.block_size);
  LINNET_RETURN_IF_ERROR(
      checkpoint_.ReadQ4Grid(plan.requirement, group, row_begin, row_count, {levels_, rows_}, diagnostic_));
  const Status stored = StoreQ4Grid(levels_, rows_, plan.spec.block_size, data_, scales_, errors);
  return stored.ok() ? stored : NameWeight(stored, plan, group, row_begin);
}

Status Conversion::ConvertPart(const TensorPlan& plan, uint64_t group, uint64_t row_begin, uint64_t row_count,
                               ModelFileWriter* writer, ErrorSums* errors) {
  const TensorSpec& spec = plan.spec;
  // A part has the shape [row_count, columns]; one row of a vector is no matrix, and is never quantized.
  const std::array<uint64_t, 2> shape = {row_count, plan.columns()};
  LINNET_ASSIGN_OR_RETURN(const TensorBytes bytes, ComputeTensorBytes(spec.dtype, shape, spec.block_size));
  data_.resize(bytes.data);
  scales_.resize(bytes.scales);
  LINNET_RETURN_IF_ERROR(plan.keeps_grid ? KeepRows(plan, group, row_begin, row_count, errors)
                                         : RoundRows(plan, group, row_begin, row_count, errors));
  LINNET_RETURN_IF_ERROR(writer->WriteData(data_, diagnostic_));
  return writer->WriteScales(scales_, diagnostic_);
}

Status Conversion::ConvertTensor(const TensorPlan& plan, ModelFileWriter* writer, ReportBuilder* report,
                                 ConvertProgress* progress) {
  ErrorSums errors;
  const uint64_t part_rows = std::max<uint64_t>(1, kPartElements / plan.columns());
  for (uint64_t group = 0; group < plan.groups(); ++group) {
    for (uint64_t row = 0; row < plan.rows(); row += part_rows) {
      const uint64_t count = std::min(part_rows, plan.rows() - row);
      LINNET_RETURN_IF_ERROR(ConvertPart(plan, group, row, count, writer, &errors));
      progress->elements_done += count * plan.columns();
      LINNET_RETURN_IF_ERROR(Report(*progress));
    }
  }
  report->Add(plan, checkpoint_.TypeOf(plan.requirement).name, errors);
  return Status::Ok();
}

Status Conversion::ConvertTensors(ModelFileWriter* writer, ReportBuilder* report) {
  ConvertProgress progress;
  progress.stage = "weights";
  progress.tensors_total = static_cast<uint32_t>(plans_.size());
  for (const TensorPlan& plan : plans_) progress.elements_total += plan.elements();
  for (size_t i = 0; i < plans_.size(); ++i) {
    progress.role = plans_[i].spec.role;
    progress.layer = plans_[i].spec.layer;
    writer->BeginTensor(i);
    LINNET_RETURN_IF_ERROR(ConvertTensor(plans_[i], writer, report, &progress));
    checkpoint_.Release(plans_[i].requirement);
    progress.tensors_done = static_cast<uint32_t>(i + 1);
  }
  return Report(progress);
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

Status Conversion::Run(const ConvertOptions& options, const std::string& target, ConvertReport* report) {
  const auto start = std::chrono::steady_clock::now();
  LINNET_ASSIGN_OR_RETURN(plans_, PlanTensors(checkpoint_, options, diagnostic_));
  std::vector<TensorSpec> specs;
  for (const TensorPlan& plan : plans_) specs.push_back(plan.spec);
  // First of all, so that a target that cannot be written is told before the work.
  LINNET_ASSIGN_OR_RETURN(ModelFileWriter writer, ModelFileWriter::Create(target, std::move(specs), diagnostic_));
  LINNET_RETURN_IF_ERROR(HashSources());
  LINNET_ASSIGN_OR_RETURN(const ModelContent content, MakeContent());
  ReportBuilder builder;
  LINNET_RETURN_IF_ERROR(ConvertTensors(&writer, &builder));
  LINNET_RETURN_IF_ERROR(writer.Finish(content, diagnostic_));
  if (report != nullptr) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    *report = builder.Take(writer.file_bytes(), seconds.count());
  }
  return Status::Ok();
}

}  // namespace

Status Convert(const Checkpoint& checkpoint, const ConvertOptions& options, const std::string& target,
               const ConvertProgressFunction& progress, ConvertReport* report, Diagnostic* diagnostic) {
  return Conversion(checkpoint, progress, diagnostic).Run(options, target, report);
}

}  // namespace linnet::formats
