#include "core/packed_weights.h"

#include <algorithm>
#include <cstring>

#include "core/base/checked.h"
#include "ops/matrix_product.h"

namespace linnet {
namespace {

constexpr char kMagic[8] = {'L', 'N', 'T', 'P', 'A', 'C', 'K', '1'};
constexpr uint32_t kVersion = 3;  // raised when XNNPACK's version or this layout changes in a way seeds do not show

// The seeds follow the header, then the matrices.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t n_matrices;
  uint8_t content_hash[32];
  uint8_t fingerprint[16];
  uint64_t total_bytes;
  uint64_t checksum;  // of samples of the matrices and of the seeds: see Checksum
  uint8_t reserved[48];
};
static_assert(sizeof(Header) == 128);

bool IsMatrixProduct(const ModelConfig& config, TensorRole role) {
  return IsLinearRole(role) || (role == TensorRole::kTokenEmbedding && config.tied_head);
}

// The bias that is added by the same kernel, or no role of a bias at all.
bool BiasOf(TensorRole role, TensorRole* bias) {
  switch (role) {
    case TensorRole::kTokenEmbedding:
    case TensorRole::kHead:
      *bias = TensorRole::kHeadBias;
      return true;
    case TensorRole::kQkv:
      *bias = TensorRole::kQkvBias;
      return true;
    case TensorRole::kAttentionOut:
      *bias = TensorRole::kAttentionOutBias;
      return true;
    case TensorRole::kLatentIn:
      *bias = TensorRole::kLatentInBias;
      return true;
    case TensorRole::kFfnUp:
      *bias = TensorRole::kFfnUpBias;
      return true;
    case TensorRole::kFfnDown:
      *bias = TensorRole::kFfnDownBias;
      return true;
    case TensorRole::kExpertUp:
      *bias = TensorRole::kExpertUpBias;
      return true;
    case TensorRole::kExpertDown:
      *bias = TensorRole::kExpertDownBias;
      return true;
    default:
      return false;
  }
}

int32_t IndexOf(const ModelView& model, const TensorView* tensor) {
  return tensor == nullptr ? -1 : static_cast<int32_t>(tensor - model.tensors().data());
}

// Many layers have matrices of the same shape; XNNPACK is asked once for each.
class SizeCache {
 public:
  Result<uint64_t> Bytes(const TensorView& tensor) {
    const Shape shape = {tensor.dtype, tensor.rows(), tensor.columns(), tensor.block_size, 0};
    for (const Shape& known : shapes_) {
      if (known.Matches(shape)) return known.bytes;
    }
    LINNET_ASSIGN_OR_RETURN(const uint64_t bytes,
                            ops::PackedProductBytes(shape.dtype, shape.n, shape.k, shape.block_size));
    shapes_.push_back(shape);
    shapes_.back().bytes = bytes;
    return bytes;
  }

 private:
  struct Shape {
    DType dtype;
    uint64_t n, k;
    uint32_t block_size;
    uint64_t bytes;
    bool Matches(const Shape& other) const {
      return dtype == other.dtype && n == other.n && k == other.k && block_size == other.block_size;
    }
  };
  std::vector<Shape> shapes_;
};

const float* BiasPointer(const ModelView& model, const PackedMatrix& matrix) {
  if (matrix.bias_tensor < 0) return nullptr;
  const TensorView& bias = model.tensors()[static_cast<size_t>(matrix.bias_tensor)];
  // A bias of a stack of experts is [E, N]: one row a group.
  return bias.f32() + (bias.rank == 1 ? 0 : matrix.group * bias.columns());
}

// FNV-1a over 8-byte words of one page in every 512 KiB, of the last one and of the seeds. It finds files that were
// cut, torn or overwritten in larger pieces at the price of a few hundred page faults; a hash of everything would read
// all weights at every start. It grows with the matrices, so that packing need not come back to pages that it has let
// go.
class Checksum {
 public:
  explicit Checksum(const PackedLayout& layout, std::span<const std::byte> region)
      : region_(region),
        seeds_end_(sizeof(Header) + AlignUp(layout.matrices.size() * sizeof(uint32_t), sizeof(uint64_t))),
        next_(seeds_end_) {}

  // Everything before `end` has its final bytes.
  void AddUpTo(size_t end) {
    for (; next_ + kPage <= end; next_ += kStride) Add(next_, next_ + kPage);
  }
  uint64_t Finish() {
    AddUpTo(region_.size());
    Add(region_.size() - std::min(region_.size() - sizeof(Header), kPage), region_.size());
    Add(sizeof(Header), std::min(seeds_end_, region_.size()));
    return sum_;
  }

 private:
  static constexpr size_t kPage = 4096, kStride = size_t{512} << 10;

