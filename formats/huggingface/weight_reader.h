// Finds, checks and reads the source tensors of every tensor that a description asks for.
#ifndef LINNET_FORMATS_HUGGINGFACE_WEIGHT_READER_H_
#define LINNET_FORMATS_HUGGINGFACE_WEIGHT_READER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/model_view.h"
#include "core/base/status.h"
#include "formats/checkpoint.h"
#include "formats/huggingface/packed_matrix.h"
#include "formats/huggingface/weight_names.h"
#include "formats/huggingface/weight_packing.h"
#include "formats/safetensors/safetensors_set.h"

namespace linnet::formats {

/// Consecutive rows of a role that come from one source tensor: row i of them is the source's row
/// src_begin + i / block * stride + i % block.
struct RowMap {
  uint64_t dst_begin = 0;
  uint64_t rows = 0;
  uint64_t src_begin = 0;
  uint64_t block = 0;
  uint64_t stride = 0;
};

/// One source tensor's share of one group of a role.
struct SourcePart {
  const SafetensorsTensor* tensor = nullptr;  // null where packed
  std::optional<PackedMatrix> packed;
  std::vector<RowMap> maps;
  uint64_t first = 0;       // element of the tensor where the group begins
  uint64_t src_rows = 0;    // of the group
  bool transposed = false;  // element (row, column) is first + column * src_rows + row

  SourceType type() const;
  void Read(const ElementRun& run, float* out) const;
  /// Calls visit(const SafetensorsTensor&) for each tensor behind the part.
  template <typename Visit>
  void ForEachTensor(const Visit& visit) const {
    if (tensor != nullptr) return visit(*tensor);
    for (const SafetensorsTensor* one : packed->tensors()) visit(*one);
  }
};

class WeightReader {
 public:
  /// Does not own its arguments. Call Open before anything else.
  WeightReader(const ModelConfig& config, const WeightNames& names, const WeightPacking& packing,
               const SafetensorsSet& source)
      : config_(config), names_(names), packing_(packing), source_(source) {}

  /// Checks that every required tensor exists with the right shape and a readable type, and that no tensor is left
  /// over. Errors: kInvalidModel (missing, with the names tried; another shape; unknown tensor), kUnsupported (a type).
  Status Open(Diagnostic* diagnostic);

  /// As Checkpoint::ReadRows.
  Status ReadRows(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                  std::span<float> out, Diagnostic* diagnostic) const;
  /// As Checkpoint::Q4GridBlock and Checkpoint::ReadQ4Grid.
  uint32_t Q4GridBlock(const TensorRequirement& tensor) const;
  Status ReadQ4Grid(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                    const Q4GridRows& out, Diagnostic* diagnostic) const;
  /// The source tensors of one group, in the order of the role's rows.
  Result<std::vector<SourcePart>> Resolve(const TensorRequirement& tensor, uint64_t group,
                                          Diagnostic* diagnostic) const;

 private:
  Status ChooseBase(Diagnostic* diagnostic);
  Result<SourcePart> MakePart(const WeightPattern& pattern, const std::string& name, const TensorRequirement& tensor,
                              uint64_t group, Diagnostic* diagnostic) const;
  bool IsPacked(const std::string& name) const;
  bool IsZeroBias(const SafetensorsTensor& tensor) const;
  Status CheckLeftOver(const std::vector<bool>& used, Diagnostic* diagnostic) const;
  bool IsIgnored(const std::string& name) const;
  std::string Expand(const char* pattern, int32_t layer, uint64_t group) const;

  const ModelConfig& config_;
  const WeightNames& names_;
  const WeightPacking packing_;
  const SafetensorsSet& source_;
  const char* base_ = "";
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_HUGGINGFACE_WEIGHT_READER_H_
