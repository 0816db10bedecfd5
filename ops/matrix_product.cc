#include "ops/matrix_product.h"

#include <algorithm>
#include <utility>

#include "core/base/checked.h"

namespace linnet::ops {
namespace {

// Of our own kernel's layout; raised with every change of it.
constexpr uint32_t kQ4Seed = 0x51340001u;

bool IsOwn(DType dtype) { return dtype == DType::kQ4 && HasQ4Product(); }

Q4Shape ShapeOf(const TensorView& weight) {
  return {.n = weight.rows(), .k = weight.columns(), .block_size = weight.block_size};
}

// Strips a task: few enough that a task is worth handing out, many enough that threads end together.
size_t StripsPerTask(const Q4Shape& shape, size_t n_rows, size_t n_threads) {
  constexpr size_t kTasksPerThread = 8;
  constexpr size_t kTaskWork = size_t{1} << 16;  // weights times rows, that is, about a microsecond and a half
  const size_t strips = Q4StripCount(shape);
  const size_t worth_it = CeilDiv(kTaskWork, kQ4StripOutputs * shape.k * n_rows);
  return std::clamp<size_t>(strips / (n_threads * kTasksPerThread), 1, std::max<size_t>(worth_it, 1));
}

}  // namespace

Result<uint64_t> PackedProductBytes(DType dtype, uint64_t n, uint64_t k, uint32_t block_size) {
  if (IsOwn(dtype)) return Q4PackedBytes({.n = n, .k = k, .block_size = block_size});
  return PackedMatrixBytes(dtype, n, k, block_size);
}

Result<std::array<uint8_t, 16>> ProductFingerprint() {
  LINNET_ASSIGN_OR_RETURN(auto fingerprint, PackingFingerprint());
  if (HasQ4Product()) {
    for (size_t i = 0; i < sizeof(kQ4Seed); ++i) fingerprint[i] ^= static_cast<uint8_t>(kQ4Seed >> (8 * i));
  }
  return fingerprint;
}

Result<uint32_t> PackProduct(const TensorView& weight, uint64_t group, const float* bias, std::span<std::byte> packed) {
  if (!IsOwn(weight.dtype)) return PackMatrix(weight, group, bias, packed);
  const auto data = weight.data.subspan(group * (weight.data.size() / weight.groups()));
  const auto scales = weight.scales.subspan(group * (weight.scales.size() / weight.groups()));
  LINNET_RETURN_IF_ERROR(PackQ4(ShapeOf(weight), reinterpret_cast<const uint8_t*>(data.data()),
                                reinterpret_cast<const uint16_t*>(scales.data()), bias, packed));
  return kQ4Seed;
}

uint64_t ProductHeapBytes(DType dtype) {
  return sizeof(MatrixProduct) + (IsOwn(dtype) ? 0 : LinearHeapBytes() - sizeof(Linear));
}

Result<MatrixProduct> MatrixProduct::Create(const TensorView& weight, uint64_t group, std::span<const std::byte> packed,
                                            uint32_t seed) {
  if (!IsOwn(weight.dtype)) {
    LINNET_ASSIGN_OR_RETURN(Linear linear, Linear::Create(weight, group, packed, seed));
    return MatrixProduct(std::move(linear));
  }
  if (seed != kQ4Seed) return Status(StatusCode::kInvalidModel, "packed weights are of another kernel", seed);
  return MatrixProduct(Q4Matrix{.shape = ShapeOf(weight), .packed = packed.data()});
}

bool MatrixProduct::quantized_input() const {
  const Linear* linear = std::get_if<Linear>(&kernel_);
  return linear == nullptr || linear->quantized_input();
}

Status MatrixProduct::Run(const LinearInput& input, size_t n_rows, float* out, ThreadPool& pool) {
  if (Linear* linear = std::get_if<Linear>(&kernel_)) return linear->Run(input, n_rows, out, pool);
  const Q4Matrix& matrix = std::get<Q4Matrix>(kernel_);
  const Q4ProductArgs args = {.shape = matrix.shape,
                              .packed = matrix.packed,
                              .x = input.int8,
                              .rows = input.rows,
                              .n_rows = n_rows,
                              .out = out};
  const size_t strips = Q4StripCount(matrix.shape);
  const size_t per_task = StripsPerTask(matrix.shape, n_rows, pool.n_threads());
  pool.ParallelFor(CeilDiv(strips, per_task), [&](size_t task, size_t) {
    const size_t first = task * per_task;
    Q4ProductStrips(args, first, std::min(per_task, strips - first));
  });
  return Status::Ok();
}

}  // namespace linnet::ops
