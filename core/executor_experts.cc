// The mixture-of-experts steps of Executor.
#include <algorithm>
#include <cstring>

#include "core/executor.h"
#include "ops/dense.h"
#include "ops/elementwise.h"
#include "ops/routing.h"

namespace linnet {

Status Executor::Run(const RouteStep& step) {
  const FfnSpec& ffn = *step.ffn;
  const size_t width = model_dim(), n_experts = ffn.n_experts, top_k = ffn.top_k;
  ForRows(current_.n_rows, [&](size_t first, size_t n, size_t thread) {
    const ops::Rows logits = {At<float>(step.logits) + first * n_experts, n_experts};
    ops::Dense({At<float>(step.in) + first * width, width}, n,
               {.weights = Values(step.router), .bias = Values(step.bias), .n_outputs = n_experts, .width = width},
               logits);
    ops::RouteTokens(
        ffn, {.logits = logits, .n_rows = n, .selection_bias = Values(step.selection_bias)},
        {ThreadScratch(step.scratch, thread), ops::RoutingScratchFloats(ffn)},
        {.ids = At<uint32_t>(step.ids) + first * top_k, .weights = At<float>(step.weights) + first * top_k});
  });
  return Status::Ok();
}

// Fills `order`: [n_experts + 1] where each expert's rows begin, then the rows, ascending within an expert, with their
// weights in the same places of row_weights.
void Executor::SortByExpert(const ExpertsStep& step) const {
  const size_t n_experts = step.ffn->n_experts, top_k = step.ffn->top_k;
  const size_t n_chosen = current_.n_rows * top_k;
  const auto* ids = At<uint32_t>(step.ids);
  auto* begin = At<uint32_t>(step.order);
  uint32_t* rows = begin + n_experts + 1;
  std::fill(begin, begin + n_experts + 1, 0u);
  for (size_t i = 0; i < n_chosen; ++i) ++begin[ids[i] + 1];
  for (size_t e = 0; e < n_experts; ++e) begin[e + 1] += begin[e];
  // Filling moves each begin to the next expert's; shifting them back afterwards restores them.
  for (size_t i = 0; i < n_chosen; ++i) {
    const uint32_t place = begin[ids[i]]++;
    rows[place] = static_cast<uint32_t>(i / top_k);
    At<float>(step.row_weights)[place] = At<float>(step.weights)[i];
  }
  for (size_t e = n_experts; e > 0; --e) begin[e] = begin[e - 1];
  begin[0] = 0;
}

void Executor::GatherRows(const ExpertsStep& step, const uint32_t* rows, size_t n_rows) {
  const size_t width = model_dim();
  if (step.in.int8 == kNoBuffer) {
    ops::GatherRows({At<float>(step.in.f32), width}, rows, n_rows, width, {At<float>(step.gathered.f32), width});
    return;
  }
  for (size_t i = 0; i < n_rows; ++i) {
    std::memcpy(At<int8_t>(step.gathered.int8) + i * width, At<int8_t>(step.in.int8) + rows[i] * width, width);
    At<ops::RowQuantization>(step.gathered.quantization)[i] = At<ops::RowQuantization>(step.in.quantization)[rows[i]];
  }
}

Status Executor::RunExpert(const ExpertsStep& step, uint32_t expert, const uint32_t* rows, size_t n_rows,
                           const float* weights) {
  const FfnSpec& ffn = *step.ffn;
  const size_t width = model_dim(), ffn_dim = ffn.ffn_dim, up_width = ffn.gated ? 2 * ffn_dim : ffn_dim;
  GatherRows(step, rows, n_rows);
  LINNET_RETURN_IF_ERROR(Multiply(step.first_up + expert, Input(step.gathered), n_rows, At<float>(step.up)));
  ForRows(n_rows, [&](size_t first, size_t n, size_t thread) {
    for (size_t r = first; r < first + n; ++r) {
      ActivateRow(ffn, At<float>(step.up) + r * up_width, r, ffn_dim, step.activated, step.down_rotation,
                  ThreadScratch(step.scratch, thread));
    }
  });
  LINNET_RETURN_IF_ERROR(Multiply(step.first_down + expert, Input(step.activated), n_rows, At<float>(step.down)));
  // A token occurs once among an expert's rows, so that threads never add to the same one.
  ForRows(n_rows, [&](size_t first, size_t n, size_t) {
    ops::AddWeightedRows(
        {.x = {At<float>(step.down) + first * width, width}, .weights = weights + first, .row_ids = rows + first}, n,
        width, RowsAt(step.out, width));
  });
  return Status::Ok();
}

Status Executor::Run(const ExpertsStep& step) {
  SortByExpert(step);
  std::memset(At<float>(step.out), 0, current_.n_rows * size_t{model_dim()} * sizeof(float));
  const uint32_t n_experts = step.ffn->n_experts;
  const auto* begin = At<uint32_t>(step.order);
  const uint32_t* rows = begin + n_experts + 1;
  // Ascending experts, so that a token's sum has the same order whatever else is in the chunk.
  for (uint32_t e = 0; e < n_experts; ++e) {
    const uint32_t first = begin[e], n = begin[e + 1] - first;
    if (n == 0) continue;
    LINNET_RETURN_IF_ERROR(RunExpert(step, e, rows + first, n, At<float>(step.row_weights) + first));
  }
  return Status::Ok();
}

Status Executor::Run(const SharedGateStep& step) {
  const size_t width = model_dim();
  ForRows(current_.n_rows, [&](size_t first, size_t n, size_t) {
    float* gates = At<float>(step.scratch) + first;
    ops::Dense({At<float>(step.x) + first * width, width}, n,
               {.weights = Values(step.gate), .bias = nullptr, .n_outputs = 1, .width = width}, {gates, 1});
    ops::SigmoidGate({At<float>(step.in) + first * width, width}, n, width, gates);
  });
  return Status::Ok();
}

}  // namespace linnet
