// The goldens' directories.
#ifndef LINNET_TESTS_FORMATS_HUGGINGFACE_GOLDENS_H_
#define LINNET_TESTS_FORMATS_HUGGINGFACE_GOLDENS_H_

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace linnet::testing {

/// The folders of all goldens, sorted; empty, with a message, where the shared data is absent.
inline std::vector<std::filesystem::path> GoldenFolders() {
  std::vector<std::filesystem::path> folders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(LINNET_SHARED_DIR) + "/golden", error)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  if (folders.empty()) MESSAGE("skipped: no goldens in " LINNET_SHARED_DIR);
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace linnet::testing

#endif  // LINNET_TESTS_FORMATS_HUGGINGFACE_GOLDENS_H_
