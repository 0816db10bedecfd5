// Public header. Where Linnet keeps files of its own.
#ifndef LINNET_PLATFORMS_FILES_H_
#define LINNET_PLATFORMS_FILES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::platform {

/// The cache folder's path: $LINNET_CACHE, else $XDG_CACHE_HOME/linnet, else $HOME/.cache/linnet. It need not exist.
/// Errors: kIoError where none of the variables is set to an absolute path ($LINNET_CACHE may be relative).
Result<std::string> CacheFolderPath(Diagnostic* diagnostic);

/// Makes `path` and the folders above it; those that exist are fine. Errors: kIoError with the path and the reason.
Status MakeFolders(const std::string& path, Diagnostic* diagnostic);

bool IsFolder(const std::string& path);

/// Whether AtomicFileWriter gives such names (no folder in front) to files that are not whole yet: a killed process
/// leaves them.
bool IsTemporaryName(std::string_view name);

/// True where both paths lead to one existing file, be it through links.
bool IsSameFile(const std::string& a, const std::string& b);

/// Writes down that a file was used now, as its access time. Not possible for other people's files: nothing is done.
void MarkUsed(const std::string& path);

struct RemovedFiles {
  uint64_t count = 0;
  uint64_t bytes = 0;
};
/// Removes the regular files directly in `folder` whose name ends with `suffix` and that were neither marked as used
/// nor written in the last `seconds` (0: all of them). What cannot be removed stays; no folder, no files.
RemovedFiles RemoveUnusedFiles(const std::string& folder, std::string_view suffix, uint64_t seconds);

}  // namespace linnet::platform

#endif  // LINNET_PLATFORMS_FILES_H_
