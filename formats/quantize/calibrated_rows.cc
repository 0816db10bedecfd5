#include "formats/quantize/calibrated_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/base/check.h"
#include "core/base/checked.h"
#include "core/base/float16.h"
#include "core/base/model_view.h"
#include "formats/quantize/row_kernels.h"
#include "ops/compensated_rounding.h"
#include "ops/second_moments.h"
#include "ops/walsh_hadamard.h"

namespace linnet::formats {
namespace {

using ops::kRoundingRows;

constexpr float kMaxLevelQ8 = 127.0f;
// q8 has one scale a row; its columns are worked through in blocks of this size.
constexpr size_t kColumnsQ8 = 32;
// Relative errors are estimated from every eighth tile: the energies cost as much as the rounding.
constexpr size_t kOutputSample = 8;

struct Rounding {
  size_t columns = 0;
  QuantizeOptions options;
  ops::RoundingProblem problem;
};

// The memory of one thread.
struct TileMemory {
  float *weights, *errors, *scales, *scratch;
  int8_t* levels;
};

size_t ScaleFloats(size_t columns) { return columns / 32 * kRoundingRows + kRoundingRows; }

size_t TileFloats(size_t columns) {
  return 2 * columns * kRoundingRows + ScaleFloats(columns) + ops::RoundingScratchFloats();
}

TileMemory CutMemory(size_t columns, float* memory, int8_t* levels) {
  TileMemory tile = {.weights = memory, .errors = nullptr, .scales = nullptr, .scratch = nullptr, .levels = levels};
  tile.errors = tile.weights + columns * kRoundingRows;
  tile.scales = tile.errors + columns * kRoundingRows;
  tile.scratch = tile.scales + ScaleFloats(columns);
  return tile;
}

// Rows side by side, their columns in the order of rounding; lanes without a row hold zeros.
void Transpose(const float* rows, size_t n_rows, const InputMoments& moments, float* out) {
  constexpr size_t kStrip = 16;  // columns at a time, so that what is written stays in the first cache
  const size_t columns = moments.width;
  for (size_t begin = 0; begin < columns; begin += kStrip) {
    const size_t end = std::min(columns, begin + kStrip);
    for (size_t r = 0; r < kRoundingRows; ++r) {
      for (size_t k = begin; k < end; ++k) {
        out[k * kRoundingRows + r] = r < n_rows ? rows[r * columns + moments.column(k)] : 0.0f;
      }
    }
  }
}

void SetRowScales(const float* rows, size_t n_rows, size_t columns, float* scales) {
  for (size_t r = 0; r < kRoundingRows; ++r) {
    const float magnitude = r < n_rows ? MaxMagnitude(rows + r * columns, columns) : 0.0f;
    scales[r] = std::max(magnitude / kMaxLevelQ8, kMinScale);
  }
}

void StoreQ8(const TileMemory& tile, size_t n_rows, const InputMoments& moments, std::byte* data, std::byte* scales) {
  auto* levels = reinterpret_cast<int8_t*>(data);
  const size_t columns = moments.width;
  for (size_t r = 0; r < n_rows; ++r) {
    reinterpret_cast<float*>(scales)[r] = tile.scales[r];
    for (size_t k = 0; k < columns; ++k) levels[r * columns + moments.column(k)] = tile.levels[k * kRoundingRows + r];
  }
}

void StoreQ4(const TileMemory& tile, size_t n_rows, const InputMoments& moments, size_t block, std::byte* data,
             std::byte* scales) {
  auto* bytes = reinterpret_cast<uint8_t*>(data);
  auto* stored_scales = reinterpret_cast<uint16_t*>(scales);
  const size_t columns = moments.width, n_blocks = columns / block;
  for (size_t r = 0; r < n_rows; ++r) {
    for (size_t k = 0; k < columns; k += 2) {
      const int low = tile.levels[k * kRoundingRows + r] + 8, high = tile.levels[(k + 1) * kRoundingRows + r] + 8;
      bytes[(r * columns + moments.column(k)) / 2] = static_cast<uint8_t>(low | (high << 4));
    }
    for (size_t b = 0; b < n_blocks; ++b) {
      stored_scales[r * n_blocks + moments.column(b * block) / block] = BF16FromF32(tile.scales[b * kRoundingRows + r]);
    }
  }
}

double SquaredSum(const float* x, size_t n) {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

}  // namespace

double CalibratedErrors::RelativeOutputRms() const {
  return sampled_energy > 0.0 ? std::sqrt(sampled_error / sampled_energy) : 0.0;
}

void CalibratedErrors::Add(const CalibratedErrors& other) {
  weights.Add(other.weights);
  output_error += other.output_error;
  sampled_error += other.sampled_error;
  sampled_energy += other.sampled_energy;
}

void InputMoments::Reset(size_t new_width) {
  width = new_width;
  n_rows = 0;
  factored = false;
  matrix.assign(width * width, 0.0f);
}

// Largest inputs first: a block's errors are made up for by the blocks after it, so the last ones keep all of theirs.
void InputMoments::OrderBlocks(ops::ThreadPool& pool) {
  std::vector<double> sizes(order.size());
  for (size_t i = 0; i < width; ++i) sizes[i / block] += matrix[i * width + i];
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return sizes[a] > sizes[b]; });
  std::vector<float> ordered(matrix.size());
  pool.ParallelFor(width, [&](size_t i, size_t) {
    for (size_t j = i; j < width; ++j) {
      const size_t a = column(i), b = column(j);
      ordered[i * width + j] = matrix[std::min(a, b) * width + std::max(a, b)];  // the sums are in the upper triangle
    }
  });
  matrix = std::move(ordered);
}

