// Private to platforms/posix: an owned file descriptor, and errno as one line of text.
#ifndef LINNET_PLATFORMS_POSIX_DESCRIPTOR_H_
#define LINNET_PLATFORMS_POSIX_DESCRIPTOR_H_

#include <string>
#include <utility>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::platform {

/// Owns a file descriptor; move-only. -1: none.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();

  int get() const { return value_; }
  bool valid() const { return value_ >= 0; }

 private:
  int value_;
};

/// The system's text for an error number, with the number where the system has no text.
std::string ErrnoText(int error);

/// kIoError with "PATH: STEP: the system's reason" in the diagnostic. `message` is static.
Status FailWithErrno(Diagnostic* diagnostic, const char* message, const std::string& path, const char* step, int error);

/// A small text file of the system (/proc, /sys), at most `limit` bytes; empty where it cannot be read.
std::string ReadSystemFile(const std::string& path, size_t limit = 1 << 16);

}  // namespace linnet::platform

#endif  // LINNET_PLATFORMS_POSIX_DESCRIPTOR_H_
