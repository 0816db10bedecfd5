// How a family names and lays out its weights, as data.
#ifndef LINNET_FORMATS_HUGGINGFACE_WEIGHT_NAMES_H_
#define LINNET_FORMATS_HUGGINGFACE_WEIGHT_NAMES_H_

#include <cstdint>
#include <span>

#include "core/base/model_view.h"

namespace linnet::formats {

/// Which of the role's rows one source tensor holds, and in which order. Rows are those of one group (one expert, one
/// head); of a bias or gain, "row" means element. H, G, D, R, P, C, V are those of TensorRole.
enum class PartKind : uint8_t {
  kAll,  // every row, in Linnet's order
  kQ,
  kK,
  kV,           // of the stacked q, k, v
  kQkvGrouped,  // for each kv head: its H / G query heads, its key, its value (one kv head: all q, k, v)
  kGate,
  kUp,                 // of the stacked gate, up
  kGateUpInterleaved,  // gate row 0, up row 0, gate row 1, ...
  kLatentQ,
  kLatentKv,    // of the stacked latent input: the query's rows; the latent's and the rotated key's
  kKeyOfKvB,    // per head, the first C of C + V rows of [H * (C + V), R], transposed to [R, C]
  kValueOfKvB,  // per head, the last V of these rows
};

/// One source tensor of a role. Several patterns of one role stack up or are alternatives: patterns whose tensor does
/// not exist are passed over, and the ones that exist must cover every row exactly once.
struct WeightPattern {
  TensorRole role;
  PartKind kind;
  /// {base}, {layer}, {expert} (the group's index) and {head} (the same) are replaced. Without {expert} and {head} the
  /// groups of a role are the outermost dimension of the one tensor.
  const char* name;
  bool transposed = false;  // stored [in, out]
};

struct WeightNames {
  /// What {base} may be; the first under which the token embedding is found.
  std::span<const char* const> bases;
  /// Tables, so that families can share them.
  std::span<const std::span<const WeightPattern>> tables;
  /// Names of buffers and parts that are not read; * stands for any text.
  std::span<const char* const> ignored = {};
  /// Tensors of {base}layers.N with N >= n_layers are not read (DeepSeek-V3's multi-token prediction).
  bool ignore_further_layers = false;
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_HUGGINGFACE_WEIGHT_NAMES_H_
