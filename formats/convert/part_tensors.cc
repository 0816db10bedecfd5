#include "formats/convert/part_tensors.h"

#include <algorithm>
#include <cstring>

#include "formats/quantize/quantize.h"

namespace linnet::formats {

TensorView PartView(const TensorSpec& spec, std::span<const std::byte> data, std::span<const std::byte> scales) {
  TensorView view;
  view.role = spec.role;
  view.layer = spec.layer < 0 ? -1 : 0;
  view.dtype = spec.dtype;
  view.rank = spec.rank;
  view.dims = spec.dims;
  view.block_size = spec.block_size;
  view.rotation_block = spec.rotation_block;
  view.data = data;
  view.scales = scales;
  return view;
}

Status NameWeight(const Status& status, const Checkpoint& checkpoint, const TensorPlan& plan, uint64_t group,
                  uint64_t first_row, Diagnostic* diagnostic) {
  if (status.ok()) return status;
  const auto index = static_cast<uint64_t>(std::max<int64_t>(status.value(), 0));
  return Fail(diagnostic, status.code(), status.message(),
              "tensor %s of layer %d, group %llu, row %llu, column %llu: %s (stored as %s, wanted as %s)",
              TensorRoleName(plan.spec.role), plan.spec.layer, static_cast<unsigned long long>(group),
              static_cast<unsigned long long>(first_row + index / plan.columns()),
              static_cast<unsigned long long>(index % plan.columns()), status.message(),
              checkpoint.TypeOf(plan.requirement).name, DTypeName(plan.spec.dtype));
}

Status AppendDecoded(const Checkpoint& checkpoint, const TensorPlan& plan, PartTensors* tensors,
                     Diagnostic* diagnostic) {
  AlignedBytes memory(plan.elements() * sizeof(float));
  auto* values = reinterpret_cast<float*>(memory.bytes().data());
  const uint64_t group_size = plan.rows() * plan.columns();
  for (uint64_t group = 0; group < plan.groups(); ++group) {
    LINNET_RETURN_IF_ERROR(checkpoint.ReadRows(plan.requirement, group, 0, plan.rows(),
                                               {values + group * group_size, group_size}, diagnostic));
  }
  tensors->views.push_back(PartView(plan.Unrounded().spec, memory.bytes(), {}));
  tensors->memory.push_back(std::move(memory));
  return Status::Ok();
}

Status AppendRounded(const Checkpoint& checkpoint, const TensorPlan& plan, std::span<const int32_t> rows,
                     PartTensors* tensors, Diagnostic* diagnostic) {
  // A kept grid is decoded instead: the values are the same but for the scales' last bits.
  TensorSpec spec = plan.keeps_grid ? plan.Unrounded().spec : plan.spec;
  if (!rows.empty()) spec.dims[0] = rows.size();
  const uint64_t groups = spec.rank == 3 ? spec.dims[0] : 1, columns = plan.columns();
  const uint64_t n_rows = rows.empty() ? plan.rows() : rows.size();
  LINNET_ASSIGN_OR_RETURN(const TensorBytes bytes, ComputeTensorBytes(spec.dtype, spec.shape(), spec.block_size));
  AlignedBytes data(bytes.data), scales(bytes.scales);
  const size_t row_bytes = bytes.data / (groups * n_rows), row_scales = bytes.scales / (groups * n_rows);
  std::vector<float> row(columns);
  ErrorSums errors;
  for (uint64_t i = 0; i < groups * n_rows; ++i) {
    const uint64_t number = rows.empty() ? i % n_rows : static_cast<uint64_t>(rows[i]);
    LINNET_RETURN_IF_ERROR(checkpoint.ReadRows(plan.requirement, i / n_rows, number, 1, row, diagnostic));
    const Status rounded = QuantizeRows(row, columns, {spec.dtype, spec.block_size, spec.rotation_block},
                                        data.bytes().subspan(i * row_bytes, row_bytes),
                                        scales.bytes().subspan(i * row_scales, row_scales), &errors);
    LINNET_RETURN_IF_ERROR(NameWeight(rounded, checkpoint, plan, i / n_rows, number, diagnostic));
  }
  tensors->views.push_back(PartView(spec, data.bytes(), scales.bytes()));
  tensors->memory.push_back(std::move(data));
  tensors->memory.push_back(std::move(scales));
  return Status::Ok();
}

Status AppendEmbeddingRest(const Checkpoint& checkpoint, const std::vector<TensorPlan>& plans, PartTensors* tensors,
                           Diagnostic* diagnostic) {
  for (const TensorPlan& plan : plans) {
    const TensorRole role = plan.spec.role;
    const bool wanted = role == TensorRole::kPositionEmbedding || role == TensorRole::kEmbeddingNormGain ||
                        role == TensorRole::kEmbeddingNormBias;
    if (wanted) LINNET_RETURN_IF_ERROR(AppendDecoded(checkpoint, plan, tensors, diagnostic));
  }
  return Status::Ok();
}

void AppendStandInTable(size_t model_dim, PartTensors* tensors) {
  AlignedBytes row(model_dim * sizeof(float));
  std::memset(row.bytes().data(), 0, row.bytes().size());
  TensorSpec table;
  table.rank = 2;
  table.dims = {1, model_dim, 0};
  tensors->views.push_back(PartView(table, row.bytes(), {}));
  tensors->memory.push_back(std::move(row));
}

std::vector<int32_t> DistinctIds(std::span<const int32_t> ids, std::vector<int32_t>* places) {
  std::vector<int32_t> distinct(ids.begin(), ids.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  places->clear();
  for (const int32_t id : ids) {
    places->push_back(static_cast<int32_t>(std::lower_bound(distinct.begin(), distinct.end(), id) - distinct.begin()));
  }
  return distinct;
}

}  // namespace linnet::formats