  void Add(size_t begin, size_t end) {
    for (size_t i = begin; i + sizeof(uint64_t) <= end; i += sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, region_.data() + i, sizeof(word));
      sum_ = (sum_ ^ word) * 0x100000001b3u;
    }
  }

  std::span<const std::byte> region_;
  size_t seeds_end_;
  size_t next_;
  uint64_t sum_ = 0xcbf29ce484222325u;
};

Header MakeHeader(const ModelView& model, const PackedLayout& layout, uint64_t checksum) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.n_matrices = static_cast<uint32_t>(layout.matrices.size());
  std::memcpy(header.content_hash, model.content_hash.data(), sizeof(header.content_hash));
  std::memcpy(header.fingerprint, layout.fingerprint.data(), sizeof(header.fingerprint));
  header.total_bytes = layout.total_bytes;
  header.checksum = checksum;
  return header;
}

}  // namespace

Result<PackedLayout> ComputePackedLayout(const ModelView& model) {
  PackedLayout layout;
  LINNET_ASSIGN_OR_RETURN(layout.fingerprint, ops::ProductFingerprint());
  layout.first_of_tensor.assign(model.tensors().size(), -1);
  SizeCache sizes;
  for (size_t t = 0; t < model.tensors().size(); ++t) {
    const TensorView& tensor = model.tensors()[t];
    if (!IsMatrixProduct(model.config(), tensor.role)) continue;
    layout.first_of_tensor[t] = static_cast<int32_t>(layout.matrices.size());
    TensorRole bias_role;
    const TensorView* bias = BiasOf(tensor.role, &bias_role) ? model.Find(bias_role, tensor.layer) : nullptr;
    LINNET_ASSIGN_OR_RETURN(const uint64_t bytes, sizes.Bytes(tensor));
    for (uint64_t group = 0; group < tensor.groups(); ++group) {
      layout.matrices.push_back({.tensor = static_cast<uint32_t>(t),
                                 .group = static_cast<uint32_t>(group),
                                 .bias_tensor = IndexOf(model, bias),
                                 .offset = 0,
                                 .bytes = bytes});
    }
  }
  uint64_t offset = AlignUp(sizeof(Header) + layout.matrices.size() * sizeof(uint32_t), ops::kPackedAlignment);
  for (PackedMatrix& matrix : layout.matrices) {
    matrix.offset = offset;
    LINNET_ASSIGN_OR_RETURN(offset, CheckedAdd(offset, matrix.bytes));
  }
  layout.total_bytes = offset;
  return layout;
}

bool ReadWhereMapped(const PackedLayout& layout, std::span<const TensorView> tensors, size_t index) {
  return layout.first_of_tensor[index] < 0 || tensors[index].role == TensorRole::kTokenEmbedding;
}

Status PackWeights(const ModelView& model, const PackedLayout& layout, std::span<std::byte> region,
                   PackProgress progress) {
  if (region.size() != layout.total_bytes) {
    return {StatusCode::kInvalidArgument, "the region for packed weights has another size than the layout"};
  }
  auto* seeds = reinterpret_cast<uint32_t*>(region.data() + sizeof(Header));
  Checksum checksum(layout, region);
  for (size_t i = 0; i < layout.matrices.size(); ++i) {
    const PackedMatrix& matrix = layout.matrices[i];
    LINNET_ASSIGN_OR_RETURN(seeds[i],
                            ops::PackProduct(model.tensors()[matrix.tensor], matrix.group, BiasPointer(model, matrix),
                                            region.subspan(matrix.offset, matrix.bytes)));
    checksum.AddUpTo(matrix.offset + matrix.bytes);
    if (progress.function != nullptr &&
        !progress.function(progress.context, matrix.offset + matrix.bytes, layout.total_bytes)) {
      return {StatusCode::kCancelled, "packing was stopped"};
    }
  }
  const Header header = MakeHeader(model, layout, checksum.Finish());
  std::memcpy(region.data(), &header, sizeof(header));
  return Status::Ok();
}

Result<std::span<const uint32_t>> OpenPackedWeights(const ModelView& model, const PackedLayout& layout,
                                                    std::span<const std::byte> region) {
  constexpr const char* kMismatch = "packed weights are damaged, or of another model, CPU or version";
  if (region.size() != layout.total_bytes) return Status(StatusCode::kInvalidModel, kMismatch);
  const Header expected = MakeHeader(model, layout, Checksum(layout, region).Finish());
  if (std::memcmp(region.data(), &expected, sizeof(expected)) != 0) {
    return Status(StatusCode::kInvalidModel, kMismatch);
  }
  const auto* seeds = reinterpret_cast<const uint32_t*>(region.data() + sizeof(Header));
  return std::span<const uint32_t>(seeds, layout.matrices.size());
}

}  // namespace linnet
