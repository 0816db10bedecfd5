// The shared goldens: checkpoints of every family with the outputs that transformers gave (shared/golden/README.md).
#ifndef LINNET_TESTS_GOLDEN_GOLDEN_H_
#define LINNET_TESTS_GOLDEN_GOLDEN_H_

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/file_mapping.h"
#include "formats/checkpoint.h"
#include "formats/linnet/model_file.h"
#include "formats/safetensors/safetensors_file.h"

namespace linnet::testing {

/// shared/golden/README.md: rounding stays well below 1e-4, every mistake that the goldens can show is above this.
constexpr float kGoldenTolerance = 2e-4f;

/// Folders of all goldens, sorted; empty, with a message, where the shared data is absent.
std::vector<std::filesystem::path> AllGoldens();

/// The outputs of one golden.safetensors. Fails the test where it cannot be read.
class Golden {
 public:
  explicit Golden(const std::filesystem::path& folder);

  /// The values of a tensor; empty where there is none.
  template <typename T>
  std::vector<T> Values(const std::string& name) const {
    for (const formats::SafetensorsTensor& tensor : tensors_) {
      if (tensor.name != name) continue;
      std::vector<T> values(tensor.bytes.size() / sizeof(T));
      std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
      return values;
    }
    return {};
  }

 private:
  FileMapping mapping_;
  std::vector<formats::SafetensorsTensor> tensors_;
};

/// The model file of a checkpoint with every matrix in `type`. Fails the test where a step fails.
formats::ModelFile ConvertTo(DType type, const formats::Checkpoint& checkpoint);
/// The same of a golden's own checkpoint, with one of the two spellings of its config.
formats::ModelFile ConvertGolden(const std::filesystem::path& folder, bool legacy, DType type);

/// Sizes are equal. NaN where a value is NaN.
double LargestDifference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace linnet::testing

#endif  // LINNET_TESTS_GOLDEN_GOLDEN_H_
