#include "formats/linnet/model_file_writer.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace linnet::formats {

Sha256Digest TensorDigest(const TensorSpec& spec, const Sha256Digest& data, const Sha256Digest& scales) {
  const std::array<uint64_t, 9> numbers = {static_cast<uint64_t>(spec.role),
                                           static_cast<uint64_t>(int64_t{spec.layer}),
                                           static_cast<uint64_t>(spec.dtype),
                                           spec.rank,
                                           spec.dims[0],
                                           spec.rank > 1 ? spec.dims[1] : 0,
                                           spec.rank > 2 ? spec.dims[2] : 0,
                                           spec.block_size,
                                           spec.rotation_block};
  Sha256 hash;
  hash.Update(std::as_bytes(std::span(numbers)));
  hash.Update(std::as_bytes(std::span(data)));
  hash.Update(std::as_bytes(std::span(scales)));
  return hash.Finish();
}

Sha256Digest ContentHash(std::span<const TensorRecord> tensors) {
  Sha256 hash;
  for (const TensorRecord& tensor : tensors) hash.Update(std::as_bytes(std::span(tensor.sha256)));
  return hash.Finish();
}

Result<ModelFileWriter> ModelFileWriter::Create(const std::string& target, std::vector<TensorSpec> tensors,
                                                Diagnostic* diagnostic) {
  ModelFileWriter writer;
  Result<FileLayout> layout = PlanFileLayout(tensors);
  if (!layout.ok()) {
    return Fail(diagnostic, layout.status().code(), layout.status().message(), "%s: %s", target.c_str(),
                layout.status().message());
  }
  writer.layout_ = std::move(layout).value();
  writer.written_.resize(tensors.size());
  writer.tensors_.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    writer.tensors_.push_back({tensors[i], writer.layout_.places[i], {}});
  }
  LINNET_ASSIGN_OR_RETURN(writer.file_, AtomicFileWriter::Create(target, diagnostic));
  // The gaps between tensors stay zeros.
  LINNET_RETURN_IF_ERROR(writer.file_.PadTo(writer.layout_.metadata_offset, diagnostic));
  return writer;
}

void ModelFileWriter::BeginTensor(size_t index) {
  if (in_tensor_) EndTensor();
  LINNET_CHECK(index < tensors_.size() && !written_[index]);
  const TensorPlace& place = tensors_[index].place;
  data_ = {place.data_offset, place.data_bytes, {}};
  scales_ = {place.scales_offset, place.scales_bytes, {}};
  current_ = index;
  in_tensor_ = true;
}

Status ModelFileWriter::Write(Stream& stream, std::span<const std::byte> bytes, Diagnostic* diagnostic) {
  LINNET_CHECK(in_tensor_ && bytes.size() <= stream.bytes_left);
  LINNET_RETURN_IF_ERROR(file_.WriteAt(stream.offset, bytes, diagnostic));
  stream.hash.Update(bytes);
  stream.offset += bytes.size();
  stream.bytes_left -= bytes.size();
  return Status::Ok();
}

Status ModelFileWriter::WriteData(std::span<const std::byte> bytes, Diagnostic* diagnostic) {
  return Write(data_, bytes, diagnostic);
}
Status ModelFileWriter::WriteScales(std::span<const std::byte> bytes, Diagnostic* diagnostic) {
  return Write(scales_, bytes, diagnostic);
}

void ModelFileWriter::EndTensor() {
  LINNET_CHECK(data_.bytes_left == 0 && scales_.bytes_left == 0);
  TensorRecord& tensor = tensors_[current_];
  const Sha256Digest data = data_.hash.Finish();
  tensor.sha256 = TensorDigest(tensor.spec, data, scales_.hash.Finish());
  written_[current_] = true;
  in_tensor_ = false;
}

Status ModelFileWriter::Finish(const ModelContent& content, Diagnostic* diagnostic) {
  if (in_tensor_) EndTensor();
  LINNET_CHECK(std::all_of(written_.begin(), written_.end(), [](bool written) { return written; }));
  LINNET_ASSIGN_OR_RETURN(const std::vector<std::byte> metadata,
                          BuildMetadata(content, tensors_, layout_.segments, ContentHash(tensors_), diagnostic));
  FileHeader header;
  header.metadata_offset = layout_.metadata_offset;
  header.metadata_bytes = metadata.size();
  header.file_bytes = layout_.metadata_offset + metadata.size();
  Sha256 hash;
  hash.Update(metadata);
  header.metadata_sha256 = hash.Finish();
  LINNET_RETURN_IF_ERROR(file_.Append(metadata, diagnostic));
  LINNET_RETURN_IF_ERROR(file_.WriteAt(0, std::as_bytes(std::span(&header, 1)), diagnostic));
  LINNET_RETURN_IF_ERROR(file_.Commit(diagnostic));
  file_bytes_ = header.file_bytes;
  return Status::Ok();
}

}  // namespace linnet::formats
