#include "examples/cli/config_file.h"

#include <string_view>
#include <utility>

#include "formats/huggingface/config.h"
#include "platforms/files.h"

namespace linnet::cli {

Result<ConfigFile> ConfigFile::Open(const std::string& path, Diagnostic* diagnostic) {
  const std::string file = platform::IsFolder(path) ? path + "/config.json" : path;
  LINNET_ASSIGN_OR_RETURN(FileMapping mapping, FileMapping::Open(file, diagnostic));
  const std::string_view text(reinterpret_cast<const char*>(mapping.bytes().data()), mapping.bytes().size());
  LINNET_ASSIGN_OR_RETURN(ModelConfig config,
                          formats::ReadHuggingFaceConfig(text, diagnostic, formats::StoredWeights::kAny));
  return ConfigFile{file, std::move(mapping), std::move(config)};
}

}  // namespace linnet::cli
