// Tokens for calibrated conversion: a given text, or a text that the model writes itself.
#ifndef LINNET_EXAMPLES_CLI_CALIBRATION_TEXT_H_
#define LINNET_EXAMPLES_CLI_CALIBRATION_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "formats/checkpoint.h"

namespace linnet::cli {

struct CalibrationTextOptions {
  std::string source;     // a file, or "self"
  uint32_t window = 512;  // tokens that see each other
  uint32_t windows = 0;   // at most; of a longer text, evenly spread ones. 0: 20 of a text, 40 of the model's own
  uint64_t seed = 0;      // of the text that the model writes
  uint32_t threads = 0;
  std::string scratch_path;  // a file that is made and removed: the model in a form that writes its text
};

/// The word that stands for the model's own text.
constexpr const char* kSelfText = "self";

/// Ids [n_windows, window]; a file shorter than a window gives one shorter window, which `window` tells.
/// Errors: kInvalidArgument (no tokenizer, a text of fewer than kMinCalibrationTokens tokens), kIoError, kCancelled.
Result<std::vector<int32_t>> MakeCalibrationText(const formats::Checkpoint& source, CalibrationTextOptions* options,
                                                 Diagnostic* diagnostic);

/// Fewer say nothing about a layer's inputs.
constexpr size_t kMinCalibrationTokens = 256;

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_CALIBRATION_TEXT_H_
