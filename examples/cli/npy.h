// NumPy's .npy files of f32, written row after row.
#ifndef LINNET_EXAMPLES_CLI_NPY_H_
#define LINNET_EXAMPLES_CLI_NPY_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/diagnostic.h"
#include "core/base/file_mapping.h"
#include "core/base/status.h"

namespace linnet::cli {

/// Format 1.0 (numpy.lib.format), little-endian f32 in C order. The file appears whole with Finish, or not at all.
class NpyWriter {
 public:
  static Result<NpyWriter> Create(const std::string& path, std::span<const uint64_t> shape, Diagnostic* diagnostic);
  static Result<NpyWriter> Create(const std::string& path, uint64_t rows, uint64_t columns, Diagnostic* diagnostic) {
    return Create(path, std::array<uint64_t, 2>{rows, columns}, diagnostic);
  }
  /// Appends whole rows.
  Status Append(std::span<const float> values, Diagnostic* diagnostic);
  /// Every row has been appended.
  Status Finish(Diagnostic* diagnostic);

 private:
  AtomicFileWriter file_;
  uint64_t values_left_ = 0;
};

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_NPY_H_
