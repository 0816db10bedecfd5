#include "formats/convert/mixed_precision.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/base/check.h"
#include "formats/convert/budget.h"
#include "formats/convert/sensitivity.h"
#include "formats/linnet/file_layout.h"
#include "formats/linnet/metadata.h"

namespace linnet::formats {
namespace {

uint64_t BytesOf(const TensorPlan& plan) {
  const auto bytes = ComputeTensorBytes(plan.spec.dtype, plan.spec.shape(), plan.spec.block_size);
  LINNET_CHECK(bytes.ok());  // shapes were checked with the description
  return bytes->data + bytes->scales;
}

double ParametersOf(const std::vector<TensorPlan>& plans) {
  double parameters = 0.0;
  for (const TensorPlan& plan : plans) parameters += static_cast<double>(plan.elements());
  return parameters;
}

// Bytes of the file with these tensors.
Result<uint64_t> FileBytes(const std::vector<TensorPlan>& plans, const ModelContent& content, Diagnostic* diagnostic) {
  std::vector<TensorSpec> specs;
  for (const TensorPlan& plan : plans) specs.push_back(plan.spec);
  LINNET_ASSIGN_OR_RETURN(const FileLayout layout, PlanFileLayout(specs));
  std::vector<TensorRecord> records;
  // Hashes are of one size; any but zeros, which the metadata leaves out.
  Sha256Digest digest;
  digest.fill(1);
  for (size_t i = 0; i < specs.size(); ++i) records.push_back({specs[i], layout.places[i], digest});
  LINNET_ASSIGN_OR_RETURN(const std::vector<std::byte> metadata,
                          BuildMetadata(content, records, layout.segments, digest, diagnostic));
  return layout.metadata_offset + metadata.size();
}

// Only the type that was asked for by name, where one was.
std::vector<StoredForm> Allowed(const ConvertOptions& options, bool tied, const TensorPlan& plan,
                                std::vector<StoredForm> forms) {
  std::optional<DType> asked;
  if (plan.spec.role == TensorRole::kTokenEmbedding) {
    asked = options.embedding || !tied ? options.embedding : options.head;
  }
  if (plan.spec.role == TensorRole::kHead) asked = options.head;
  std::vector<StoredForm> allowed = forms;
  std::erase_if(allowed, [&asked](const StoredForm& form) { return asked && form.dtype != *asked; });
  return allowed.empty() ? forms : allowed;
}

// Every tensor in its smallest form.
std::vector<TensorPlan> Smallest(const ConvertOptions& options, bool tied, std::vector<TensorPlan> plans) {
  for (TensorPlan& plan : plans) {
    if (!HasChoice(plan)) continue;
    const std::vector<StoredForm> forms = Allowed(options, tied, plan, PossibleForms(plan));
    const auto least = std::min_element(forms.begin(), forms.end(),
                                        [](const StoredForm& a, const StoredForm& b) { return a.bytes < b.bytes; });
    SetForm(least->dtype, least->block_size, &plan);
  }
  return plans;
}

uint64_t SumBytes(const std::vector<TensorPlan>& plans) {
  uint64_t bytes = 0;
  for (const TensorPlan& plan : plans) bytes += BytesOf(plan);
  return bytes;
}

// Gives the tensors their forms within `budget` bytes of weights.
Status Share(const std::vector<TensorSensitivity>& sensitivities, uint64_t budget, std::vector<TensorPlan>* plans,
             std::vector<ConvertChoice>* choices) {
  uint64_t fixed = 0;
  for (const TensorPlan& plan : *plans) fixed += HasChoice(plan) ? 0 : BytesOf(plan);
  std::vector<std::vector<BudgetChoice>> items;
  for (const TensorSensitivity& sensitivity : sensitivities) {
    items.emplace_back();
    for (const StoredForm& form : sensitivity.forms) items.back().push_back({form.bytes, form.loss});
  }
  LINNET_ASSIGN_OR_RETURN(const std::vector<size_t> chosen,
                          ChooseWithinBudget(items, budget - std::min(budget, fixed)));
  choices->clear();
  for (size_t i = 0; i < sensitivities.size(); ++i) {
    TensorPlan& plan = (*plans)[sensitivities[i].index];
    const StoredForm& form = sensitivities[i].forms[chosen[i]];
    SetForm(form.dtype, form.block_size, &plan);
    choices->push_back({plan.spec.role, plan.spec.layer, form.dtype, form.block_size, form.bytes,
                        sensitivities[i].probe_loss, form.loss});
  }
  return Status::Ok();
}

}  // namespace

Status CheckBudget(const ConvertOptions& options, bool tied, const std::vector<TensorPlan>& plans,
                   const ModelContent& content, Diagnostic* diagnostic) {
  const std::vector<TensorPlan> smallest = Smallest(options, tied, plans);
  constexpr const char* kMessage = "the budget is too small for this model";
  LINNET_ASSIGN_OR_RETURN(const uint64_t file_bytes, FileBytes(smallest, content, diagnostic));
  if (options.file_bytes > 0 && file_bytes > options.file_bytes) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, kMessage, "--size: expected at least %llu bytes, found %llu",
                static_cast<unsigned long long>(file_bytes), static_cast<unsigned long long>(options.file_bytes));
  }
  const double bits = 8.0 * static_cast<double>(SumBytes(smallest)) / ParametersOf(plans);
  if (options.file_bytes > 0 || bits <= options.bits) return Status::Ok();
  // Rounded up, so that the number is one that works.
  return Fail(diagnostic, StatusCode::kInvalidArgument, kMessage,
              "--bits: expected at least %.3f bits per weight, found %.3f", std::ceil(bits * 1e3) / 1e3, options.bits);
}

