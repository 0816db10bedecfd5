// Public header. What a step of a plan has to move and to multiply: the denominator of every "how near to the limits".
#ifndef LINNET_CORE_STEP_COST_H_
#define LINNET_CORE_STEP_COST_H_

#include <cstdint>

#include "core/base/model_view.h"
#include "core/plan.h"

namespace linnet {

/// Bytes are those that must pass at least once, however small the caches: what a kernel reads twice counts once.
struct StepCost {
  uint64_t weight_bytes = 0;         // packed matrices and rows of mapped tables
  uint64_t kv_bytes = 0;             // cache read and written
  uint64_t activation_bytes = 0;     // rows read and written; they usually stay in a cache
  uint64_t int8_multiply_adds = 0;   // products of int8 rows and quantized weights
  uint64_t float_multiply_adds = 0;  // products in f32, attention's scores and values among them

  uint64_t memory_bytes() const { return weight_bytes + kv_bytes; }
  uint64_t multiply_adds() const { return int8_multiply_adds + float_multiply_adds; }
  StepCost& operator+=(const StepCost& other);
  bool operator==(const StepCost&) const = default;
};

/// Rows of a run: tokens at the absolute positions [first_pos, first_pos + n_rows).
struct StepRows {
  uint32_t n_rows = 1;
  uint32_t first_pos = 0;
};

/// The cost of one run of `step`, which belongs to a plan of `model`. Norms, rotations, softmax and activations are
/// not counted as multiply-adds: they are under a hundredth. Which experts rows choose is not known: as many as can be
/// are counted, each once.
StepCost CostOfStep(const ModelView& model, const Plan& plan, const Step& step, const StepRows& rows);

/// The cost of Session::Prefill of `n_tokens` tokens behind `position`, logits of the last one only.
StepCost CostOfPrefill(const ModelView& model, const Plan& plan, uint32_t position, uint32_t n_tokens);
/// The cost of `n_tokens` calls of Session::Decode behind `position`.
StepCost CostOfDecode(const ModelView& model, const Plan& plan, uint32_t position, uint32_t n_tokens);

}  // namespace linnet

#endif  // LINNET_CORE_STEP_COST_H_
