// Tensors of a part of a model, in memory as a PartRunner takes them.
#ifndef LINNET_FORMATS_CONVERT_PART_TENSORS_H_
#define LINNET_FORMATS_CONVERT_PART_TENSORS_H_

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/model_view.h"
#include "core/base/status.h"
#include "formats/checkpoint.h"
#include "formats/convert/tensor_plan.h"

namespace linnet::formats {

/// Bytes aligned as tensors in a model file are. Owns them; move-only.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(size_t size)
      : memory_(static_cast<std::byte*>(::operator new(size, std::align_val_t{kAlignment}))), size_(size) {}

  std::span<std::byte> bytes() const { return {memory_.get(), size_}; }

 private:
  static constexpr size_t kAlignment = 64;
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<std::byte, Delete> memory_;
  size_t size_ = 0;
};

/// Views and the memory behind them.
struct PartTensors {
  std::vector<TensorView> views;
  std::vector<AlignedBytes> memory;
};

/// A tensor of a part, whose only block is number 0, in the given stored form.
TensorView PartView(const TensorSpec& spec, std::span<const std::byte> data, std::span<const std::byte> scales);

/// The status of rounding rows from first_row on, with the weight that it is about in the diagnostic.
Status NameWeight(const Status& status, const Checkpoint& checkpoint, const TensorPlan& plan, uint64_t group,
                  uint64_t first_row, Diagnostic* diagnostic);

/// Appends the tensor of `plan` as f32. Errors: those of Checkpoint::ReadRows.
Status AppendDecoded(const Checkpoint& checkpoint, const TensorPlan& plan, PartTensors* tensors,
                     Diagnostic* diagnostic);

/// Appends rows of the tensor of `plan` (rank 2) rounded by themselves, in the form that the plan says: those with the
/// numbers `rows`, or all where it is empty. Errors: those of Checkpoint::ReadRows and QuantizeRows.
Status AppendRounded(const Checkpoint& checkpoint, const TensorPlan& plan, std::span<const int32_t> rows,
                     PartTensors* tensors, Diagnostic* diagnostic);

/// Appends what stands between the table and the stream: learned positions and the embedding's norm, as f32.
Status AppendEmbeddingRest(const Checkpoint& checkpoint, const std::vector<TensorPlan>& plans, PartTensors* tensors,
                           Diagnostic* diagnostic);

/// Appends a table of one row of zeros, which stands in for embedding and head.
void AppendStandInTable(size_t model_dim, PartTensors* tensors);

/// Numbers of the distinct ids in order, and what each of `ids` is among them.
std::vector<int32_t> DistinctIds(std::span<const int32_t> ids, std::vector<int32_t>* places);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_PART_TENSORS_H_
