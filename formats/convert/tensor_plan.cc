#include "formats/convert/tensor_plan.h"

#include <algorithm>

#include "core/base/checked.h"
#include "ops/walsh_hadamard.h"

namespace linnet::formats {
namespace {

constexpr uint32_t kBlockSizes[] = {128, 64, 32};

/// The options with nothing left open.
struct Choice {
  DType linear = DType::kQ8;
  DType embedding = DType::kQ8;
  DType positions = DType::kF32;
  DType head = DType::kQ8;
  uint32_t block_size = 32;
  bool rotate = true;
  bool tied = false;
  bool keep_linear_grids = false;  // also where linear layers are q8 otherwise
};

TensorGroup GroupOf(TensorRole role) {
  if (role == TensorRole::kTokenEmbedding || role == TensorRole::kPositionEmbedding) return TensorGroup::kEmbedding;
  if (role == TensorRole::kHead) return TensorGroup::kHead;
  return IsLinearRole(role) ? TensorGroup::kLinear : TensorGroup::kOther;
}

TensorPlan Plain(const TensorRequirement& requirement) {
  TensorPlan plan;
  plan.requirement = requirement;
  plan.spec.role = requirement.role;
  plan.spec.layer = requirement.layer;
  plan.spec.rank = requirement.rank;
  plan.spec.dims = requirement.dims;
  plan.group = GroupOf(requirement.role);
  return plan;
}

// The type of linear layers, and whether their grids are kept.
void ChooseAutomatic(const Checkpoint& checkpoint, const std::vector<TensorRequirement>& requirements, Choice* choice) {
  double parameters = 0.0, linear = 0.0, linear_bits = 0.0;
  for (const TensorRequirement& requirement : requirements) {
    const double elements = static_cast<double>(Plain(requirement).elements());
    parameters += elements;
    if (GroupOf(requirement.role) != TensorGroup::kLinear) continue;
    linear += elements;
    linear_bits += elements * checkpoint.TypeOf(requirement).bits_per_weight;
  }
  const bool small = parameters < static_cast<double>(kAutoQ8Parameters);
  const bool rounded_before = linear > 0.0 && linear_bits / linear <= kFourBitSourceBits;
  choice->linear = small || rounded_before ? DType::kQ8 : DType::kQ4;
  choice->keep_linear_grids = !small;
}

Result<Choice> Resolve(const Checkpoint& checkpoint, const ConvertOptions& options,
                       const std::vector<TensorRequirement>& requirements, Diagnostic* diagnostic) {
  Choice choice;
  choice.block_size = options.block_size;
  choice.rotate = options.rotate;
  choice.tied = checkpoint.info().config.tied_head;
  if (std::find(std::begin(kBlockSizes), std::end(kBlockSizes), options.block_size) == std::end(kBlockSizes)) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "unknown block size",
                "block size: expected 32, 64 or 128, found %u", options.block_size);
  }
  if (choice.tied && options.embedding && options.head && *options.embedding != *options.head) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "a tied model has one table",
                "embedding and head types: expected the same, since this model's lm_head is its embedding table, found "
                "%s and %s",
                DTypeName(*options.embedding), DTypeName(*options.head));
  }
  if (options.weights) {
    choice.linear = *options.weights;
  } else {
    ChooseAutomatic(checkpoint, requirements, &choice);
  }
  const DType table = IsQuantized(choice.linear) ? DType::kQ8 : choice.linear;
  choice.embedding = options.embedding.value_or(choice.tied && options.head ? *options.head : table);
  choice.head = options.head.value_or(table);
  choice.positions = IsQuantized(choice.embedding) ? DType::kF16 : choice.embedding;
  return choice;
}

DType WantedType(const TensorPlan& plan, const Choice& choice) {
  if (plan.requirement.must_be_f32) return DType::kF32;
  switch (plan.group) {
    case TensorGroup::kLinear:
      return choice.linear;
    case TensorGroup::kHead:
      return choice.head;
    case TensorGroup::kEmbedding:
      return plan.requirement.role == TensorRole::kPositionEmbedding ? choice.positions : choice.embedding;
    case TensorGroup::kOther:
      return DType::kF32;
  }
  return DType::kF32;
}

