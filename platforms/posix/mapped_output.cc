#include "platforms/mapped_output.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "platforms/posix/descriptor.h"
#include "platforms/posix/temporary_file.h"

namespace linnet::platform {
namespace {

// File systems without reservation get the bytes written out: what matters is that no later store can find the disk
// full.
int ReserveBytes(int descriptor, uint64_t bytes) {
  int error = 0;
  do {
    error = posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != EOPNOTSUPP && error != EINVAL) return error;
  static const char zeros[1 << 16] = {};
  for (uint64_t offset = 0; offset < bytes;) {
    const size_t part = static_cast<size_t>(std::min<uint64_t>(sizeof(zeros), bytes - offset));
    const ssize_t written = pwrite(descriptor, zeros, part, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    offset += static_cast<uint64_t>(written);
  }
  return 0;
}

}  // namespace

MappedOutput::MappedOutput(MappedOutput&& other) noexcept
    : target_(std::exchange(other.target_, {})),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(std::exchange(other.bytes_, {})) {}

MappedOutput::~MappedOutput() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  TemporaryFile file{{}, temporary_, descriptor_};
  RemoveTemporaryFile(&file);
}

Result<MappedOutput> MappedOutput::Create(const std::string& target, uint64_t bytes, Diagnostic* diagnostic) {
  if (bytes == 0 || bytes > std::numeric_limits<size_t>::max() / 2 ||
      bytes > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) {
    return Fail(diagnostic, StatusCode::kUnsupported, "the file does not fit this device's address space",
                "%s: expected 1 to %zu bytes, found %llu", target.c_str(), std::numeric_limits<size_t>::max() / 2,
                static_cast<unsigned long long>(bytes));
  }
  TemporaryFile file;
  LINNET_RETURN_IF_ERROR(CreateTemporaryFile(target, &file, diagnostic));
  MappedOutput output;
  output.target_ = file.target;
  output.temporary_ = file.temporary;
  output.descriptor_ = file.descriptor;
  const int error = ReserveBytes(file.descriptor, bytes);
  if (error != 0) return FailWithErrno(diagnostic, "cannot write the file", target, "reserve space", error);
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor, 0);
  if (base == MAP_FAILED) return FailWithErrno(diagnostic, "cannot map the file", target, "map", errno);
  output.bytes_ = {static_cast<std::byte*>(base), static_cast<size_t>(bytes)};
  return output;
}

void MappedOutput::DropPages(uint64_t length) const {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t whole = std::min<uint64_t>(length, bytes_.size()) / page * page;
  // A shared mapping of a file: dirty pages stay in the page cache.
  if (whole != 0) madvise(bytes_.data(), static_cast<size_t>(whole), MADV_DONTNEED);
}

Status MappedOutput::Commit(Diagnostic* diagnostic) {
  if (msync(bytes_.data(), bytes_.size(), MS_SYNC) != 0) {
    return FailWithErrno(diagnostic, "cannot write the file", target_, "sync", errno);
  }
  munmap(bytes_.data(), bytes_.size());
  bytes_ = {};
  TemporaryFile file{target_, temporary_, descriptor_};
  const Status status = CommitTemporaryFile(&file, diagnostic);
  temporary_ = file.temporary;
  descriptor_ = file.descriptor;
  return status;
}

Result<AnonymousMemory> AnonymousMemory::Create(uint64_t bytes, Diagnostic* diagnostic) {
  AnonymousMemory memory;
  if (bytes == 0) return memory;
  int error = ENOMEM;
  if (bytes <= std::numeric_limits<size_t>::max() / 2) {
    void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base != MAP_FAILED) {
      memory.bytes_ = {static_cast<std::byte*>(base), static_cast<size_t>(bytes)};
      return memory;
    }
    error = errno;
  }
  return Fail(diagnostic, StatusCode::kOutOfMemory, "out of memory", "memory: expected %llu bytes: %s",
              static_cast<unsigned long long>(bytes), ErrnoText(error).c_str());
}

AnonymousMemory::AnonymousMemory(AnonymousMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

AnonymousMemory& AnonymousMemory::operator=(AnonymousMemory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

AnonymousMemory::~AnonymousMemory() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace linnet::platform
