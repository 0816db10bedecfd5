// The file or files (a split model) of one GGUF checkpoint, mapped.
#ifndef LINNET_FORMATS_GGUF_GGUF_SET_H_
#define LINNET_FORMATS_GGUF_GGUF_SET_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/file_mapping.h"
#include "core/base/status.h"
#include "formats/gguf/gguf_file.h"

namespace linnet::formats {

constexpr uint32_t kMaxGgufSplits = 4096;  // names have five digits; published models stay below 100

/// Owns the mappings; views into it live as long as it does. Move-only.
class GgufSet {
 public:
  /// Opens `path` and, where its split.count is above 1, the other parts beside it, whose names are
  /// NAME-0000i-of-0000n.gguf.
  /// Errors: those of FileMapping and GgufFile; kInvalidModel where parts disagree; kInvalidArgument where `path` is
  /// not the first part.
  static Result<GgufSet> Open(const std::string& path, Diagnostic* diagnostic);

  /// A set of one file in memory, for tests; `bytes` outlive it.
  static Result<GgufSet> FromBytes(std::span<const std::byte> bytes, std::string_view name, Diagnostic* diagnostic);

  /// The first file's name, for messages.
  const char* name() const { return files_.front().name().c_str(); }
  std::span<const GgufFile> files() const { return files_; }
  /// The mapping behind files()[index]; null for FromBytes.
  const FileMapping* mapping(size_t index) const { return index < mappings_.size() ? &mappings_[index] : nullptr; }
  /// Metadata of the first file: the other parts repeat none of it.
  const GgufValue* Find(std::string_view key) const { return files_.front().Find(key); }
  const GgufTensor* FindTensor(std::string_view tensor_name) const;
  size_t tensor_count() const;
  /// Drops the resident pages of `bytes`, which lie in one of the files.
  void DropPages(std::span<const std::byte> bytes) const;

 private:
  Status OpenOne(const std::string& path, Diagnostic* diagnostic);
  Status OpenOthers(const std::string& path, uint64_t count, Diagnostic* diagnostic);

  std::vector<FileMapping> mappings_;  // as files_; empty for FromBytes
  std::vector<GgufFile> files_;
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_GGUF_GGUF_SET_H_
