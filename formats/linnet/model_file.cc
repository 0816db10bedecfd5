#include "formats/linnet/model_file.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/base/checked.h"
#include "formats/linnet/file_layout.h"
#include "formats/linnet/metadata.h"
#include "formats/linnet/model_file_writer.h"
#include "formats/linnet/sha256.h"

namespace linnet::formats {
namespace {

// Weights are hashed and copied in parts, so that a mapping's pages can be dropped behind.
constexpr size_t kPartBytes = size_t{4} << 20;

unsigned long long Printed(uint64_t value) { return value; }

// Whether [offset, offset + size) lies in [begin, end); no sum can overflow.
bool Inside(uint64_t offset, uint64_t size, uint64_t begin, uint64_t end) {
  return offset >= begin && offset <= end && size <= end - offset;
}

Status CheckMagic(std::span<const std::byte> bytes, Diagnostic* diagnostic) {
  const size_t shown = std::min(bytes.size(), kMagic.size());
  if (shown != 0 && std::memcmp(bytes.data(), kMagic.data(), shown) == 0) return Status::Ok();
  return Fail(diagnostic, StatusCode::kInvalidModel, "not a Linnet model file",
              "header: expected a Linnet model file starting with \"LINNET\", found %zu bytes of something else",
              bytes.size());
}

Status CheckHeader(const FileHeader& header, uint64_t file_bytes, Diagnostic* diagnostic) {
  if (header.format_version != kFormatVersion) {
    const bool newer = header.format_version > kFormatVersion;
    return Fail(diagnostic, newer ? StatusCode::kUnsupported : StatusCode::kInvalidModel,
                "the model file's format version is not known", "header, format version: expected %u, found %u%s",
                kFormatVersion, header.format_version, newer ? "; a newer Linnet wrote the file" : "");
  }
  if (header.file_bytes != file_bytes) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "the model file has another length than its header says",
                "header: expected a file of %llu bytes, found %llu%s", Printed(header.file_bytes), Printed(file_bytes),
                file_bytes < header.file_bytes ? " (truncated)" : "");
  }
  if (header.header_bytes != sizeof(FileHeader) || header.metadata_offset % kMetadataAlignment != 0 ||
      !Inside(header.metadata_offset, header.metadata_bytes, sizeof(FileHeader), file_bytes)) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "the model file's header is damaged",
                "header: expected %zu bytes of header and metadata within %llu bytes, found %u, and %llu at %llu",
                sizeof(FileHeader), Printed(file_bytes), header.header_bytes, Printed(header.metadata_bytes),
                Printed(header.metadata_offset));
  }
  return Status::Ok();
}

Status CheckSegments(std::span<const WeightSegment> segments, uint64_t weights_end, Diagnostic* diagnostic) {
  uint64_t begin = sizeof(FileHeader);
  for (size_t i = 0; i < segments.size(); ++i) {
    const WeightSegment& segment = segments[i];
    if (segment.offset % kSegmentAlignment == 0 && Inside(segment.offset, segment.size_bytes, begin, weights_end)) {
      begin = segment.offset + segment.size_bytes;
      continue;
    }
    return Fail(diagnostic, StatusCode::kInvalidModel, "a weight segment is misplaced",
                "segment %zu: expected a multiple of %llu within %llu and %llu, found offset %llu, %llu bytes", i,
                Printed(kSegmentAlignment), Printed(begin), Printed(weights_end), Printed(segment.offset),
                Printed(segment.size_bytes));
  }
  return Status::Ok();
}

bool InSegment(std::span<const WeightSegment> segments, SegmentKind kind, uint64_t offset, uint64_t size_bytes) {
  return offset % kTensorAlignment == 0 && std::any_of(segments.begin(), segments.end(), [&](const WeightSegment& s) {
           return s.kind == kind && Inside(offset, size_bytes, s.offset, s.offset + s.size_bytes);
         });
}

Status CheckPlace(const TensorRecord& tensor, std::span<const WeightSegment> segments, Diagnostic* diagnostic) {
  const TensorPlace& place = tensor.place;
  const SegmentKind kind = SegmentOf(tensor.spec.role);
  const bool scales_fit = place.scales_bytes == 0 ? place.scales_offset == 0
                                                  : InSegment(segments, kind, place.scales_offset, place.scales_bytes);
  if (scales_fit && InSegment(segments, kind, place.data_offset, place.data_bytes)) return Status::Ok();
  return Fail(
      diagnostic, StatusCode::kInvalidModel, "a tensor lies outside its segment",
      "tensor %s of layer %d: expected 64-byte aligned places inside one segment, found data %llu + %llu, scales "
      "%llu + %llu",
      TensorRoleName(tensor.spec.role), tensor.spec.layer, Printed(place.data_offset), Printed(place.data_bytes),
      Printed(place.scales_offset), Printed(place.scales_bytes));
}

