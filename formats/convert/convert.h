// Public header. Turns an opened checkpoint into a model file: types, rotation, quantization, streaming.
#ifndef LINNET_FORMATS_CONVERT_CONVERT_H_
#define LINNET_FORMATS_CONVERT_CONVERT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/dtype.h"
#include "core/base/model_view.h"
#include "core/base/part_runner.h"
#include "core/base/status.h"
#include "formats/checkpoint.h"
#include "ops/thread_pool.h"

namespace linnet::formats {

/// Part of the moments' mean diagonal that is added to the diagonal: what keeps directions that the text has hardly
/// touched from being spent on. formats/quantize/README.md has the measurement.
constexpr float kMomentsDamping = 0.01f;

/// Rounding that is fitted to the inputs which a text gives every layer (README.md). Runner and pool outlive the
/// conversion.
struct CalibrationOptions {
  PartRunner* runner = nullptr;
  ops::ThreadPool* pool = nullptr;
  std::vector<int32_t> ids;  // [n_windows, window], each below vocab_size
  uint32_t window = 0;
  float damping = kMomentsDamping;
  /// Moments gathered in one run of a block; a block with more of them (many experts) runs several times.
  uint64_t moments_bytes = uint64_t{1} << 30;
  /// A folder that keeps finished blocks, so that the same conversion goes on from them after an interruption. It
  /// exists; the caller removes it after success. Empty: none.
  std::string resume_folder;
};

/// What the user asked for; an empty optional leaves the choice to the converter.
struct ConvertOptions {
  /// Linear layers. Auto: q8 below kAutoQ8Parameters parameters or where the source is already at about 4 bits, else
  /// q4. Where q4 is asked for, and with auto from kAutoQ8Parameters parameters on, integers of 4 bits that q4 can hold
  /// (Checkpoint::Q4GridBlock, in blocks of block_size or more) are taken as they are, unrotated.
  std::optional<DType> weights;
  /// q4: weights that share a scale: 32, 64 or 128. A tensor whose K it does not divide takes the largest smaller
  /// block that does, and q8 where none does.
  uint32_t block_size = 32;
  /// Rotates the inputs of quantized linear layers.
  bool rotate = true;
  /// Embedding table. Auto: q8 where the weights are quantized, else the weights' type.
  std::optional<DType> embedding;
  /// lm_head. Auto: q8 where the weights are quantized, else the weights' type. A tied model has one table, which
  /// takes the embedding's type; asking for two different ones is an error.
  std::optional<DType> head;
  /// Budgets; 0: none. With one, types are chosen per tensor, `weights` and `block_size` do not count, and
  /// `calibration` must be given. bits: bytes of all tensors * 8 / parameters.
  double bits = 0.0;
  uint64_t file_bytes = 0;  // of the whole file
  /// Null: every weight is rounded by itself.
  const CalibrationOptions* calibration = nullptr;

  bool has_budget() const { return bits > 0.0 || file_bytes > 0; }
};

constexpr uint64_t kAutoQ8Parameters = 500'000'000;

/// "auto", "f32", "f16", "bf16", "q8", "q4". False for anything else.
bool ParseWeightType(std::string_view text, std::optional<DType>* type);

struct ConvertProgress {
  uint64_t elements_done = 0;
  uint64_t elements_total = 0;
  uint32_t tensors_done = 0;
  uint32_t tensors_total = 0;
  // "hashing" (elements are bytes then), "weights", "measuring losses" or "calibrated weights" (elements are then parts
  // of the work, of equal time as far as is known)
  const char* stage = "";
  TensorRole role = TensorRole::kTokenEmbedding;
  int32_t layer = -1;
};
/// Called several times a second; returns false to stop the conversion. May be empty.
using ConvertProgressFunction = std::function<bool(const ConvertProgress&)>;

/// One tensor that did not get the type that was asked for.
struct ConvertFallback {
  TensorRole role = TensorRole::kTokenEmbedding;
  int32_t layer = -1;
  DType wanted = DType::kQ4;
  uint32_t wanted_block_size = 0;
  DType used = DType::kQ8;
  uint32_t used_block_size = 0;
  uint64_t columns = 0;  // the K that no block divides
};

/// All tensors of one group stored in one way.
struct ConvertGroup {
  const char* group = "";  // "linear", "embedding", "head", "other"
  DType dtype = DType::kF32;
  uint32_t block_size = 0;  // q4 only
  bool rotated = false;
  bool kept = false;         // the source's own integers
  std::string source_types;  // "BF16", "Q4_1, F32"
  uint32_t tensors = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;               // data and scales
  double relative_rms_error = 0.0;  // sqrt(sum (w' - w)^2 / sum w^2) against the source's values as f32
  double output_rms_error = 0.0;    // of the outputs, relative, on the calibration text; 0 where not calibrated
};

/// What a budget gave one tensor, and why.
struct ConvertChoice {
  TensorRole role = TensorRole::kTokenEmbedding;
  int32_t layer = -1;
  DType dtype = DType::kQ8;
  uint32_t block_size = 0;
  uint64_t bytes = 0;
  double probe_loss = 0.0;  // KL divergence measured with this tensor alone rounded: to q4/32, or the type asked for
  double loss = 0.0;        // KL divergence expected of the chosen form
};

struct ConvertReport {
  std::vector<ConvertGroup> groups;
  std::vector<ConvertFallback> fallbacks;
  uint32_t rounded_again = 0;          // matrices of about 4 bits in the source that became q4 on another grid
  uint32_t widened = 0;                // such matrices that became q8, which keeps their values closely
  std::vector<ConvertChoice> choices;  // of a budget
  uint32_t unseen_matrices = 0;        // that the calibration text gave too few inputs
  uint32_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t weight_bytes = 0;
  uint64_t file_bytes = 0;
  double bits_per_weight = 0.0;  // weight_bytes * 8 / parameters
  double seconds = 0.0;
};

/// Writes the model file `target` from `checkpoint`. Streams: at no time more than kConvertBufferBytes of weights are
/// in anonymous memory; the source's pages are released tensor after tensor. The target appears whole or not at all.
/// The same checkpoint and options give the same bytes.
/// Errors: kInvalidArgument (options that do not go together), kInvalidModel (a weight that is not finite, named;
/// the source's own errors), kIoError (the disk), kCancelled.
Status Convert(const Checkpoint& checkpoint, const ConvertOptions& options, const std::string& target,
               const ConvertProgressFunction& progress, ConvertReport* report, Diagnostic* diagnostic);

constexpr uint64_t kConvertBufferBytes = 16u << 20;

/// What Convert would refuse before it reads a weight, to be told before a calibration text is made: types that cannot
/// be calibrated or do not go together, a budget below the model's smallest forms. The ids of `calibration` do not
/// count. Errors: kInvalidArgument.
Status CheckConversion(const Checkpoint& checkpoint, const ConvertOptions& options, Diagnostic* diagnostic);

/// The report as lines for people.
std::string ConvertReportText(const ConvertReport& report);
/// The report as one JSON object on one line.
std::string ConvertReportJson(const ConvertReport& report);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_CONVERT_H_
