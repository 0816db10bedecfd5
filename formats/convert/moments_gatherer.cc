#include "formats/convert/moments_gatherer.h"

#include <algorithm>

#include "ops/second_moments.h"
#include "ops/walsh_hadamard.h"

namespace linnet::formats {
namespace {

// Rows that wait to be summed: enough to make the passes over the moments rare, and at most a quarter of their size.
constexpr size_t kMaxWaitingRows = 512, kMinWaitingRows = 32;

size_t WaitingRows(size_t width) { return std::clamp(width / 4, kMinWaitingRows, kMaxWaitingRows); }

// A matrix that saw fewer inputs than this (an expert that the text hardly chose) is rounded to nearest: so few say
// more about the text than about the layer.
constexpr uint64_t kMinInputs = 64;

}  // namespace

bool IsCalibratedForm(const TensorPlan& plan) { return HasChoice(plan) && IsLinearRole(plan.spec.role); }

MomentsGatherer::MomentsGatherer(const std::vector<TensorPlan>& plans, const CalibrationOptions& options)
    : plans_(plans), options_(options), scratch_(ops::SecondMomentsScratchFloats(options.pool->n_threads())) {}

uint64_t GroupStride(const TensorPlan& plan, uint64_t max_groups) {
  return max_groups >= plan.groups() ? 1 : (plan.groups() + max_groups - 1) / max_groups;
}

void MomentsGatherer::Choose(size_t begin, size_t first, uint64_t group, size_t end, uint64_t max_groups) {
  gathered_.clear();
  begin_ = begin;
  uint64_t bytes = 0;
  for (size_t i = first; i < end; ++i) {
    if (!IsCalibratedForm(plans_[i])) continue;
    const uint64_t width = plans_[i].columns(), size = width * width * sizeof(float);
    for (uint64_t g = i == first ? group : 0; g < plans_[i].groups(); g += GroupStride(plans_[i], max_groups)) {
      if (!gathered_.empty() && bytes + size > options_.moments_bytes) return;
      bytes += size;
      gathered_.emplace_back();
      gathered_.back().index = i;
      gathered_.back().group = g;
      gathered_.back().moments.Reset(width);
    }
  }
}

ProductInputSink MomentsGatherer::sink(bool is_head, size_t exact_window) {
  is_head_ = is_head;
  exact_window_ = exact_window;
  const auto call = [](void* context, size_t tensor, uint32_t group, const float* rows, size_t n_rows,
                       size_t stream_row) {
    auto& self = *static_cast<MomentsGatherer*>(context);
    for (Gathered& gathered : self.gathered_) {
      const bool same = gathered.index - self.begin_ == tensor && gathered.group == group;
      if (!same && !self.is_head_) continue;
      if (self.exact_window_ > 0) {
        self.TakePaired(gathered, rows, n_rows, stream_row);
      } else {
        self.Take(gathered, rows, n_rows, nullptr);
      }
    }
  };
  return {call, this};
}

// Even windows are exact ones; an odd one's rows go with those of the same places in the window before.
void MomentsGatherer::TakePaired(Gathered& gathered, const float* rows, size_t n_rows, size_t stream_row) {
  const TensorRole role = plans_[gathered.index].spec.role;
  const bool is_expert = role == TensorRole::kExpertUp || role == TensorRole::kExpertDown;
  const bool is_exact = stream_row / exact_window_ % 2 == 0;
  const size_t width = gathered.moments.width, place = stream_row % exact_window_;
  if (is_exact && is_expert) return;
  if (is_exact) {
    gathered.exact.resize(exact_window_ * width);
    std::copy_n(rows, n_rows * width, gathered.exact.data() + place * width);
    return;
  }
  Take(gathered, rows, n_rows, is_expert ? nullptr : gathered.exact.data() + place * width);
}

void MomentsGatherer::Take(Gathered& gathered, const float* rows, size_t n_rows, const float* exact) {
  const size_t width = gathered.moments.width, capacity = WaitingRows(width);
  gathered.rows.resize(capacity * width);
  if (exact != nullptr) {
    gathered.deltas.resize(capacity * width);
    gathered.moments.cross.resize(width * width);
  }
  while (n_rows > 0) {
    const size_t n = std::min(n_rows, capacity - gathered.n_rows), place = gathered.n_rows * width;
    std::copy_n(rows, n * width, gathered.rows.data() + place);
    if (exact != nullptr) {
      for (size_t i = 0; i < n * width; ++i) gathered.deltas[place + i] = exact[i] - rows[i];
      exact += n * width;
    }
    gathered.n_rows += n;
    rows += n * width;
    n_rows -= n;
    if (gathered.n_rows == capacity) Flush(gathered);
  }
}

void MomentsGatherer::Rotate(const Gathered& gathered, std::vector<float>& rows) {
  const size_t width = gathered.moments.width;
  const uint32_t rotation = plans_[gathered.index].spec.rotation_block;
  if (rotation <= 1) return;
  options_.pool->ParallelFor(gathered.n_rows, [&](size_t r, size_t) {
    float* row = rows.data() + r * width;
    ops::WalshHadamard({row, width}, 1, width, rotation, {row, width});
  });
}

void MomentsGatherer::Flush(Gathered& gathered) {
  const size_t width = gathered.moments.width, n = gathered.n_rows;
  if (n == 0) return;
  const ops::ConstRows inputs = {gathered.rows.data(), width};
  Rotate(gathered, gathered.rows);
  ops::AddSecondMoments(inputs, n, width, gathered.moments.matrix.data(), scratch_, *options_.pool);
  if (!gathered.deltas.empty()) {
    Rotate(gathered, gathered.deltas);
    ops::AddCrossMoments({gathered.deltas.data(), width}, inputs, n, width, gathered.moments.cross.data(), scratch_,
                         *options_.pool);
  }
  gathered.moments.n_rows += n;
  gathered.n_rows = 0;
}

void MomentsGatherer::Finish() {
  for (Gathered& gathered : gathered_) {
    Flush(gathered);
    gathered.rows = gathered.deltas = gathered.exact = {};
  }
}

const InputMoments* MomentsGatherer::Find(size_t index, uint64_t group) {
  const auto found = std::find_if(gathered_.begin(), gathered_.end(), [&](const Gathered& gathered) {
    return gathered.index == index && gathered.group == group;
  });
  if (found == gathered_.end()) return nullptr;
  gathered_.erase(gathered_.begin(), found);
  InputMoments& moments = gathered_.front().moments;
  if (!moments.factored) {
    if (moments.n_rows < kMinInputs) moments.n_rows = 0;
    moments.correction = options_.correction;
    if (!moments.Factor(options_.damping, scratch_, *options_.pool)) ++unseen_;
  }
  return &moments;
}

}  // namespace linnet::formats
