#include "platforms/posix/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace linnet::platform {

Descriptor::~Descriptor() {
  if (value_ >= 0) close(value_);
}

namespace {
// strerror_r comes in two forms: POSIX returns an int, GNU a pointer that may not be the buffer.
[[maybe_unused]] const char* PickText(int result, const char* buffer) { return result == 0 ? buffer : ""; }
[[maybe_unused]] const char* PickText(const char* result, const char*) { return result; }
}  // namespace

std::string ErrnoText(int error) {
  char buffer[128] = {};
  std::string text = PickText(strerror_r(error, buffer, sizeof(buffer)), buffer);
  if (text.empty()) text = "system error " + std::to_string(error);
  return text;
}

Status FailWithErrno(Diagnostic* diagnostic, const char* message, const std::string& path, const char* step,
                     int error) {
  return Fail(diagnostic, StatusCode::kIoError, message, "%s: %s: %s", path.c_str(), step, ErrnoText(error).c_str());
}

std::string ReadSystemFile(const std::string& path, size_t limit) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (!file.valid()) return text;
  char buffer[4096];
  while (text.size() < limit) {
    const ssize_t count = read(file.get(), buffer, std::min(sizeof(buffer), limit - text.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

}  // namespace linnet::platform
