// How a .linnet file is laid out: header, weight segments, metadata.
//
//   0                 FileHeader, 128 bytes
//   64 KiB            segments, each at a multiple of 64 KiB; tensors in them at multiples of 64; gaps are zeros
//   after the last    the FlatBuffer of model.fbs, at a multiple of 64
//   segment           (end of file)
//
// The metadata comes last because the tensors' hashes are known last; the header is completed as the final write.
#ifndef LINNET_FORMATS_LINNET_FILE_LAYOUT_H_
#define LINNET_FORMATS_LINNET_FILE_LAYOUT_H_

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "core/base/model_view.h"
#include "core/base/status.h"
#include "formats/linnet/model_content.h"

namespace linnet::formats {

static_assert(std::endian::native == std::endian::little, "files are little-endian and mapped as they are");

/// The last two bytes show a transfer that changed line ends or stopped at a control character.
constexpr std::array<uint8_t, 8> kMagic = {'L', 'I', 'N', 'N', 'E', 'T', 0x1a, '\n'};
constexpr uint32_t kFormatVersion = 1;

struct FileHeader {
  std::array<uint8_t, 8> magic = kMagic;
  uint32_t format_version = kFormatVersion;
  uint32_t header_bytes = 128;
  uint64_t metadata_offset = 0;
  uint64_t metadata_bytes = 0;
  uint64_t file_bytes = 0;
  std::array<uint8_t, 32> metadata_sha256 = {};
  std::array<uint8_t, 56> reserved = {};  // zeros
};
static_assert(sizeof(FileHeader) == 128 && alignof(FileHeader) == 8);
static_assert(std::is_trivially_copyable_v<FileHeader>);

constexpr uint64_t kMetadataAlignment = 64;
/// Offsets inside a FlatBuffer are 32-bit and partly signed.
constexpr uint64_t kMaxMetadataBytes = (uint64_t{1} << 31) - 1;

/// What the writer must know of a tensor before its first byte.
struct TensorSpec {
  TensorRole role = TensorRole::kTokenEmbedding;
  int32_t layer = -1;
  DType dtype = DType::kF32;
  uint32_t rank = 1;
  std::array<uint64_t, 3> dims = {};
  uint32_t block_size = 0;
  uint32_t rotation_block = 0;

  std::span<const uint64_t> shape() const { return {dims.data(), rank}; }
};

/// Where a tensor lies; offsets from the start of the file.
struct TensorPlace {
  uint64_t data_offset = 0;
  uint64_t data_bytes = 0;
  uint64_t scales_offset = 0;  // 0 where scales_bytes is 0
  uint64_t scales_bytes = 0;
  bool operator==(const TensorPlace&) const = default;
};

struct FileLayout {
  std::vector<TensorPlace> places;  // one a tensor, in the order given
  std::vector<WeightSegment> segments;
  uint64_t metadata_offset = 0;
};

/// Which segment a tensor belongs to.
SegmentKind SegmentOf(TensorRole role);

/// Places every tensor: the only function that computes offsets. Errors: those of ComputeTensorBytes.
Result<FileLayout> PlanFileLayout(std::span<const TensorSpec> tensors);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_LINNET_FILE_LAYOUT_H_
