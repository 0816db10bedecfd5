// Runs parts of a model on rows of its residual stream: declared here for the converter, implemented in core.
#ifndef LINNET_CORE_BASE_PART_RUNNER_H_
#define LINNET_CORE_BASE_PART_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/model_config.h"
#include "core/base/model_view.h"
#include "core/base/status.h"

namespace linnet {

/// Called before a matrix product that reads f32 rows (its weights are not quantized).
struct ProductInputSink {
  /// tensor: index into the part's tensors; rows [n_rows, K] without gaps, valid during the call.
  void (*function)(void* context, size_t tensor, uint32_t group, const float* rows, size_t n_rows) = nullptr;
  void* context = nullptr;
};

/// Logits [n_rows, vocab_size] of the part's head for rows from first_row on, counted over all windows.
struct PartLogitsSink {
  void (*function)(void* context, size_t first_row, const float* logits, size_t n_rows) = nullptr;
  void* context = nullptr;
};

/// Called after every chunk of rows; returns false to stop.
struct PartProgress {
  bool (*function)(void* context, size_t rows_done, size_t rows_total) = nullptr;
  void* context = nullptr;
};

/// What one run of a part is about.
struct PartRun {
  uint32_t window = 0;           // tokens that attend to each other: positions 0 to window - 1
  std::span<const int32_t> ids;  // embedded first; empty: `stream` is taken as it is
  std::span<float> stream;       // [n_windows, window, model_dim]: overwritten with the part's output
  ProductInputSink inputs;
  PartLogitsSink logits;  // null: the head does not run
  PartProgress progress;
};

class PartRunner {
 public:
  virtual ~PartRunner() = default;

  /// Runs the windows through a part: a description with n_layers blocks (none is allowed: only embedding or head then)
  /// and all tensors that it asks for. Needs memory for the part's packed weights while it runs.
  /// Errors: kCancelled, kOutOfMemory, kInternal; kInvalidModel where XNNPACK refuses the weights.
  virtual Status Run(const ModelConfig& config, std::span<const TensorView> tensors, const PartRun& run) = 0;
};

}  // namespace linnet

#endif  // LINNET_CORE_BASE_PART_RUNNER_H_
