// Public header. Files as bytes in memory; declared here, implemented per operating system in platforms.
#ifndef LINNET_CORE_BASE_FILE_MAPPING_H_
#define LINNET_CORE_BASE_FILE_MAPPING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet {

/// A whole file, or a page-aligned part of one, mapped for reading. Owns the mapping; move-only.
class FileMapping {
 public:
  FileMapping() = default;
  FileMapping(FileMapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
        bytes_(std::exchange(other.bytes_, {})) {}
  FileMapping& operator=(FileMapping&& other) noexcept;
  ~FileMapping();

  /// Maps `path` whole. Errors: kIoError naming the path and the system's reason (missing, a directory, no permission).
  static Result<FileMapping> Open(const std::string& path, Diagnostic* diagnostic);
  /// A length: up to the file's end.
  static constexpr uint64_t kToEnd = ~uint64_t{0};
  /// Maps `length` bytes at `offset` of an open descriptor (an asset inside an APK); the descriptor stays the caller's.
  /// The offset need not be a multiple of the page size. Errors: kIoError; kInvalidArgument for a range that the file
  /// does not have; kUnsupported where the address space is too small.
  static Result<FileMapping> FromDescriptor(int descriptor, uint64_t offset, uint64_t length, Diagnostic* diagnostic);

  std::span<const std::byte> bytes() const { return bytes_; }

  /// Drops the resident pages that lie wholly inside [offset, offset + length); they are read again when touched.
  void DropPages(uint64_t offset, uint64_t length) const;
  /// Asks the system to read [offset, offset + length) ahead.
  void WillNeed(uint64_t offset, uint64_t length) const;

 private:
  void* base_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::span<const std::byte> bytes_;
};

/// Writes a file beside its target and renames it when it is whole, so that no reader ever sees a part. Move-only.
/// The temporary file is removed when the writer is destroyed before Commit.
class AtomicFileWriter {
 public:
  AtomicFileWriter() = default;
  AtomicFileWriter(AtomicFileWriter&& other) noexcept;
  AtomicFileWriter& operator=(AtomicFileWriter&& other) noexcept;
  ~AtomicFileWriter();

  static Result<AtomicFileWriter> Create(const std::string& target, Diagnostic* diagnostic);

  /// Appends. Errors: kIoError with the system's reason (a full disk) and the path.
  Status Append(std::span<const std::byte> bytes, Diagnostic* diagnostic);
  /// Overwrites bytes that were appended before.
  Status WriteAt(uint64_t offset, std::span<const std::byte> bytes, Diagnostic* diagnostic);
  /// Extends the file with zeros (a hole where the file system can) up to `size`.
  Status PadTo(uint64_t size, Diagnostic* diagnostic);
  /// Takes the disk's room for the file's bytes so far, holes too, so that a full disk is told now and no reader of a
  /// hole meets it; nothing where the file system cannot. Errors: kIoError.
  Status Reserve(Diagnostic* diagnostic);
  uint64_t size() const { return size_; }
  /// Syncs and renames over the target.
  Status Commit(Diagnostic* diagnostic);

 private:
  std::string target_, temporary_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

}  // namespace linnet

#endif  // LINNET_CORE_BASE_FILE_MAPPING_H_
