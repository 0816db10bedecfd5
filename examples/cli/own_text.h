// A calibration text that the model writes itself.
#ifndef LINNET_EXAMPLES_CLI_OWN_TEXT_H_
#define LINNET_EXAMPLES_CLI_OWN_TEXT_H_

#include <cstdint>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "examples/cli/calibration_text.h"
#include "formats/checkpoint.h"

namespace linnet::cli {

/// In the resume folder: the windows that an interrupted run has written.
constexpr const char* kTextPiece = "text";

/// Windows of an own text where no number is asked for.
uint32_t OwnTextWindows(const formats::Checkpoint& source);

/// Ids [options.windows, options.window]: short texts, each opened with a few words and sampled at temperature 1; the
/// same for the same seed. Windows that an interrupted run has left beside options.scratch_path are taken from there.
/// Errors: those of Convert and of loading a model, kIoError, kCancelled.
Result<std::vector<int32_t>> WriteOwnText(const formats::Checkpoint& source, const CalibrationTextOptions& options,
                                          Diagnostic* diagnostic);

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_OWN_TEXT_H_