TensorView MakeView(const TensorRecord& tensor, std::span<const std::byte> file) {
  TensorView view;
  view.role = tensor.spec.role;
  view.layer = tensor.spec.layer;
  view.dtype = tensor.spec.dtype;
  view.rank = tensor.spec.rank;
  view.dims = tensor.spec.dims;
  view.block_size = tensor.spec.block_size;
  view.rotation_block = tensor.spec.rotation_block;
  view.data = file.subspan(tensor.place.data_offset, tensor.place.data_bytes);
  if (tensor.place.scales_bytes != 0) view.scales = file.subspan(tensor.place.scales_offset, tensor.place.scales_bytes);
  return view;
}

Sha256Digest HashPart(std::span<const std::byte> file, uint64_t offset, uint64_t size_bytes,
                      const FileMapping* mapping) {
  Sha256 hash;
  while (size_bytes != 0) {
    const uint64_t part = std::min<uint64_t>(size_bytes, kPartBytes);
    hash.Update(file.subspan(offset, part));
    if (mapping != nullptr) mapping->DropPages(offset, part);
    offset += part;
    size_bytes -= part;
  }
  return hash.Finish();
}

}  // namespace

struct ModelFile::State {
  FileMapping mapping;
  bool is_mapped = false;
  std::span<const std::byte> bytes;
  FileHeader header;
  Metadata metadata;
  std::vector<TensorView> views;
  uint64_t weight_bytes = 0;

  Status Load(Diagnostic* diagnostic);
};

Status ModelFile::State::Load(Diagnostic* diagnostic) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kTensorAlignment != 0) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the model's bytes are not aligned",
                "model in memory: expected an address that is a multiple of %llu", Printed(kTensorAlignment));
  }
  LINNET_RETURN_IF_ERROR(CheckMagic(bytes, diagnostic));
  if (bytes.size() < sizeof(FileHeader)) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "the model file is truncated",
                "header: expected %zu bytes, found %zu (truncated)", sizeof(FileHeader), bytes.size());
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  LINNET_RETURN_IF_ERROR(CheckHeader(header, bytes.size(), diagnostic));
  LINNET_ASSIGN_OR_RETURN(metadata,
                          ParseMetadata(bytes.subspan(header.metadata_offset, header.metadata_bytes), diagnostic));
  LINNET_RETURN_IF_ERROR(CheckSegments(metadata.segments, header.metadata_offset, diagnostic));
  views.reserve(metadata.tensors.size());
  for (const TensorRecord& tensor : metadata.tensors) {
    LINNET_RETURN_IF_ERROR(CheckPlace(tensor, metadata.segments, diagnostic));
    views.push_back(MakeView(tensor, bytes));
    weight_bytes += tensor.place.data_bytes + tensor.place.scales_bytes;
  }
  return ValidateTensors(metadata.config, views, diagnostic);
}

ModelFile::ModelFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
ModelFile::ModelFile(ModelFile&&) noexcept = default;
ModelFile& ModelFile::operator=(ModelFile&&) noexcept = default;
ModelFile::~ModelFile() = default;

Result<ModelFile> ModelFile::Open(FileMapping mapping, Diagnostic* diagnostic) {
  auto state = std::make_unique<State>();
  state->mapping = std::move(mapping);
  state->is_mapped = true;
  state->bytes = state->mapping.bytes();
  LINNET_RETURN_IF_ERROR(state->Load(diagnostic));
  return ModelFile(std::move(state));
}

Result<ModelFile> ModelFile::Open(const std::string& path, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(FileMapping mapping, FileMapping::Open(path, diagnostic));
  Diagnostic inner;
  Result<ModelFile> file = Open(std::move(mapping), &inner);
  if (!file.ok()) {
    return Fail(diagnostic, file.status().code(), file.status().message(), "%s: %s", path.c_str(), inner.text());
  }
  return file;
}

Result<ModelFile> ModelFile::FromBytes(std::span<const std::byte> bytes, Diagnostic* diagnostic) {
  auto state = std::make_unique<State>();
  state->bytes = bytes;
  LINNET_RETURN_IF_ERROR(state->Load(diagnostic));
  return ModelFile(std::move(state));
}

