// Public header. Writes a .linnet model file tensor by tensor; the file appears whole or not at all.
#ifndef LINNET_FORMATS_LINNET_MODEL_FILE_WRITER_H_
#define LINNET_FORMATS_LINNET_MODEL_FILE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/file_mapping.h"
#include "core/base/model_view.h"
#include "core/base/status.h"
#include "formats/linnet/file_layout.h"
#include "formats/linnet/metadata.h"
#include "formats/linnet/model_content.h"
#include "formats/linnet/sha256.h"

namespace linnet::formats {

/// SHA-256 over a tensor's role, layer, dtype, rank, dims, block_size and rotation_block as little-endian 64-bit
/// numbers, followed by the SHA-256 of its data and the SHA-256 of its scales.
Sha256Digest TensorDigest(const TensorSpec& spec, const Sha256Digest& data, const Sha256Digest& scales);
/// SHA-256 over the tensors' digests in table order: what packed weights are keyed by.
Sha256Digest ContentHash(std::span<const TensorRecord> tensors);

/// Streams weights into a temporary file beside the target. Tensors may come in any order, one at a time; the data and
/// the scales of a tensor may be written alternately, each from its beginning on. Nothing is buffered. Move-only; a
/// writer that is destroyed before Finish leaves nothing behind.
class ModelFileWriter {
 public:
  /// Plans the layout of `tensors`, which become the file's tensor table in this order.
  /// Errors: kIoError; those of PlanFileLayout.
  static Result<ModelFileWriter> Create(const std::string& target, std::vector<TensorSpec> tensors,
                                        Diagnostic* diagnostic);

  /// Takes the disk's room for all tensors. Errors: kIoError.
  Status Reserve(Diagnostic* diagnostic) { return file_.Reserve(diagnostic); }

  /// Starts tensor `index` of the list; the one before must be complete.
  void BeginTensor(size_t index);
  /// Appends to the data or the scales of the current tensor. Errors: kIoError.
  Status WriteData(std::span<const std::byte> bytes, Diagnostic* diagnostic);
  Status WriteScales(std::span<const std::byte> bytes, Diagnostic* diagnostic);

  /// Ends the last tensor, writes metadata and header, syncs and renames. Every tensor must have been written, and
  /// content.config must require exactly the writer's tensors. Errors: kIoError, kInvalidArgument.
  Status Finish(const ModelContent& content, Diagnostic* diagnostic);

  const FileLayout& layout() const { return layout_; }
  /// The file's size; known after Finish.
  uint64_t file_bytes() const { return file_bytes_; }

 private:
  // One of the two streams of the current tensor.
  struct Stream {
    uint64_t offset = 0;
    uint64_t bytes_left = 0;
    Sha256 hash;
  };

  ModelFileWriter() = default;
  Status Write(Stream& stream, std::span<const std::byte> bytes, Diagnostic* diagnostic);
  void EndTensor();

  AtomicFileWriter file_;
  FileLayout layout_;
  std::vector<TensorRecord> tensors_;
  std::vector<bool> written_;
  Stream data_, scales_;
  size_t current_ = 0;
  bool in_tensor_ = false;
  uint64_t file_bytes_ = 0;
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_LINNET_MODEL_FILE_WRITER_H_
