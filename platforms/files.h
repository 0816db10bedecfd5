// Public header. Where Linnet keeps files of its own.
#ifndef LINNET_PLATFORMS_FILES_H_
#define LINNET_PLATFORMS_FILES_H_

#include <string>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::platform {

/// The cache folder's path: $LINNET_CACHE, else $XDG_CACHE_HOME/linnet, else $HOME/.cache/linnet. It need not exist.
/// Errors: kIoError where none of the variables is set to an absolute path ($LINNET_CACHE may be relative).
Result<std::string> CacheFolderPath(Diagnostic* diagnostic);

/// Makes `path` and the folders above it; those that exist are fine. Errors: kIoError with the path and the reason.
Status MakeFolders(const std::string& path, Diagnostic* diagnostic);

bool IsFolder(const std::string& path);

/// True where both paths lead to one existing file, be it through links.
bool IsSameFile(const std::string& a, const std::string& b);

}  // namespace linnet::platform

#endif  // LINNET_PLATFORMS_FILES_H_