ModelView ModelFile::view() const {
  ModelView view(&state_->metadata.config, state_->views);
  view.content_hash = state_->metadata.content_hash;
  return view;
}

const ModelConfig& ModelFile::config() const { return state_->metadata.config; }
std::span<const std::byte> ModelFile::tokenizer_bytes() const { return state_->metadata.tokenizer; }
std::string_view ModelFile::chat_template() const { return state_->metadata.chat_template; }
std::string_view ModelFile::license() const { return state_->metadata.license; }
std::string_view ModelFile::name() const { return state_->metadata.name; }
const GenerationDefaults& ModelFile::generation() const { return state_->metadata.generation; }
const Provenance& ModelFile::provenance() const { return state_->metadata.provenance; }
std::span<const Golden> ModelFile::goldens() const { return state_->metadata.goldens; }
std::span<const std::byte> ModelFile::bytes() const { return state_->bytes; }
uint32_t ModelFile::format_version() const { return state_->header.format_version; }
uint64_t ModelFile::file_bytes() const { return state_->header.file_bytes; }
uint64_t ModelFile::metadata_bytes() const { return state_->header.metadata_bytes; }
uint64_t ModelFile::weight_bytes() const { return state_->weight_bytes; }
std::span<const WeightSegment> ModelFile::segments() const { return state_->metadata.segments; }
const FileMapping* ModelFile::mapping() const { return state_->is_mapped ? &state_->mapping : nullptr; }

Status ModelFile::CheckContent(Diagnostic* diagnostic) const {
  const State& state = *state_;
  Sha256 metadata_hash;
  metadata_hash.Update(state.bytes.subspan(state.header.metadata_offset, state.header.metadata_bytes));
  if (metadata_hash.Finish() != state.header.metadata_sha256) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "the metadata is damaged",
                "metadata: its SHA-256 differs from the one in the header");
  }
  for (const TensorRecord& tensor : state.metadata.tensors) {
    const TensorPlace& place = tensor.place;
    const Sha256Digest data = HashPart(state.bytes, place.data_offset, place.data_bytes, mapping());
    const Sha256Digest scales = HashPart(state.bytes, place.scales_offset, place.scales_bytes, mapping());
    if (TensorDigest(tensor.spec, data, scales) != tensor.sha256) {
      return Fail(diagnostic, StatusCode::kInvalidModel, "a tensor is damaged",
                  "tensor %s of layer %d: its SHA-256 differs from the stored one", TensorRoleName(tensor.spec.role),
                  tensor.spec.layer);
    }
  }
  if (ContentHash(state.metadata.tensors) != state.metadata.content_hash) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "the content hash is wrong",
                "content hash: differs from that of the tensors");
  }
  return Status::Ok();
}

Status ModelFile::WriteCopy(const std::string& target, std::span<const Golden> goldens, Diagnostic* diagnostic) const {
  const Metadata& metadata = state_->metadata;
  ModelContent content;
  content.config = metadata.config;
  content.tokenizer.assign(metadata.tokenizer.begin(), metadata.tokenizer.end());
  content.chat_template = metadata.chat_template;
  content.license = metadata.license;
  content.name = metadata.name;
  content.generation = metadata.generation;
  content.provenance = metadata.provenance;
  content.goldens.assign(goldens.begin(), goldens.end());
  LINNET_ASSIGN_OR_RETURN(
      const std::vector<std::byte> bytes,
      BuildMetadata(content, metadata.tensors, metadata.segments, metadata.content_hash, diagnostic));
  FileHeader header = state_->header;
  header.metadata_bytes = bytes.size();
  header.file_bytes = header.metadata_offset + bytes.size();
  Sha256 hash;
  hash.Update(bytes);
  header.metadata_sha256 = hash.Finish();
  LINNET_ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::Create(target, diagnostic));
  LINNET_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(&header, 1)), diagnostic));
  for (size_t offset = sizeof(header); offset < header.metadata_offset; offset += kPartBytes) {
    const size_t part = std::min<size_t>(kPartBytes, header.metadata_offset - offset);
    LINNET_RETURN_IF_ERROR(writer.Append(state_->bytes.subspan(offset, part), diagnostic));
    if (state_->is_mapped) state_->mapping.DropPages(offset, part);
  }
  LINNET_RETURN_IF_ERROR(writer.Append(bytes, diagnostic));
  return writer.Commit(diagnostic);
}

}  // namespace linnet::formats
