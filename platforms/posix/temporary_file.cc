#include "platforms/posix/temporary_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "platforms/files.h"
#include "platforms/posix/descriptor.h"

namespace linnet::platform {
namespace {

constexpr int kMaxNameAttempts = 100;  // stale files of killed processes with this one's id

std::string FolderOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Where the target is a symbolic link, the file behind it is replaced, as a plain write would do.
std::string FollowLink(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return path;
  char* resolved = realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return path;
  std::string result = resolved;
  std::free(resolved);
  return result;
}

Status CheckTarget(const std::string& target, Diagnostic* diagnostic) {
  if (target.empty()) {
    return Fail(diagnostic, StatusCode::kIoError, "no output path", "output path: expected a file name, found nothing");
  }
  struct stat info = {};
  if (target.back() == '/' || (stat(target.c_str(), &info) == 0 && S_ISDIR(info.st_mode))) {
    return Fail(diagnostic, StatusCode::kIoError, "the output is a directory",
                "%s: expected a path to write a file to, found a directory", target.c_str());
  }
  // Renaming over a device or a pipe would remove it from the system.
  if (info.st_mode != 0 && !S_ISREG(info.st_mode)) {
    return Fail(diagnostic, StatusCode::kIoError, "the output is no regular file",
                "%s: expected a path to write a file to, found a device or a pipe", target.c_str());
  }
  return Status::Ok();
}

// Makes the rename itself durable. File systems that cannot sync a folder say EINVAL; nothing more can be done there.
Status SyncFolder(const std::string& target, Diagnostic* diagnostic) {
  const std::string folder = FolderOf(target);
  Descriptor descriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.valid()) return Status::Ok();  // a folder may be writable and not readable
  if (fsync(descriptor.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    return FailWithErrno(diagnostic, "cannot sync the folder", folder, "sync the folder", errno);
  }
  return Status::Ok();
}

constexpr const char *kPrefix = ".linnet-", *kSuffix = ".part";

}  // namespace

bool IsTemporaryName(std::string_view name) { return name.starts_with(kPrefix) && name.ends_with(kSuffix); }

Status CreateTemporaryFile(const std::string& target, TemporaryFile* file, Diagnostic* diagnostic) {
  LINNET_RETURN_IF_ERROR(CheckTarget(target, diagnostic));
  file->target = FollowLink(target);
  // The name does not grow with the target's, which may already be as long as the file system allows.
  static std::atomic<unsigned> counter{0};
  const std::string prefix = FolderOf(file->target) + "/" + kPrefix + std::to_string(getpid()) + "-";
  int error = EEXIST;
  for (int attempt = 0; attempt < kMaxNameAttempts && (error == EEXIST || error == EINTR); ++attempt) {
    const std::string name = prefix + std::to_string(counter.fetch_add(1)) + kSuffix;
    file->descriptor = open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->descriptor >= 0) {
      file->temporary = name;
      return Status::Ok();
    }
    error = errno;
  }
  return FailWithErrno(diagnostic, "cannot create the file", target, "create", error);
}

Status CommitTemporaryFile(TemporaryFile* file, Diagnostic* diagnostic) {
  int result = 0;
  do {
    result = fsync(file->descriptor);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return FailWithErrno(diagnostic, "cannot sync the file", file->target, "sync", errno);
  // close reports a delayed write error on network file systems; the descriptor is gone even where it fails.
  if (close(std::exchange(file->descriptor, -1)) != 0 && errno != EINTR) {
    return FailWithErrno(diagnostic, "cannot close the file", file->target, "close", errno);
  }
  if (rename(file->temporary.c_str(), file->target.c_str()) != 0) {
    return FailWithErrno(diagnostic, "cannot rename the file", file->target, "rename", errno);
  }
  file->temporary.clear();
  return SyncFolder(file->target, diagnostic);
}

void RemoveTemporaryFile(TemporaryFile* file) {
  if (file->descriptor >= 0) close(std::exchange(file->descriptor, -1));
  if (!file->temporary.empty()) unlink(file->temporary.c_str());
  file->temporary.clear();
}

}  // namespace linnet::platform
