#include "tests/golden/golden.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "formats/convert/convert.h"
#include "formats/huggingface/checkpoint.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/running_model.h"

namespace linnet::testing {
namespace {

namespace fs = std::filesystem;

// The checkpoint alone, with one of the two spellings of its config.
void LinkCheckpoint(const fs::path& folder, bool legacy, const std::string& target) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("golden.") || name.starts_with("config")) continue;
    fs::create_symlink(fs::absolute(entry.path()), fs::path(target) / name);
  }
  fs::copy_file(folder / (legacy ? "config_legacy.json" : "config.json"), fs::path(target) / "config.json");
}

}  // namespace

std::vector<fs::path> AllGoldens() {
  std::vector<fs::path> folders;
  const fs::path root = fs::path(LINNET_SHARED_DIR) / "golden";
  if (fs::is_directory(root)) {
    for (const auto& entry : fs::directory_iterator(root)) {
      if (fs::exists(entry.path() / "golden.safetensors")) folders.push_back(entry.path());
    }
  }
  if (folders.empty()) MESSAGE("skipped: no goldens at " << LINNET_SHARED_DIR);
  std::sort(folders.begin(), folders.end());
  return folders;
}

Golden::Golden(const fs::path& folder) {
  auto mapping = FileMapping::Open((folder / "golden.safetensors").string(), nullptr);
  REQUIRE(mapping.ok());
  mapping_ = std::move(mapping).value();
  auto tensors = formats::ParseSafetensors(mapping_.bytes(), "golden.safetensors", nullptr);
  REQUIRE(tensors.ok());
  tensors_ = std::move(tensors).value();
}

formats::ModelFile ConvertTo(DType type, const formats::Checkpoint& checkpoint) {
  const TemporaryFolder temporary;
  const std::string path = temporary / "model.linnet";
  Diagnostic diagnostic;
  formats::ConvertReport report;
  const Status status = formats::Convert(checkpoint, BuiltModel::WithType(type), path, {}, &report, &diagnostic);
  REQUIRE_MESSAGE(status.ok(), std::string(diagnostic.text()));
  auto file = formats::ModelFile::Open(path, &diagnostic);
  REQUIRE_MESSAGE(file.ok(), std::string(diagnostic.text()));
  return std::move(file).value();
}

formats::ModelFile ConvertGolden(const fs::path& folder, bool legacy, DType type) {
  const TemporaryFolder temporary;
  LinkCheckpoint(folder, legacy, temporary.path());
  Diagnostic diagnostic;
  const auto checkpoint = formats::OpenHuggingFaceCheckpoint(temporary.path(), &diagnostic);
  REQUIRE_MESSAGE(checkpoint.ok(), std::string(diagnostic.text()));
  return ConvertTo(type, **checkpoint);
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    if (!(difference <= largest)) largest = difference;  // keeps a NaN
  }
  return largest;
}

}  // namespace linnet::testing
