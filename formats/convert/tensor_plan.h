// Which type every tensor of a conversion gets.
#ifndef LINNET_FORMATS_CONVERT_TENSOR_PLAN_H_
#define LINNET_FORMATS_CONVERT_TENSOR_PLAN_H_

#include <cstdint>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/dtype.h"
#include "core/base/model_view.h"
#include "core/base/status.h"
#include "formats/checkpoint.h"
#include "formats/convert/convert.h"
#include "formats/linnet/file_layout.h"
#include "formats/quantize/quantize.h"

namespace linnet::formats {

/// How a tensor counts in the report.
enum class TensorGroup : uint8_t { kLinear = 0, kEmbedding = 1, kHead = 2, kOther = 3 };
const char* TensorGroupName(TensorGroup group);

struct TensorPlan {
  TensorRequirement requirement;
  TensorSpec spec;
  TensorGroup group = TensorGroup::kOther;
  DType wanted = DType::kF32;  // differs from spec's where no block divides the width
  uint32_t wanted_block_size = 0;
  bool keeps_grid = false;      // the source's integers are taken as they are: q4, not rotated
  bool is_multiplied = false;   // a matrix of products: a linear layer, the head, or the table that is both
  bool rounded_before = false;  // the source has about 4 bits, on a grid that the stored type cannot hold

  uint64_t groups() const { return spec.rank == 3 ? spec.dims[0] : 1; }
  uint64_t rows() const { return spec.rank == 1 ? 1 : spec.dims[spec.rank - 2]; }
  uint64_t columns() const { return spec.dims[spec.rank - 1]; }
  uint64_t elements() const { return groups() * rows() * columns(); }
  QuantizeOptions form() const { return {spec.dtype, spec.block_size, spec.rotation_block}; }
  /// The same tensor stored as f32.
  TensorPlan Unrounded() const;
};

/// True where the stored form is rounded by Linnet, so that it may be another.
inline bool HasChoice(const TensorPlan& plan) { return IsQuantized(plan.spec.dtype) && !plan.keeps_grid; }

/// Average bits of the source's linear layers above which they count as not yet rounded to about 4 bits. Q4_1 has 5.0,
/// Q5_0 and Q5_K 5.5, Q5_1 6.0, Q6_K 6.5625.
constexpr double kFourBitSourceBits = 6.0;
/// Rotations of fewer neighbours do not spread outliers.
constexpr uint64_t kMinRotationBlock = 16;
/// 4,096 floats are half of the smallest level-1 cache in use, so that the transform stays in it.
constexpr uint64_t kMaxRotationBlock = 4096;

/// Resolves what the options leave open and plans every tensor that the description requires, in file order.
/// Errors: kInvalidArgument (an unknown block size; two types for the one table of a tied model).
Result<std::vector<TensorPlan>> PlanTensors(const Checkpoint& checkpoint, const ConvertOptions& options,
                                            Diagnostic* diagnostic);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_TENSOR_PLAN_H_
