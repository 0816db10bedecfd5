// Public header. Weights in the layout that this CPU's matrix kernels read: their sizes, making them, opening them.
#ifndef LINNET_CORE_PACKED_WEIGHTS_H_
#define LINNET_CORE_PACKED_WEIGHTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/model_view.h"
#include "core/base/status.h"

namespace linnet {

/// One matrix of the model where it lies in the packed region.
struct PackedMatrix {
  uint32_t tensor = 0;       // index into ModelView::tensors()
  uint32_t group = 0;        // of a rank-3 tensor (an expert, a head)
  int32_t bias_tensor = -1;  // index of the bias that is packed with it; -1: none
  uint64_t offset = 0;       // from the region's start, a multiple of ops::kPackedAlignment
  uint64_t bytes = 0;
};

/// Where every matrix of a model lies once packed for this CPU. The same function measures and places, so that the
/// bytes known beforehand are the bytes used.
struct PackedLayout {
  std::vector<PackedMatrix> matrices;     // in the order of the model's tensors
  std::vector<int32_t> first_of_tensor;   // [tensors]: index of the tensor's first matrix; -1: not a matrix product
  std::array<uint8_t, 16> fingerprint{};  // ops::ProductFingerprint
  uint64_t total_bytes = 0;               // of the region, header included
};

/// Errors: kUnsupported or kOutOfMemory from XNNPACK's initialization; kInvalidModel on overflow.
Result<PackedLayout> ComputePackedLayout(const ModelView& model);

/// True for a tensor that steps read where the model file is mapped: no matrix of a product, or one that is a table of
/// embeddings as well.
bool ReadWhereMapped(const PackedLayout& layout, std::span<const TensorView> tensors, size_t index);

/// Called after every matrix with bytes done and in all; returns false to stop. The bytes done are not touched again
/// but for the header's and the seeds' (the first page or two): the caller may let go of them and of the weights read.
struct PackProgress {
  bool (*function)(void* context, uint64_t bytes_done, uint64_t bytes_total) = nullptr;
  void* context = nullptr;
};

/// Fills `region` (total_bytes, aligned to 64; anonymous memory, or a mapping of a file that becomes the packed file).
/// The header is written last: a region that was left half-way never opens. Beyond the region it takes memory for one
/// f16 or bf16 matrix as f32.
/// Errors: kCancelled; kInvalidModel where XNNPACK refuses a scale.
Status PackWeights(const ModelView& model, const PackedLayout& layout, std::span<std::byte> region,
                   PackProgress progress);

/// Checks that `region` was packed from this model for kernels of this layout, and returns the kernels' seeds, one a
/// matrix. Nothing else of the region is interpreted: offsets and sizes come from `layout`. Samples of the matrices are
/// compared with a checksum (a page in every 512 KiB); a single changed byte elsewhere is not found.
/// Errors: kInvalidModel where it is truncated, damaged, of another model, CPU or version; the caller packs anew.
Result<std::span<const uint32_t>> OpenPackedWeights(const ModelView& model, const PackedLayout& layout,
                                                    std::span<const std::byte> region);

}  // namespace linnet

#endif  // LINNET_CORE_PACKED_WEIGHTS_H_
