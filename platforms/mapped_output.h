// Public header. A file of known size that is filled through memory, for data that is laid out in place.
#ifndef LINNET_PLATFORMS_MAPPED_OUTPUT_H_
#define LINNET_PLATFORMS_MAPPED_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::platform {

/// Maps a temporary file beside its target for writing; Commit renames it when it is whole. Its pages are the file's:
/// they need no anonymous memory. The temporary file is removed when the writer is destroyed before Commit. Move-only.
class MappedOutput {
 public:
  /// Reserves `bytes` (> 0) of disk, so that a full disk shows here and not as a crash while the memory is written.
  /// Errors: kIoError with the path and the reason; kUnsupported where the address space is too small.
  static Result<MappedOutput> Create(const std::string& target, uint64_t bytes, Diagnostic* diagnostic);

  MappedOutput(MappedOutput&& other) noexcept;
  MappedOutput& operator=(MappedOutput&&) = delete;
  ~MappedOutput();

  /// Zeros at first; page-aligned.
  std::span<std::byte> bytes() const { return bytes_; }

  /// Takes the pages up to `length` out of this process's memory; what was written stays on its way to the file.
  void DropPages(uint64_t length) const;

  /// Syncs and renames over the target. The memory can no longer be used.
  Status Commit(Diagnostic* diagnostic);

 private:
  MappedOutput() = default;

  std::string target_, temporary_;
  int descriptor_ = -1;
  std::span<std::byte> bytes_;
};

/// Zeroed anonymous memory from the system, page-aligned and unmapped at the end: pages that are never touched cost
/// nothing. Move-only.
class AnonymousMemory {
 public:
  AnonymousMemory() = default;
  /// Errors: kOutOfMemory with the reason. No bytes give an empty one.
  static Result<AnonymousMemory> Create(uint64_t bytes, Diagnostic* diagnostic);

  AnonymousMemory(AnonymousMemory&& other) noexcept;
  AnonymousMemory& operator=(AnonymousMemory&& other) noexcept;
  ~AnonymousMemory();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace linnet::platform

#endif  // LINNET_PLATFORMS_MAPPED_OUTPUT_H_