// The table of a tied model is rotated, since it serves as lm_head too; looked-up rows are rotated back.
bool IsProductInput(const TensorPlan& plan, const Choice& choice) {
  return plan.group == TensorGroup::kLinear || plan.group == TensorGroup::kHead ||
         (choice.tied && plan.requirement.role == TensorRole::kTokenEmbedding);
}

// A grid of 4 bits is stored as it is where q4 is wanted. A rotation would destroy it, and rounding it again would lose
// more than the unrotated activations do (README.md). Wider blocks than the source's are a wish for a smaller file.
bool KeepGrid(const Checkpoint& checkpoint, const Choice& choice, TensorPlan* plan) {
  const bool linear = choice.keep_linear_grids && plan->group == TensorGroup::kLinear;
  if (plan->requirement.must_be_f32 || (plan->wanted != DType::kQ4 && !linear)) return false;
  const uint32_t block_size = checkpoint.Q4GridBlock(plan->requirement);
  if (block_size < choice.block_size) return false;
  plan->wanted = plan->spec.dtype = DType::kQ4;
  plan->wanted_block_size = plan->spec.block_size = block_size;
  plan->keeps_grid = true;
  return true;
}

void ChooseStorage(const Checkpoint& checkpoint, const Choice& choice, TensorPlan* plan) {
  const uint64_t columns = plan->columns();
  plan->wanted = WantedType(*plan, choice);
  if (KeepGrid(checkpoint, choice, plan)) return;
  plan->rounded_before = IsQuantized(plan->wanted) && plan->group != TensorGroup::kOther &&
                         checkpoint.TypeOf(plan->requirement).bits_per_weight <= kFourBitSourceBits;
  plan->spec.dtype = plan->wanted;
  if (plan->wanted == DType::kQ4) {
    plan->wanted_block_size = choice.block_size;
    plan->spec.dtype = DType::kQ8;
    for (const uint32_t block_size : kBlockSizes) {
      if (block_size > choice.block_size || columns % block_size != 0) continue;
      plan->spec.dtype = DType::kQ4;
      plan->spec.block_size = block_size;
      break;
    }
  }
  if (!choice.rotate || !IsQuantized(plan->spec.dtype) || !plan->is_multiplied) return;
  const uint64_t rotation = std::min<uint64_t>(ops::LargestRotationBlock(columns), kMaxRotationBlock);
  if (rotation >= kMinRotationBlock) plan->spec.rotation_block = static_cast<uint32_t>(rotation);
}

}  // namespace

TensorPlan TensorPlan::Unrounded() const {
  TensorPlan plan = *this;
  plan.spec.dtype = DType::kF32;
  plan.spec.block_size = plan.spec.rotation_block = 0;
  return plan;
}

const char* TensorGroupName(TensorGroup group) {
  switch (group) {
    case TensorGroup::kLinear:
      return "linear";
    case TensorGroup::kEmbedding:
      return "embedding";
    case TensorGroup::kHead:
      return "head";
    case TensorGroup::kOther:
      return "other";
  }
  return "?";
}

Result<std::vector<TensorPlan>> PlanTensors(const Checkpoint& checkpoint, const ConvertOptions& options,
                                            Diagnostic* diagnostic) {
  const std::vector<TensorRequirement> requirements = RequiredTensors(checkpoint.info().config);
  LINNET_ASSIGN_OR_RETURN(const Choice choice, Resolve(checkpoint, options, requirements, diagnostic));
  std::vector<TensorPlan> plans;
  plans.reserve(requirements.size());
  for (const TensorRequirement& requirement : requirements) {
    plans.push_back(Plain(requirement));
    plans.back().is_multiplied = IsProductInput(plans.back(), choice);
    ChooseStorage(checkpoint, choice, &plans.back());
  }
  return plans;
}

}  // namespace linnet::formats
