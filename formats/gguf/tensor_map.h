// Which rows of which GGUF tensors make up each tensor of the description.
#ifndef LINNET_FORMATS_GGUF_TENSOR_MAP_H_
#define LINNET_FORMATS_GGUF_TENSOR_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/model_config.h"
#include "core/base/model_view.h"
#include "core/base/status.h"
#include "formats/gguf/architectures.h"
#include "formats/gguf/gguf_set.h"

namespace linnet::formats {

/// "blk.LAYER.NAME"
std::string GgufLayerTensorName(uint32_t layer, const char* name);

/// Names of a layer's two norms, without "blk.N." and suffix.
struct GgufNormNames {
  const char* attention;
  const char* ffn;
  bool shared() const;  // one norm for both sub-layers
};
GgufNormNames GgufNormNamesOf(const GgufArchitecture& architecture, const GgufSet& files, uint32_t layer);

/// A run of rows of one tensor. Row r of group g is the tensor's row g * group_stride + first + r, or, where
/// permuted_head_dim is set, the row that the same converter moved it to.
struct GgufPart {
  const GgufTensor* tensor = nullptr;
  uint64_t rows = 0;  // in a group; for vectors: values
  uint64_t first = 0;
  uint64_t group_stride = 0;
  uint32_t permuted_head_dim = 0;  // 0: as stored; else the rows of each head alternate between its halves

  /// The stored row (for vectors: the stored value) of the part's row `row`, first and group not counted.
  uint64_t Stored(uint64_t row) const {
    if (permuted_head_dim == 0) return row;
    const uint64_t half = permuted_head_dim / 2, head = row / permuted_head_dim, i = row % permuted_head_dim;
    return head * permuted_head_dim + i % half * 2 + i / half;
  }
};

/// How a required tensor is put together.
struct GgufSource {
  enum class Kind : uint8_t {
    kRows,        // the parts' rows, one part after another
    kVector,      // row g is the parts' values, one part after another (biases, gains)
    kPerGroup,    // as kRows, but every group has parts of its own: parts[group * parts_per_group + i]
    kTransposed,  // group g is a block of one part's rows, transposed
  };
  TensorRole role = TensorRole::kTokenEmbedding;
  int32_t layer = -1;
  Kind kind = Kind::kRows;
  uint32_t parts_per_group = 1;  // kPerGroup
  std::vector<GgufPart> parts;
};

/// Finds the source of every required tensor, in the order of `required`, and checks shapes, types and that every
/// tensor of the files is used. Errors: kInvalidModel (missing, wrong shape, unexpected), kUnsupported (a type that has
/// no conversion), naming the tensor, what was expected and what was found.
Result<std::vector<GgufSource>> MapGgufTensors(const GgufSet& files, const GgufArchitecture& architecture,
                                               const ModelConfig& config,
                                               const std::vector<TensorRequirement>& required, Diagnostic* diagnostic);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_GGUF_TENSOR_MAP_H_
