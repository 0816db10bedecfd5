// Packed weights of a model for this CPU: from a cache folder, made there at the first use, or in memory.
#ifndef LINNET_CAPI_PACKED_STORE_H_
#define LINNET_CAPI_PACKED_STORE_H_

#include <cstdint>
#include <span>
#include <string>

#include "core/base/diagnostic.h"
#include "core/base/file_mapping.h"
#include "core/base/model_view.h"
#include "core/base/status.h"
#include "core/packed_weights.h"
#include "formats/linnet/model_file.h"
#include "platforms/files.h"
#include "platforms/mapped_output.h"

namespace linnet {

/// Who is told what happens; each part may be null.
struct PackedStoreHooks {
  PackProgress progress;
  void (*warn)(void* context, const char* line) = nullptr;
  void* warn_context = nullptr;
};

/// Owns the packed region. Move-only.
class PackedStore {
 public:
  /// Opens the file `path` if it fits model and CPU, else packs anew and replaces it, after removing what its folder no
  /// longer needs (as CleanPackedFiles). Where the file cannot be written
  /// the weights are packed into memory, with a warning. Empty path: always into memory. Errors: those of PackWeights
  /// (kCancelled leaves nothing behind), kOutOfMemory.
  static Result<PackedStore> Open(const formats::ModelFile& model, const PackedLayout& layout, const std::string& path,
                                  const PackedStoreHooks& hooks, Diagnostic* diagnostic);

  std::span<const std::byte> bytes() const { return mapping_.bytes().empty() ? memory_.bytes() : mapping_.bytes(); }
  /// True where the region is a mapped file.
  bool mapped() const { return !mapping_.bytes().empty(); }

 private:
  FileMapping mapping_;
  platform::AnonymousMemory memory_;
};

/// Packs into the file `path`, whole or not at all. The process's memory grows by one matrix, not by the file: pages go
/// as soon as they are written. Errors: kIoError, kCancelled, those of PackWeights.
Status WritePackedFile(const formats::ModelFile& model, const PackedLayout& layout, const std::string& path,
                       const PackProgress& progress, Diagnostic* diagnostic);

/// Where the packed weights of this model for this CPU are kept: in `cache`/packed, which is made. Errors: kIoError.
Result<std::string> PackedFilePath(const std::string& cache, const ModelView& model, const PackedLayout& layout,
                                   Diagnostic* diagnostic);

/// Removes the packed files of a cache folder that no start used for kKeepUnusedDays, or all of them; and what killed
/// processes left behind there a day ago.
platform::RemovedFiles CleanPackedFiles(const std::string& cache, bool all);
constexpr uint32_t kKeepUnusedDays = 30;

}  // namespace linnet

#endif  // LINNET_CAPI_PACKED_STORE_H_
