// Matrix products: one packed matrix, run by the kernel that suits its type and this CPU.
#ifndef LINNET_OPS_MATRIX_PRODUCT_H_
#define LINNET_OPS_MATRIX_PRODUCT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "core/base/model_view.h"
#include "core/base/status.h"
#include "ops/q4_product.h"
#include "ops/thread_pool.h"
#include "ops/xnn_linear.h"

namespace linnet::ops {

/// Bytes that one [n, k] matrix takes once packed for this CPU, a multiple of kPackedAlignment.
/// f16 and bf16 are packed as f32, since XNNPACK has no kernel of f32 rows and 16-bit weights.
Result<uint64_t> PackedProductBytes(DType dtype, uint64_t n, uint64_t k, uint32_t block_size);

/// Identifies how this CPU's kernels want matrices packed: equal fingerprints mean interchangeable packed bytes,
/// whatever the CPU is called.
Result<std::array<uint8_t, 16>> ProductFingerprint();

/// Packs one group of `weight` with `bias` ([N] or null) into `packed` (PackedProductBytes long, aligned).
/// Allocates N * K floats for the time of the call where the type is f16 or bf16. Returns the seed of the kernel that
/// the bytes are for, which MatrixProduct::Create wants back. Errors: kInvalidModel where a q8 scale is not a positive
/// normal number, or a q4 scale (or its sixteenth) not a normal one; those may be negative.
Result<uint32_t> PackProduct(const TensorView& weight, uint64_t group, const float* bias, std::span<std::byte> packed);

/// Heap that one product over packed bytes of this type takes at most, the MatrixProduct itself included. XNNPACK and
/// the pool take kLinearRuntimeBytes beside them, once.
uint64_t ProductHeapBytes(DType dtype);

/// out[m, n] = sum over k of x[m, k] * W[n, k] + bias[n] for one packed matrix; move-only.
/// Rows are contiguous: x is [M, K], out is [M, N]. Each output's bits depend on neither M nor the threads.
class MatrixProduct {
 public:
  /// `packed` and `seed` as PackProduct made them from the same group of `weight`; the bytes outlive the product.
  /// Reads neither the data nor the scales of `weight`: they were checked when they were packed.
  /// Errors: kInvalidModel where the seed does not fit this CPU's kernel; kOutOfMemory.
  static Result<MatrixProduct> Create(const TensorView& weight, uint64_t group, std::span<const std::byte> packed,
                                      uint32_t seed);

  bool quantized_input() const;
  /// Runs n_rows >= 1 rows. No heap call. Errors: kInternal only.
  Status Run(const LinearInput& input, size_t n_rows, float* out, ThreadPool& pool);

 private:
  struct Q4Matrix {
    Q4Shape shape;
    const std::byte* packed = nullptr;
  };
  explicit MatrixProduct(Linear linear) : kernel_(std::move(linear)) {}
  explicit MatrixProduct(const Q4Matrix& matrix) : kernel_(matrix) {}

  std::variant<Q4Matrix, Linear> kernel_;
};

}  // namespace linnet::ops

#endif  // LINNET_OPS_MATRIX_PRODUCT_H_
