// The safetensors files of one checkpoint directory: model.safetensors, or the shards that an index names.
#ifndef LINNET_FORMATS_SAFETENSORS_SAFETENSORS_SET_H_
#define LINNET_FORMATS_SAFETENSORS_SAFETENSORS_SET_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/file_mapping.h"
#include "core/base/status.h"
#include "formats/safetensors/safetensors_file.h"

namespace linnet::formats {

constexpr size_t kMaxSafetensorsShards = 4096;                       // the largest published checkpoint has under 300
constexpr uint64_t kMaxSafetensorsIndexBytes = uint64_t{256} << 20;  // names of kMaxSafetensorsTensors tensors

/// Owns the mapped files; tensors view into them. Move-only.
class SafetensorsSet {
 public:
  struct File {
    std::string name;  // without the directory
    FileMapping mapping;
  };

  /// Opens `directory`/model.safetensors where it exists, else the files that `directory`/model.safetensors.index.json
  /// names; those must be plain names, so that no index reaches outside its directory.
  /// Errors: kIoError (neither file, a missing shard), kInvalidModel (malformed, truncated, a tensor that the index
  /// promises and the shard has not, a tensor in two shards), kUnsupported (an unknown element type).
  static Result<SafetensorsSet> Open(const std::string& directory, Diagnostic* diagnostic);

  std::span<const SafetensorsTensor> tensors() const { return tensors_; }
  const SafetensorsTensor* Find(std::string_view name) const;
  /// The shards, then the index where there is one.
  std::span<const File> files() const { return files_; }
  /// The file that holds the tensor, for messages.
  const std::string& FileNameOf(const SafetensorsTensor& tensor) const;
  /// The file that says which tensors there are, for messages: the single file or the index.
  const std::string& listing_name() const { return files_.back().name; }
  /// Drops the mapped pages of the tensor's bytes.
  void Release(const SafetensorsTensor& tensor) const;

 private:
  Status AddFile(const std::string& name, FileMapping mapping, Diagnostic* diagnostic);
  Status AddShards(const std::string& directory, FileMapping index, Diagnostic* diagnostic);
  Status IndexNames(Diagnostic* diagnostic);
  const File& FileOf(const SafetensorsTensor& tensor) const;

  std::vector<File> files_;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<size_t> file_of_tensor_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_SAFETENSORS_SAFETENSORS_SET_H_
