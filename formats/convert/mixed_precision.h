// Types per tensor by a budget: measured losses, shared out as a knapsack.
#ifndef LINNET_FORMATS_CONVERT_MIXED_PRECISION_H_
#define LINNET_FORMATS_CONVERT_MIXED_PRECISION_H_

#include <cstdint>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "formats/checkpoint.h"
#include "formats/convert/calibration_run.h"
#include "formats/convert/convert.h"
#include "formats/convert/resume_store.h"
#include "formats/convert/tensor_plan.h"
#include "formats/linnet/model_content.h"

namespace linnet::formats {

/// The options of the plan that losses are measured with: everything that is not asked for by name in q4.
ConvertOptions ProbeOptions(const ConvertOptions& options, bool tied);

/// Whether the smallest forms of `plans` (made with ProbeOptions) fit options.bits or options.file_bytes; measures
/// nothing. Errors: kInvalidArgument with the least budget that this model can have.
Status CheckBudget(const ConvertOptions& options, bool tied, const std::vector<TensorPlan>& plans,
                   const ModelContent& content, Diagnostic* diagnostic);

/// Gives a quantized tensor another form; its rotation stays.
void SetForm(DType dtype, uint32_t block_size, TensorPlan* plan);

/// Measures every quantized tensor of `plans` (made with ProbeOptions) and gives each the form that the budget of
/// options.bits or options.file_bytes allows, with the least sum of losses; appends what was chosen to `choices`.
/// content: what the file holds beside tensors. store: where the measuring is kept, or null. Errors: kInvalidArgument
/// where even the smallest forms are larger than the budget; those of SensitivityRun.
Status ChooseByBudget(const Checkpoint& checkpoint, const ConvertOptions& options, const ModelContent& content,
                      const ResumeStore* store, const RunStepFunction& step, std::vector<TensorPlan>* plans,
                      std::vector<ConvertChoice>* choices, Diagnostic* diagnostic);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_MIXED_PRECISION_H_
