// Private to platforms/posix: a file that is written beside its target and renamed over it when it is whole.
#ifndef LINNET_PLATFORMS_POSIX_TEMPORARY_FILE_H_
#define LINNET_PLATFORMS_POSIX_TEMPORARY_FILE_H_

#include <string>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::platform {

struct TemporaryFile {
  std::string target;     // links followed
  std::string temporary;  // empty once it is gone
  int descriptor = -1;    // open for reading and writing
};

/// Refuses a target that is a directory, a device or a pipe. Errors: kIoError with the path and the reason.
Status CreateTemporaryFile(const std::string& target, TemporaryFile* file, Diagnostic* diagnostic);

/// Syncs, closes and renames, then syncs the folder. The descriptor is closed and `temporary` is empty after success;
/// after a failure RemoveTemporaryFile cleans up.
Status CommitTemporaryFile(TemporaryFile* file, Diagnostic* diagnostic);

/// Closes and removes what is left.
void RemoveTemporaryFile(TemporaryFile* file);

}  // namespace linnet::platform

#endif  // LINNET_PLATFORMS_POSIX_TEMPORARY_FILE_H_
