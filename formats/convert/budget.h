// Which of several stored forms every tensor gets when all together may take so many bytes.
#ifndef LINNET_FORMATS_CONVERT_BUDGET_H_
#define LINNET_FORMATS_CONVERT_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"

namespace linnet::formats {

/// One way to store a tensor.
struct BudgetChoice {
  uint64_t bytes = 0;
  double loss = 0.0;  // of the model, added over tensors
};

/// The choice of every tensor such that the sum of bytes is at most `budget_bytes` and the sum of losses is least: a
/// multiple-choice knapsack, solved by dynamic programming. Where what is to be shared out is more than kBudgetUnits
/// bytes, it is shared out in that many units, sizes rounded up, and what rounding left over goes to the upgrades that
/// gain most for a byte: the sum of losses is then the least one to within a few units.
/// Every tensor has at least one choice and at most 255. Errors: kInvalidArgument where even the smallest choices do
/// not fit; value() is their sum.
Result<std::vector<size_t>> ChooseWithinBudget(std::span<const std::vector<BudgetChoice>> tensors,
                                               uint64_t budget_bytes);

constexpr uint64_t kBudgetUnits = 1 << 15;

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_BUDGET_H_