bool InputMoments::Factor(size_t order_block, float damping, std::span<float> scratch, ops::ThreadPool& pool) {
  LINNET_CHECK(width % order_block == 0);
  factored = true;
  block = order_block;
  order.resize(width / block);
  std::iota(order.begin(), order.end(), 0u);
  double trace = 0.0;
  for (size_t i = 0; i < width; ++i) trace += matrix[i * width + i];
  if (n_rows > 0 && trace > 0.0 && std::isfinite(trace)) {
    OrderBlocks(pool);
    const auto scale = static_cast<float>(1.0 / static_cast<double>(n_rows));
    const auto added = static_cast<float>(damping * trace / static_cast<double>(width * n_rows));
    pool.ParallelFor(width, [&](size_t i, size_t) {
      for (size_t j = i; j < width; ++j) matrix[i * width + j] *= scale;
      matrix[i * width + i] += added;
    });
    if (ops::FactorSecondMoments(matrix.data(), width, scratch, pool)) return true;
  }
  std::fill(matrix.begin(), matrix.end(), 0.0f);
  for (size_t i = 0; i < width; ++i) matrix[i * width + i] = 1.0f;
  return false;
}

Status CalibratedRounding::Quantize(std::span<float> rows, size_t columns, const QuantizeOptions& options,
                                    const InputMoments& moments, std::span<std::byte> data, std::span<std::byte> scales,
                                    CalibratedErrors* errors) {
  LINNET_CHECK(moments.factored && moments.width == columns && IsQuantized(options.dtype));
  LINNET_CHECK(options.dtype != DType::kQ4 || moments.block % options.block_size == 0);
  LINNET_RETURN_IF_ERROR(CheckWeights(rows, options.dtype));
  const bool q4 = options.dtype == DType::kQ4;
  const size_t n_rows = rows.size() / columns, n_tiles = CeilDiv(n_rows, kRoundingRows);
  const ops::RoundingProblem problem = {.factor = moments.matrix.data(),
                                        .width = columns,
                                        .block = q4 ? options.block_size : kColumnsQ8,
                                        .search_scales = q4,
                                        .low = q4 ? -8.0f : -kMaxLevelQ8,
                                        .high = q4 ? 7.0f : kMaxLevelQ8,
                                        .min_scale = kMinScale};
  const size_t tile_floats = TileFloats(columns), row_bytes = data.size() / n_rows, row_scales = scales.size() / n_rows;
  scratch_.resize(tile_floats * pool_.n_threads());
  levels_.resize(columns * kRoundingRows * pool_.n_threads());
  std::vector<CalibratedErrors> tile_errors(n_tiles);
  pool_.ParallelFor(n_tiles, [&](size_t index, size_t thread) {
    const size_t first = index * kRoundingRows, n = std::min(kRoundingRows, n_rows - first);
    float* tile_rows = rows.data() + first * columns;
    if (options.rotation_block > 1) {
      ops::WalshHadamard({tile_rows, columns}, n, columns, options.rotation_block, {tile_rows, columns});
    }
    const TileMemory memory =
        CutMemory(columns, &scratch_[thread * tile_floats], &levels_[thread * columns * kRoundingRows]);
    Transpose(tile_rows, n, moments, memory.weights);
    if (!q4) SetRowScales(tile_rows, n, columns, memory.scales);
    const ops::RoundingTile tile = {.weights = memory.weights,
                                    .errors = memory.errors,
                                    .levels = memory.levels,
                                    .scales = memory.scales,
                                    .scratch = memory.scratch};
    CalibratedErrors& sums = tile_errors[index];
    sums.output_error = ops::RoundTile(problem, tile);
    sums.weights.squared_error = SquaredSum(memory.errors, columns * kRoundingRows);
    sums.weights.squared_weights = SquaredSum(memory.weights, columns * kRoundingRows);
    if (index % kOutputSample == 0) {
      sums.sampled_error = sums.output_error;
      sums.sampled_energy = ops::TileEnergy(problem, tile);
    }
    std::byte* tile_data = data.data() + first * row_bytes;
    std::byte* tile_scales = scales.data() + first * row_scales;
    if (q4) {
      StoreQ4(memory, n, moments, options.block_size, tile_data, tile_scales);
    } else {
      StoreQ8(memory, n, moments, tile_data, tile_scales);
    }
  });
  for (const CalibratedErrors& sums : tile_errors) errors->Add(sums);
  return Status::Ok();
}

Result<double> CalibratedRounding::Error(std::span<float> rows, size_t columns, const QuantizeOptions& options,
                                         const InputMoments* moments) {
  const size_t n_rows = rows.size() / columns;
  LINNET_CHECK(n_rows <= kRoundingRows && IsQuantized(options.dtype));
  const std::array<uint64_t, 2> shape = {n_rows, columns};
  LINNET_ASSIGN_OR_RETURN(const TensorBytes bytes, ComputeTensorBytes(options.dtype, shape, options.block_size));
  std::vector<std::byte> data(bytes.data), scales(bytes.scales);
  CalibratedErrors errors;
  if (moments != nullptr) {
    LINNET_RETURN_IF_ERROR(Quantize(rows, columns, options, *moments, data, scales, &errors));
    return errors.output_error;
  }
  LINNET_RETURN_IF_ERROR(QuantizeRows(rows, columns, options, data, scales, &errors.weights));
  return errors.weights.squared_error;
}

}  // namespace linnet::formats
