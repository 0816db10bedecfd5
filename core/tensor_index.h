// Constant-time lookup of a model's tensors, for code that asks for all of them.
#ifndef LINNET_CORE_TENSOR_INDEX_H_
#define LINNET_CORE_TENSOR_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/model_view.h"
#include "core/plan.h"

namespace linnet {

/// [n_layers + 1, kRoles] indices into the model's tensors; row 0 is the global ones.
class TensorIndexTable {
 public:
  explicit TensorIndexTable(const ModelView& model)
      : table_((model.config().n_layers + size_t{1}) * kRoles, kNoTensor) {
    for (size_t i = 0; i < model.tensors().size(); ++i) {
      const TensorView& tensor = model.tensors()[i];
      table_[Slot(tensor.role, tensor.layer)] = static_cast<TensorIndex>(i);
    }
  }

  /// The tensor's index, or kNoTensor.
  TensorIndex Find(TensorRole role, int32_t layer) const { return table_[Slot(role, layer)]; }

 private:
  static constexpr size_t kRoles = 256;  // every value of the enumeration's type

  static size_t Slot(TensorRole role, int32_t layer) {
    return static_cast<size_t>(layer + 1) * kRoles + static_cast<size_t>(role);
  }

  std::vector<TensorIndex> table_;
};

}  // namespace linnet

#endif  // LINNET_CORE_TENSOR_INDEX_H_
