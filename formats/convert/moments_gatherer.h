// Gathers second moments of the inputs of a part's matrices while the part runs.
#ifndef LINNET_FORMATS_CONVERT_MOMENTS_GATHERER_H_
#define LINNET_FORMATS_CONVERT_MOMENTS_GATHERER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/part_runner.h"
#include "formats/convert/convert.h"
#include "formats/convert/tensor_plan.h"
#include "formats/quantize/calibrated_rows.h"

namespace linnet::formats {

/// True where the tensor's rounding goes by moments.
bool IsCalibratedForm(const TensorPlan& plan);

class MomentsGatherer {
 public:
  /// Everything outlives the gatherer. `plans` are all tensors in file order.
  MomentsGatherer(const std::vector<TensorPlan>& plans, const CalibrationOptions& options);

  /// Makes room for matrices of plans [begin, end) from group `group` of plan `first` on, in file order: as many as
  /// CalibrationOptions::moments_bytes hold, one at least. The others are forgotten.
  void Choose(size_t begin, size_t first, uint64_t group, size_t end);
  /// What a run of the block [begin, end) fills the room through; `is_head`: the part's only product is the head.
  ProductInputSink sink(bool is_head);
  /// Sums what is waiting.
  void Finish();

  /// Factored moments of one group of plan `index`, and forgets all before them; null where there is no room for them.
  /// Groups come in order. Where a matrix saw too few inputs, rounding to nearest results. block_size: the largest of
  /// q4 that the matrix is rounded with, 0 for q8.
  const InputMoments* Find(size_t index, uint64_t group, uint32_t block_size);
  void Clear() { gathered_.clear(); }

  uint32_t unseen_matrices() const { return unseen_; }

 private:
  // One matrix's moments while they are gathered.
  struct Gathered {
    size_t index = 0;  // of the plan
    uint64_t group = 0;
    InputMoments moments;
    std::vector<float> rows;  // waiting to be summed
    size_t n_rows = 0;
  };

  void Take(Gathered& gathered, const float* rows, size_t n_rows);
  void Flush(Gathered& gathered);

  const std::vector<TensorPlan>& plans_;
  const CalibrationOptions& options_;
  std::vector<Gathered> gathered_;
  std::vector<float> scratch_;
  size_t begin_ = 0;
  bool is_head_ = false;
  uint32_t unseen_ = 0;
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_MOMENTS_GATHERER_H_
