#include "platforms/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>

#include "platforms/posix/descriptor.h"

namespace linnet::platform {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsAbsolute(const std::string& path) { return !path.empty() && path[0] == '/'; }

}  // namespace

Result<std::string> CacheFolderPath(Diagnostic* diagnostic) {
  const std::string own = Variable("LINNET_CACHE");
  if (!own.empty()) return own;
  // The XDG base directory specification says to ignore relative paths.
  const std::string xdg = Variable("XDG_CACHE_HOME");
  if (IsAbsolute(xdg)) return xdg + "/linnet";
  const std::string home = Variable("HOME");
  if (IsAbsolute(home)) return home + "/.cache/linnet";
  return Fail(diagnostic, StatusCode::kIoError, "no cache folder",
              "cache folder: expected LINNET_CACHE, XDG_CACHE_HOME or HOME in the environment, found none");
}

bool IsFolder(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Status MakeFolders(const std::string& path, Diagnostic* diagnostic) {
  // From the shortest prefix on; the loop ends with the whole path.
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    if (!IsFolder(folder) && mkdir(folder.c_str(), 0777) != 0) {
      // Another process may have made it in between.
      const int error = errno;
      if (error != EEXIST || !IsFolder(folder)) {
        return FailWithErrno(diagnostic, "cannot make a folder", folder, "make the folder", error);
      }
    }
    if (end == std::string::npos) return Status::Ok();
  }
}

bool IsSameFile(const std::string& a, const std::string& b) {
  struct stat first = {};
  struct stat second = {};
  if (stat(a.c_str(), &first) != 0 || stat(b.c_str(), &second) != 0) return false;
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

void MarkUsed(const std::string& path) {
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  utimensat(AT_FDCWD, path.c_str(), times, 0);
}

RemovedFiles RemoveUnusedFiles(const std::string& folder, std::string_view suffix, uint64_t seconds) {
  RemovedFiles removed;
  DIR* listing = opendir(folder.c_str());
  if (listing == nullptr) return removed;
  const time_t now = time(nullptr);
  while (const dirent* entry = readdir(listing)) {
    const std::string_view name = entry->d_name;
    if (!name.ends_with(suffix)) continue;
    const std::string path = folder + "/" + entry->d_name;
    struct stat info = {};
    if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    // A clock that was set back makes files of the future: they stay.
    const time_t used = std::max(info.st_atime, info.st_mtime);
    if (seconds != 0 && (used > now || static_cast<uint64_t>(now - used) < seconds)) continue;
    if (unlink(path.c_str()) != 0) continue;
    ++removed.count;
    removed.bytes += static_cast<uint64_t>(info.st_size);
  }
  closedir(listing);
  return removed;
}

}  // namespace linnet::platform
