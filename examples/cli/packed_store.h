// Packed weights in the program's cache folder, with progress and notes on stderr; capi/packed_store.h does the work.
#ifndef LINNET_EXAMPLES_CLI_PACKED_STORE_H_
#define LINNET_EXAMPLES_CLI_PACKED_STORE_H_

#include <string>

#include "capi/packed_store.h"
#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "core/packed_weights.h"
#include "formats/linnet/model_file.h"

namespace linnet::cli {

/// PackedStore::Open. Where the file cannot be written, a note says so. Errors: also kCancelled after Ctrl-C (nothing
/// is left behind).
Result<PackedStore> OpenPackedStore(const formats::ModelFile& model, const PackedLayout& layout,
                                    const std::string& path, Diagnostic* diagnostic);

/// linnet::WritePackedFile. Errors: also kCancelled after Ctrl-C.
Status WritePackedFile(const formats::ModelFile& model, const PackedLayout& layout, const std::string& path,
                       Diagnostic* diagnostic);

/// linnet::CleanPackedFiles of the cache folder.
platform::RemovedFiles CleanPackedFiles(bool all);

/// linnet::PackedFilePath in the cache folder.
Result<std::string> PackedFilePath(const ModelView& model, const PackedLayout& layout, Diagnostic* diagnostic);

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_PACKED_STORE_H_
