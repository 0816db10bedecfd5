// One linear layer as GPTQ or AWQ stores it: integers packed into 32-bit words, with scales and zero points.
#ifndef LINNET_FORMATS_HUGGINGFACE_PACKED_MATRIX_H_
#define LINNET_FORMATS_HUGGINGFACE_PACKED_MATRIX_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "formats/huggingface/weight_packing.h"
#include "formats/safetensors/safetensors_set.h"

namespace linnet::formats {

/// A matrix [N, K] of integers q: weight (n, k) is scale(g, n) * (q(n, k) - zero(g, n)), g the group of column k. With
/// G groups and P = 32 / bits integers in a word, the first in its lowest bits:
///
///              GPTQ                                          AWQ (gemm)
///   qweight    [K / P, N]: words run along k                 [K, N / 8]: words run along n, in the order 0 2 4 6 1 3 5
///   7 qzeros     [G, N / P]: words run along n, the first      [G, N / 8] in the same order
///              format less one
///   scales     [G, N] F16, BF16 or F32                       the same
///   g_idx      [K] I32, the group of each column; absent:    none
///              k / group_size
///
/// Sources: what AutoGPTQ's and AutoAWQ's own linear layers compute; a zero point less one wraps around as there.
class PackedMatrix {
 public:
  /// Whether `source` has a packed matrix under `stem` ("model.layers.0.mlp.up_proj.").
  static bool Exists(const SafetensorsSet& source, const std::string& stem) {
    return source.Find(stem + "qweight") != nullptr;
  }
  /// Finds and checks its tensors; `source` outlives the result. Errors: kInvalidModel (a missing tensor, another shape
  /// or type, a group that does not exist), naming the tensor, what was expected and what was found.
  static Result<PackedMatrix> Open(const SafetensorsSet& source, const std::string& stem, const WeightPacking& packing,
                                   uint64_t rows, uint64_t columns, Diagnostic* diagnostic);

  /// "GPTQ4", "AWQ4"; and the bits of a weight with its part of scale and zero point.
  const char* type_name() const;
  double bits_per_weight() const;
  /// qweight, qzeros, scales and, where it exists, g_idx.
  std::span<const SafetensorsTensor* const> tensors() const {
    return {tensors_.data(), tensors_[3] == nullptr ? 3u : 4u};
  }

  /// As the function of the same name for plain tensors, on the matrix [N, K] as if it were one.
  void ReadAsF32(const ElementRun& run, float* out) const;

  /// Columns that share a scale where the matrix is a grid of q4: 4 bits, every zero point 8, groups in the columns'
  /// order. Cut to 128, 64 or 32, which divides them; else 0. Reads all zero points.
  uint32_t Q4GridBlock() const;
  /// Of a matrix that is such a grid: row n's integers [K / 2], two a byte, even k in the low nibble, and its scales
  /// [K / block].
  void ReadQ4GridRow(uint64_t n, uint32_t block, uint8_t* levels, float* scales) const;

 private:
  PackedMatrix() = default;
  Status CheckShape(const SafetensorsSet& source, const SafetensorsTensor& tensor, std::vector<uint64_t> expected,
                    Diagnostic* diagnostic) const;
  Status CheckGroups(const SafetensorsSet& source, Diagnostic* diagnostic);
  uint32_t Word(size_t tensor, uint64_t index) const;
  uint32_t Level(uint64_t n, uint64_t k) const;
  uint32_t Zero(uint64_t n, uint64_t group) const;
  float Scale(uint64_t n, uint64_t group) const;
  uint64_t GroupOf(uint64_t k) const;
  uint32_t ShiftAlongRows(uint64_t n) const;

  WeightPacking packing_;
  uint64_t rows_ = 0, columns_ = 0, groups_ = 0, group_size_ = 0;
  uint32_t per_word_ = 8;
  bool in_order_ = true;  // the group of column k is k / group_size_
  std::array<const SafetensorsTensor*, 4> tensors_ = {};
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_HUGGINGFACE_PACKED_MATRIX_H_
