// Error-compensated rounding of whole matrices (GPTQ): by the second moments of the layer's inputs.
#ifndef LINNET_FORMATS_QUANTIZE_CALIBRATED_ROWS_H_
#define LINNET_FORMATS_QUANTIZE_CALIBRATED_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "formats/quantize/quantize.h"
#include "ops/thread_pool.h"

namespace linnet::formats {

/// Rows that are best given to CalibratedRounding at once: tiles for every thread, several each to even them out.
constexpr uint64_t kCalibratedRows = 512;

/// Second moments of a layer's inputs in the coordinates of its stored weights, and later their factor. Move-only in
/// spirit: it is as large as width * width floats.
struct InputMoments {
  size_t width = 0;
  uint64_t n_rows = 0;          // inputs that were summed
  std::vector<float> matrix;    // [width, width]: sums in the upper triangle; after Factor as ops/second_moments.h says
  bool factored = false;        // what follows, and the matrix then, are in the order of rounding
  size_t block = 0;             // columns that stay side by side
  std::vector<uint32_t> order;  // [width / block]: the block that is rounded i-th

  /// Zeros. Errors: kOutOfMemory does not exist here: the caller has bounded width.
  void Reset(size_t new_width);
  /// Divides by the count, brings blocks of `order_block` columns (it divides the width) into the order in which they
  /// are rounded, adds the damping and factors. Where the inputs say nothing (none, all zeros, not finite) the result
  /// is that of independent inputs of one size: rounding then goes by the weights alone; returns false.
  bool Factor(size_t order_block, float damping, std::span<float> scratch, ops::ThreadPool& pool);
  /// Once factored: the column that is rounded in this place.
  size_t column(size_t place) const { return order[place / block] * block + place % block; }

 private:
  void OrderBlocks(ops::ThreadPool& pool);
};

/// Sums over rows. The output's are means over the inputs, and are taken over every kOutputSample-th tile only.
struct CalibratedErrors {
  ErrorSums weights;
  double output_error = 0.0;    // sum e H e^T: squared error of the outputs
  double sampled_error = 0.0;   // the same over the sampled tiles
  double sampled_energy = 0.0;  // sum w H w^T over them: squared outputs

  /// Error of the outputs relative to the outputs.
  double RelativeOutputRms() const;
  void Add(const CalibratedErrors& other);
};

/// Rounds rows of weights to q4 or q8. Shapes and errors as QuantizeRows, which this takes the place of. `moments` are
/// factored, of the inputs as `options` rotates them, in order of blocks that q4's block size divides. Levels and
/// scales: as the type's, but scales of q4 are those with the smallest weighted error. The bits depend neither on the
/// pool nor on how rows are cut into calls of multiples of ops::kRoundingRows.
class CalibratedRounding {
 public:
  explicit CalibratedRounding(ops::ThreadPool& pool) : pool_(pool) {}

  Status Quantize(std::span<float> rows, size_t columns, const QuantizeOptions& options, const InputMoments& moments,
                  std::span<std::byte> data, std::span<std::byte> scales, CalibratedErrors* errors);

  /// The squared error alone, of at most ops::kRoundingRows rows, which are overwritten: of the outputs (sum e H e^T)
  /// where there are moments, as Quantize rounds them; else of the weights, as QuantizeRows does.
  Result<double> Error(std::span<float> rows, size_t columns, const QuantizeOptions& options,
                       const InputMoments* moments);

 private:
  ops::ThreadPool& pool_;
  std::vector<float> scratch_;  // of all threads
  std::vector<int8_t> levels_;
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_QUANTIZE_CALIBRATED_ROWS_H_
