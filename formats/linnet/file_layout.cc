#include "formats/linnet/file_layout.h"

#include "core/base/checked.h"

namespace linnet::formats {
namespace {

// Far above any disk, so that aligning an offset cannot overflow.
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 62;

Result<uint64_t> Place(uint64_t size_bytes, uint64_t* offset) {
  const uint64_t begin = AlignUp(*offset, kTensorAlignment);
  LINNET_ASSIGN_OR_RETURN(const uint64_t end, CheckedAdd(begin, size_bytes));
  if (end > kMaxFileBytes) return Status(StatusCode::kInvalidModel, "the file would be too large");
  *offset = end;
  return begin;
}

Result<TensorPlace> PlaceTensor(const TensorSpec& tensor, uint64_t* offset) {
  LINNET_ASSIGN_OR_RETURN(const TensorBytes bytes, ComputeTensorBytes(tensor.dtype, tensor.shape(), tensor.block_size));
  TensorPlace place;
  place.data_bytes = bytes.data;
  place.scales_bytes = bytes.scales;
  LINNET_ASSIGN_OR_RETURN(place.data_offset, Place(bytes.data, offset));
  if (bytes.scales != 0) {
    LINNET_ASSIGN_OR_RETURN(place.scales_offset, Place(bytes.scales, offset));
  }
  return place;
}

}  // namespace

SegmentKind SegmentOf(TensorRole role) {
  if (role == TensorRole::kTokenEmbedding || role == TensorRole::kPositionEmbedding) return SegmentKind::kTables;
  return IsLinearRole(role) ? SegmentKind::kLinear : SegmentKind::kVectors;
}

Result<FileLayout> PlanFileLayout(std::span<const TensorSpec> tensors) {
  FileLayout layout;
  layout.places.resize(tensors.size());
  uint64_t offset = sizeof(FileHeader);
  for (const SegmentKind kind : {SegmentKind::kTables, SegmentKind::kLinear, SegmentKind::kVectors}) {
    const uint64_t begin = AlignUp(offset, kSegmentAlignment);
    uint64_t end = begin;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (SegmentOf(tensors[i].role) != kind) continue;
      LINNET_ASSIGN_OR_RETURN(layout.places[i], PlaceTensor(tensors[i], &end));
    }
    if (end == begin) continue;
    layout.segments.push_back({kind, begin, end - begin});
    offset = end;
  }
  layout.metadata_offset = AlignUp(offset, kMetadataAlignment);
  return layout;
}

}  // namespace linnet::formats
