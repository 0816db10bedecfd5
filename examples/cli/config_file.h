// A config.json alone: a description without weights.
#ifndef LINNET_EXAMPLES_CLI_CONFIG_FILE_H_
#define LINNET_EXAMPLES_CLI_CONFIG_FILE_H_

#include <string>

#include "core/base/diagnostic.h"
#include "core/base/file_mapping.h"
#include "core/base/model_config.h"

namespace linnet::cli {

struct ConfigFile {
  std::string path;  // of the file itself
  FileMapping mapping;
  ModelConfig config;

  /// `path`: a config.json, or the directory that holds one. How its weights would be stored does not matter.
  /// Errors: kIoError, and as formats::ReadHuggingFaceConfig.
  static Result<ConfigFile> Open(const std::string& path, Diagnostic* diagnostic);
};

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_CONFIG_FILE_H_
