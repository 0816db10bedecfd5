#include "core/base/file_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "core/base/checked.h"
#include "platforms/posix/descriptor.h"

namespace linnet {
namespace {

using platform::Descriptor;
using platform::ErrnoText;
using platform::FailWithErrno;

uint64_t PageBytes() {
  static const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return page;
}

const char* FileKind(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "no regular file";
}

}  // namespace

FileMapping& FileMapping::operator=(FileMapping&& other) noexcept {
  if (this == &other) return *this;
  std::swap(base_, other.base_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

FileMapping::~FileMapping() {
  if (base_ != nullptr) munmap(base_, mapped_bytes_);
}

Result<FileMapping> FileMapping::Open(const std::string& path, Diagnostic* diagnostic) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not hang; it changes nothing for regular files.
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return FailWithErrno(diagnostic, "cannot open the file", path, "open", errno);
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) return FailWithErrno(diagnostic, "cannot open the file", path, "stat", errno);
  if (!S_ISREG(info.st_mode)) {
    return Fail(diagnostic, StatusCode::kIoError, "not a regular file", "%s: expected a file, found %s", path.c_str(),
                FileKind(info.st_mode));
  }
  if (info.st_size == 0) return FileMapping();
  Diagnostic reason;
  auto mapping = FromDescriptor(file.get(), 0, static_cast<uint64_t>(info.st_size), &reason);
  if (!mapping.ok()) {
    return Fail(diagnostic, mapping.status().code(), mapping.status().message(), "%s: %s", path.c_str(), reason.text());
  }
  return mapping;
}

Result<FileMapping> FileMapping::FromDescriptor(int descriptor, uint64_t offset, uint64_t length,
                                                Diagnostic* diagnostic) {
  struct stat info = {};
  if (fstat(descriptor, &info) != 0) {
    return Fail(diagnostic, StatusCode::kIoError, "cannot map the file", "stat: %s", ErrnoText(errno).c_str());
  }
  const uint64_t file_bytes = static_cast<uint64_t>(info.st_size);
  if (length == kToEnd && offset <= file_bytes) length = file_bytes - offset;
  uint64_t end = 0;
  if (__builtin_add_overflow(offset, length, &end) || end > file_bytes) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the range is not inside the file",
                "bytes at offset %llu: expected %llu, found %llu in the file", static_cast<unsigned long long>(offset),
                static_cast<unsigned long long>(length),
                static_cast<unsigned long long>(file_bytes > offset ? file_bytes - offset : 0));
  }
  if (length == 0) return FileMapping();
  const uint64_t lead = offset % PageBytes();  // mmap wants a page-aligned offset
  const uint64_t mapped = length + lead;
  if (mapped > std::numeric_limits<size_t>::max() / 2) {
    return Fail(diagnostic, StatusCode::kUnsupported, "the file does not fit this device's address space",
                "address space: expected room for %llu bytes, found a %zu-bit process",
                static_cast<unsigned long long>(mapped), sizeof(void*) * 8);
  }
  void* base =
      mmap(nullptr, static_cast<size_t>(mapped), PROT_READ, MAP_PRIVATE, descriptor, static_cast<off_t>(offset - lead));
  if (base == MAP_FAILED) {
    return Fail(diagnostic, StatusCode::kIoError, "cannot map the file", "map %llu bytes: %s",
                static_cast<unsigned long long>(mapped), ErrnoText(errno).c_str());
  }
  FileMapping result;
  result.base_ = base;
  result.mapped_bytes_ = static_cast<size_t>(mapped);
  result.bytes_ = {static_cast<const std::byte*>(base) + lead, static_cast<size_t>(length)};
  return result;
}

void FileMapping::DropPages(uint64_t offset, uint64_t length) const {
  if (offset >= bytes_.size()) return;
  const uint64_t lead = mapped_bytes_ - bytes_.size();
  const uint64_t begin = AlignUp(lead + offset, PageBytes());
  const bool to_end = length >= bytes_.size() - offset;
  // The last page of the mapping may be partly beyond the file: it goes with the file's last byte.
  const uint64_t end = to_end ? AlignUp(mapped_bytes_, PageBytes()) : (lead + offset + length) & ~(PageBytes() - 1);
  if (begin >= end) return;
  madvise(static_cast<char*>(base_) + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

void FileMapping::WillNeed(uint64_t offset, uint64_t length) const {
  if (offset >= bytes_.size()) return;
  const uint64_t lead = mapped_bytes_ - bytes_.size();
  const uint64_t begin = (lead + offset) & ~(PageBytes() - 1);
  const uint64_t end = lead + offset + std::min<uint64_t>(length, bytes_.size() - offset);
  if (begin >= end) return;
  madvise(static_cast<char*>(base_) + begin, static_cast<size_t>(end - begin), MADV_WILLNEED);
}

}  // namespace linnet
