// Linear layers through XNNPACK: packing a matrix for this CPU's kernels, and running it from packed bytes.
#ifndef LINNET_OPS_XNN_LINEAR_H_
#define LINNET_OPS_XNN_LINEAR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/base/dtype.h"
#include "core/base/model_view.h"
#include "core/base/status.h"
#include "ops/quantize_activations.h"
#include "ops/thread_pool.h"

namespace linnet::ops {

/// Bytes that XNNPACK may read (never write) behind the end of an input row buffer.
constexpr size_t kLinearInputPadding = 128;
/// Entries of RowQuantization behind the last row that belong to the product, which fills them: XNNPACK computes the
/// last tile's missing rows as copies of the last row, parameters included.
constexpr size_t kLinearRowPadding = kExtraRowQuantizations;
/// Packed matrices start at multiples of this.
constexpr size_t kPackedAlignment = 64;

/// Prepares XNNPACK for this process; cheap after the first call.
/// Errors: kUnsupported where the CPU lacks what XNNPACK needs; kOutOfMemory.
Status InitializeXnnpack();

/// Bytes that one [n, k] matrix takes once packed for this CPU, a multiple of kPackedAlignment.
/// f16 and bf16 are packed as f32, since XNNPACK has no kernel of f32 rows and 16-bit weights.
Result<uint64_t> PackedMatrixBytes(DType dtype, uint64_t n, uint64_t k, uint32_t block_size);

/// Identifies how this CPU's kernels want matrices packed: a hash over small packed samples of every weight type,
/// so that equal fingerprints mean interchangeable packed bytes, whatever the CPU is called.
Result<std::array<uint8_t, 16>> PackingFingerprint();

/// Packs one group of `weight` with `bias` ([N] or null) into `packed` (PackedMatrixBytes long, aligned).
/// Allocates N * K floats for the time of the call where the type is f16 or bf16. Returns XNNPACK's seed of the
/// kernel's shape, which Linear::Create wants back.
Result<uint32_t> PackMatrix(const TensorView& weight, uint64_t group, const float* bias, std::span<std::byte> packed);

/// What a product reads: f32 rows for f32, f16 and bf16 weights, int8 rows with their parameters for q8 and q4.
struct LinearInput {
  const float* f32 = nullptr;
  const int8_t* int8 = nullptr;
  RowQuantization* rows = nullptr;  // [n_rows + kLinearRowPadding]
};

/// out[m, n] = sum over k of x[m, k] * W[n, k] + bias[n] for one packed matrix. Owns an XNNPACK operator; move-only.
/// Rows are contiguous: x is [M, K], out is [M, N]. Each output's bits depend on neither M nor the threads.
class Linear {
 public:
  /// `packed` and `seed` as PackMatrix made them from the same group of `weight`; the bytes outlive the Linear.
  /// Reads neither the data nor the scales of `weight`: only its type and shape count.
  /// Errors: kInvalidModel where the seed does not fit this CPU's kernel; kOutOfMemory.
  static Result<Linear> Create(const TensorView& weight, uint64_t group, std::span<const std::byte> packed,
                               uint32_t seed);

  Linear(Linear&&) noexcept;
  Linear& operator=(Linear&&) noexcept;
  ~Linear();

  bool quantized_input() const;

  /// Runs n_rows >= 1 rows. No heap call. Errors: kInternal only.
  Status Run(const LinearInput& input, size_t n_rows, float* out, ThreadPool& pool);

 private:
  struct Impl;
  friend uint64_t LinearHeapBytes();
  explicit Linear(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Heap that a Linear takes at most, itself included, known before any is made.
uint64_t LinearHeapBytes();
/// Heap of XNNPACK, cpuinfo and a pool of threads at most, beside all Linears: a few kilobytes and about 400 bytes for
/// each of the machine's cores.
constexpr uint64_t kLinearRuntimeBytes = 128 << 10;

}  // namespace linnet::ops

#endif  // LINNET_OPS_XNN_LINEAR_H_
