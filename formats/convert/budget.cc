#include "formats/convert/budget.h"

#include <algorithm>
#include <limits>

#include "core/base/check.h"
#include "core/base/checked.h"

namespace linnet::formats {
namespace {

using Choices = std::vector<BudgetChoice>;

uint64_t SmallestBytes(const Choices& choices) {
  uint64_t bytes = choices[0].bytes;
  for (const BudgetChoice& choice : choices) bytes = std::min(bytes, choice.bytes);
  return bytes;
}

// least[u]: the least loss of the tensors so far with at most u units beyond their smallest choices.
std::vector<size_t> SolveInUnits(std::span<const Choices> tensors, size_t n_units, uint64_t unit_bytes) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<double> least(n_units + 1, 0.0), next(n_units + 1);
  std::vector<uint8_t> taken(tensors.size() * (n_units + 1));
  for (size_t t = 0; t < tensors.size(); ++t) {
    const uint64_t smallest = SmallestBytes(tensors[t]);
    std::fill(next.begin(), next.end(), kNever);
    uint8_t* const row = taken.data() + t * (n_units + 1);
    for (size_t c = 0; c < tensors[t].size(); ++c) {
      const uint64_t units = CeilDiv(tensors[t][c].bytes - smallest, unit_bytes);
      for (size_t u = units; u <= n_units; ++u) {
        const double loss = least[u - units] + tensors[t][c].loss;
        if (loss >= next[u]) continue;
        next[u] = loss;
        row[u] = static_cast<uint8_t>(c);
      }
    }
    least.swap(next);
  }
  std::vector<size_t> chosen(tensors.size());
  size_t left = n_units;
  for (size_t t = tensors.size(); t-- > 0;) {
    chosen[t] = taken[t * (n_units + 1) + left];
    left -= CeilDiv(tensors[t][chosen[t]].bytes - SmallestBytes(tensors[t]), unit_bytes);
  }
  return chosen;
}

// Spends bytes that rounding to units has left over.
void SpendRest(std::span<const Choices> tensors, uint64_t rest, std::vector<size_t>* chosen) {
  while (true) {
    double best_gain = 0.0;
    size_t best_tensor = 0, best_choice = 0;
    for (size_t t = 0; t < tensors.size(); ++t) {
      const BudgetChoice& now = tensors[t][(*chosen)[t]];
      for (size_t c = 0; c < tensors[t].size(); ++c) {
        const BudgetChoice& other = tensors[t][c];
        if (other.loss >= now.loss || other.bytes > now.bytes + rest) continue;
        const uint64_t added = other.bytes > now.bytes ? other.bytes - now.bytes : 0;
        const double gain = (now.loss - other.loss) / (static_cast<double>(added) + 1.0);
        if (gain <= best_gain) continue;
        best_gain = gain;
        best_tensor = t;
        best_choice = c;
      }
    }
    if (best_gain == 0.0) return;
    rest = rest + tensors[best_tensor][(*chosen)[best_tensor]].bytes - tensors[best_tensor][best_choice].bytes;
    (*chosen)[best_tensor] = best_choice;
  }
}

}  // namespace

Result<std::vector<size_t>> ChooseWithinBudget(std::span<const std::vector<BudgetChoice>> tensors,
                                               uint64_t budget_bytes) {
  uint64_t smallest = 0;
  for (const Choices& choices : tensors) {
    LINNET_CHECK(!choices.empty() && choices.size() <= 255);
    smallest += SmallestBytes(choices);
  }
  if (smallest > budget_bytes) {
    return Status(StatusCode::kInvalidArgument, "the budget is below the smallest form of all tensors",
                  static_cast<int64_t>(smallest));
  }
  const uint64_t shared = budget_bytes - smallest, unit_bytes = std::max<uint64_t>(1, CeilDiv(shared, kBudgetUnits));
  std::vector<size_t> chosen = SolveInUnits(tensors, shared / unit_bytes, unit_bytes);
  uint64_t bytes = 0;
  for (size_t t = 0; t < tensors.size(); ++t) bytes += tensors[t][chosen[t]].bytes;
  SpendRest(tensors, budget_bytes - bytes, &chosen);
  return chosen;
}

}  // namespace linnet::formats
