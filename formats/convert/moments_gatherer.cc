#include "formats/convert/moments_gatherer.h"

#include <algorithm>

#include "ops/second_moments.h"
#include "ops/walsh_hadamard.h"

namespace linnet::formats {
namespace {

// Rows that wait to be summed: enough to make the passes over the moments rare, and at most a quarter of their size.
constexpr size_t kMaxWaitingRows = 512, kMinWaitingRows = 32;

size_t WaitingRows(size_t width) { return std::clamp(width / 4, kMinWaitingRows, kMaxWaitingRows); }

// Columns that stay side by side where no scale asks for it.
constexpr size_t kAnyBlock = 32;

// A matrix that saw fewer inputs than this (an expert that the text hardly chose) is rounded to nearest: so few say
// more about the text than about the layer.
constexpr uint64_t kMinInputs = 64;

// The rows of a tied model's table are looked up too, where their errors count as they are: more of the unit matrix.
// README.md has the measurement.
constexpr float kTableDamping = 0.1f;

}  // namespace

bool IsCalibratedForm(const TensorPlan& plan) {
  // The table of a tied model is by far its largest tensor, and q8 costs it next to nothing.
  const bool is_table = plan.spec.role == TensorRole::kTokenEmbedding;
  return HasChoice(plan) && plan.is_multiplied && !(is_table && plan.spec.dtype == DType::kQ8);
}

MomentsGatherer::MomentsGatherer(const std::vector<TensorPlan>& plans, const CalibrationOptions& options)
    : plans_(plans), options_(options), scratch_(ops::SecondMomentsScratchFloats(options.pool->n_threads())) {}

void MomentsGatherer::Choose(size_t begin, size_t first, uint64_t group, size_t end) {
  gathered_.clear();
  begin_ = begin;
  uint64_t bytes = 0;
  for (size_t i = first; i < end; ++i) {
    if (!IsCalibratedForm(plans_[i])) continue;
    const uint64_t width = plans_[i].columns(), size = width * width * sizeof(float);
    for (uint64_t g = i == first ? group : 0; g < plans_[i].groups(); ++g) {
      if (!gathered_.empty() && bytes + size > options_.moments_bytes) return;
      bytes += size;
      gathered_.emplace_back();
      gathered_.back().index = i;
      gathered_.back().group = g;
      gathered_.back().moments.Reset(width);
    }
  }
}

ProductInputSink MomentsGatherer::sink(bool is_head) {
  is_head_ = is_head;
  const auto call = [](void* context, size_t tensor, uint32_t group, const float* rows, size_t n_rows) {
    auto& self = *static_cast<MomentsGatherer*>(context);
    for (Gathered& gathered : self.gathered_) {
      const bool same = gathered.index - self.begin_ == tensor && gathered.group == group;
      if (same || self.is_head_) self.Take(gathered, rows, n_rows);
    }
  };
  return {call, this};
}

void MomentsGatherer::Take(Gathered& gathered, const float* rows, size_t n_rows) {
  const size_t width = gathered.moments.width, capacity = WaitingRows(width);
  gathered.rows.resize(capacity * width);
  while (n_rows > 0) {
    const size_t n = std::min(n_rows, capacity - gathered.n_rows);
    std::copy_n(rows, n * width, gathered.rows.data() + gathered.n_rows * width);
    gathered.n_rows += n;
    rows += n * width;
    n_rows -= n;
    if (gathered.n_rows == capacity) Flush(gathered);
  }
}

void MomentsGatherer::Flush(Gathered& gathered) {
  const size_t width = gathered.moments.width, n = gathered.n_rows;
  if (n == 0) return;
  const uint32_t rotation = plans_[gathered.index].spec.rotation_block;
  if (rotation > 1) {
    options_.pool->ParallelFor(n, [&](size_t r, size_t) {
      float* row = gathered.rows.data() + r * width;
      ops::WalshHadamard({row, width}, 1, width, rotation, {row, width});
    });
  }
  ops::AddSecondMoments({gathered.rows.data(), width}, n, width, gathered.moments.matrix.data(), scratch_,
                        *options_.pool);
  gathered.moments.n_rows += n;
  gathered.n_rows = 0;
}

void MomentsGatherer::Finish() {
  for (Gathered& gathered : gathered_) {
    Flush(gathered);
    gathered.rows = {};
  }
}

const InputMoments* MomentsGatherer::Find(size_t index, uint64_t group, uint32_t block_size) {
  const auto found = std::find_if(gathered_.begin(), gathered_.end(), [&](const Gathered& gathered) {
    return gathered.index == index && gathered.group == group;
  });
  if (found == gathered_.end()) return nullptr;
  gathered_.erase(gathered_.begin(), found);
  InputMoments& moments = gathered_.front().moments;
  if (!moments.factored) {
    if (moments.n_rows < kMinInputs) moments.n_rows = 0;
    const size_t any_block = moments.width % kAnyBlock == 0 ? kAnyBlock : moments.width;
    const size_t order_block = block_size > 0 ? block_size : any_block;
    const bool is_table = plans_[index].spec.role == TensorRole::kTokenEmbedding;
    const float damping = is_table ? std::max(kTableDamping, options_.damping) : options_.damping;
    if (!moments.Factor(order_block, damping, scratch_, *options_.pool)) ++unseen_;
  }
  return &moments;
}

}  // namespace linnet::formats