void SetForm(DType dtype, uint32_t block_size, TensorPlan* plan) {
  plan->spec.dtype = plan->wanted = dtype;
  plan->spec.block_size = plan->wanted_block_size = block_size;
}

ConvertOptions ProbeOptions(const ConvertOptions& options, bool tied) {
  ConvertOptions probe = options;
  probe.weights = DType::kQ4;
  probe.block_size = 32;
  // A tied table has one type, whichever option names it.
  if (tied && (probe.embedding || probe.head)) return probe;
  if (!probe.embedding) probe.embedding = DType::kQ4;
  if (!probe.head) probe.head = DType::kQ4;
  return probe;
}

Status ChooseByBudget(const Checkpoint& checkpoint, const ConvertOptions& options, const ModelContent& content,
                      const ResumeStore* store, const RunStepFunction& step, std::vector<TensorPlan>* plans,
                      std::vector<ConvertChoice>* choices, Diagnostic* diagnostic) {
  const bool tied = checkpoint.info().config.tied_head;
  LINNET_RETURN_IF_ERROR(CheckBudget(options, tied, *plans, content, diagnostic));
  SensitivityRun run(checkpoint, *plans, *options.calibration, store, step, diagnostic);
  LINNET_ASSIGN_OR_RETURN(std::vector<TensorSensitivity> sensitivities, run.Run());
  for (TensorSensitivity& sensitivity : sensitivities) {
    sensitivity.forms = Allowed(options, tied, (*plans)[sensitivity.index], std::move(sensitivity.forms));
  }
  // What CheckBudget has found to fit, whatever is rounded or taken off below.
  const uint64_t smallest = SumBytes(Smallest(options, tied, *plans));
  if (options.file_bytes == 0) {
    const auto budget = static_cast<uint64_t>(std::floor(options.bits * ParametersOf(*plans) / 8.0));
    return Share(sensitivities, std::max(budget, smallest), plans, choices);
  }
  // The gaps of a layout depend on the types: what the file is too large by is taken off until it fits.
  uint64_t budget = options.file_bytes;
  while (true) {
    LINNET_RETURN_IF_ERROR(Share(sensitivities, budget, plans, choices));
    LINNET_ASSIGN_OR_RETURN(const uint64_t file_bytes, FileBytes(*plans, content, diagnostic));
    if (file_bytes <= options.file_bytes) return Status::Ok();
    if (budget == smallest) return Status(StatusCode::kInternal, "the smallest forms no longer fit");
    const uint64_t used = std::min(budget, SumBytes(*plans));
    budget = std::max(smallest, used - std::min(used, file_bytes - options.file_bytes));
  }
}

}  // namespace linnet::formats
