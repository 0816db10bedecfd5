#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "core/base/file_mapping.h"
#include "platforms/posix/descriptor.h"
#include "platforms/posix/temporary_file.h"

namespace linnet {
namespace {

using platform::FailWithErrno;
using platform::TemporaryFile;

constexpr size_t kMaxWriteBytes = size_t{1} << 30;  // Linux writes at most 2 GiB - 4 KiB a call

Status WriteFully(int descriptor, uint64_t offset, std::span<const std::byte> bytes, const std::string& target,
                  Diagnostic* diagnostic) {
  while (!bytes.empty()) {
    const size_t part = std::min(bytes.size(), kMaxWriteBytes);
    const ssize_t written = pwrite(descriptor, bytes.data(), part, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FailWithErrno(diagnostic, "cannot write the file", target, "write", errno);
    if (written == 0) return FailWithErrno(diagnostic, "cannot write the file", target, "write", ENOSPC);
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return Status::Ok();
}

}  // namespace

AtomicFileWriter::AtomicFileWriter(AtomicFileWriter&& other) noexcept
    : target_(std::exchange(other.target_, {})),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(std::exchange(other.size_, 0)) {}

AtomicFileWriter& AtomicFileWriter::operator=(AtomicFileWriter&& other) noexcept {
  if (this == &other) return *this;
  std::swap(target_, other.target_);
  std::swap(temporary_, other.temporary_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

AtomicFileWriter::~AtomicFileWriter() {
  TemporaryFile file{{}, temporary_, descriptor_};
  platform::RemoveTemporaryFile(&file);
}

Result<AtomicFileWriter> AtomicFileWriter::Create(const std::string& target, Diagnostic* diagnostic) {
  TemporaryFile file;
  LINNET_RETURN_IF_ERROR(platform::CreateTemporaryFile(target, &file, diagnostic));
  AtomicFileWriter writer;
  writer.target_ = file.target;
  writer.temporary_ = file.temporary;
  writer.descriptor_ = file.descriptor;
  return writer;
}

Status AtomicFileWriter::Append(std::span<const std::byte> bytes, Diagnostic* diagnostic) {
  LINNET_RETURN_IF_ERROR(WriteFully(descriptor_, size_, bytes, target_, diagnostic));
  size_ += bytes.size();
  return Status::Ok();
}

Status AtomicFileWriter::WriteAt(uint64_t offset, std::span<const std::byte> bytes, Diagnostic* diagnostic) {
  if (offset > size_ || bytes.size() > size_ - offset) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "only written bytes can be overwritten",
                "%s: write %zu bytes at offset %llu: expected to end within %llu", target_.c_str(), bytes.size(),
                static_cast<unsigned long long>(offset), static_cast<unsigned long long>(size_));
  }
  return WriteFully(descriptor_, offset, bytes, target_, diagnostic);
}

Status AtomicFileWriter::PadTo(uint64_t size, Diagnostic* diagnostic) {
  if (size <= size_) return Status::Ok();
  if (size > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) {
    return FailWithErrno(diagnostic, "cannot extend the file", target_, "extend", EFBIG);
  }
  int result = 0;
  do {
    result = ftruncate(descriptor_, static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return FailWithErrno(diagnostic, "cannot extend the file", target_, "extend", errno);
  size_ = size;
  return Status::Ok();
}

Status AtomicFileWriter::Reserve(Diagnostic* diagnostic) {
  if (size_ == 0) return Status::Ok();
  int result = 0;
  do {
    result = fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size_));
  } while (result != 0 && errno == EINTR);
  if (result == 0 || (errno != ENOSPC && errno != EDQUOT && errno != EFBIG)) return Status::Ok();
  return FailWithErrno(diagnostic, "cannot write the file", target_, "reserve", errno);
}

Status AtomicFileWriter::Commit(Diagnostic* diagnostic) {
  TemporaryFile file{target_, temporary_, descriptor_};
  const Status status = platform::CommitTemporaryFile(&file, diagnostic);
  temporary_ = file.temporary;
  descriptor_ = file.descriptor;
  return status;
}

}  // namespace linnet
