#include "tests/support/attention_harness.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace linnet::testing {

namespace {

constexpr float kGuard = 12345.5f;
constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuardByte{0xA5};

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

// Exactly `bytes` usable bytes, aligned to 64, all 0xFF (NaN as f32 and as f16), with a guard behind.
class Buffer {
 public:
  explicit Buffer(uint64_t bytes) : bytes_(bytes) {
    const size_t rounded = (bytes + kGuardBytes + 63) / 64 * 64;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(64, rounded)));
    std::memset(data_.get(), 0xFF, bytes);
    std::memset(data_.get() + bytes, static_cast<int>(kGuardByte), kGuardBytes);
  }
  std::byte* data() const { return data_.get(); }
  void Poison() { std::memset(data_.get(), 0xFF, bytes_); }
  bool intact() const {
    return std::all_of(data_.get() + bytes_, data_.get() + bytes_ + kGuardBytes,
                       [](std::byte b) { return b == kGuardByte; });
  }

 private:
  uint64_t bytes_;
  std::unique_ptr<std::byte, FreeDeleter> data_;
};

void RunTasks(const ops::AttentionArgs& args, bool reverse, Buffer& scratch, const Buffer& partials) {
  const size_t n_tasks = ops::AttentionTaskCount(args);
  for (size_t i = 0; i < n_tasks; ++i) {
    scratch.Poison();
    ops::RunAttentionTask(args, reverse ? n_tasks - 1 - i : i, scratch.data(), partials.data());
  }
  const size_t n_merges = ops::AttentionMergeTaskCount(args);
  for (size_t i = 0; i < n_merges; ++i) {
    ops::RunAttentionMergeTask(args, reverse ? n_merges - 1 - i : i, partials.data());
  }
}

}  // namespace

RunResult RunAttention(const AttentionInputs& in, const ops::AttentionOptions& options, const RunOptions& run) {
  const AttentionShape& shape = in.shape;
  const uint32_t largest_chunk = std::max(run.chunk, run.first_chunk);
  const uint32_t capacity =
      run.capacity != 0 ? run.capacity : ops::KvCapacity(options.window, in.n_tokens, largest_chunk);
  const ops::KvLayout layout =
      ops::MakeKvLayout({run.type, shape.n_kv_heads, shape.head_dim, shape.value_dim, capacity, shape.latent});
  Buffer cache(layout.bytes), scratch(ops::AttentionThreadScratchBytes(layout));
  Buffer partials(ops::AttentionPartialBytes(layout, shape.n_heads));

  // Outputs stand apart, so that a write past any of them is seen; one float off any vector's alignment.
  const size_t head_stride = shape.value_dim + 3, token_stride = shape.n_heads * head_stride + 5;
  std::vector<float> padded(1 + in.n_tokens * token_stride, kGuard);
  const size_t k_stride = size_t{shape.n_kv_heads} * shape.head_dim;
  const size_t v_stride = size_t{shape.n_kv_heads} * shape.value_dim;
  const size_t q_stride = size_t{shape.n_heads} * shape.head_dim;
  for (uint32_t pos = 0, n = 0; pos < in.n_tokens; pos += n) {
    n = std::min(pos == 0 && run.first_chunk != 0 ? run.first_chunk : run.chunk, in.n_tokens - pos);
    const float* v = shape.latent ? nullptr : in.v.data() + pos * v_stride;
    ops::StoreKv({&layout, cache.data(), pos, n, in.k.data() + pos * k_stride, k_stride, v, v_stride});
    const ops::AttentionArgs args = {&layout,
                                     cache.data(),
                                     shape.n_heads,
                                     pos,
                                     n,
                                     in.q.data() + pos * q_stride,
                                     q_stride,
                                     shape.head_dim,
                                     padded.data() + 1 + pos * token_stride,
                                     token_stride,
                                     head_stride,
                                     options};
    RunTasks(args, run.reverse_tasks, scratch, partials);
  }

  RunResult result;
  result.guards_intact = cache.intact() && scratch.intact() && partials.intact() && padded[0] == kGuard;
  for (uint32_t t = 0; t < in.n_tokens; ++t) {
    const float* row = padded.data() + 1 + t * token_stride;
    for (uint32_t h = 0; h < shape.n_heads; ++h, row += head_stride) {
      result.out.insert(result.out.end(), row, row + shape.value_dim);
      for (size_t i = shape.value_dim; i < head_stride; ++i) result.guards_intact &= row[i] == kGuard;
    }
    for (size_t i = 0; i < 5; ++i) result.guards_intact &= row[i] == kGuard;
  }
  return result;
}

std::string CompareWithReference(const AttentionInputs& in, const ops::AttentionOptions& options,
                                 const std::vector<float>& out, double stored_rounding, uint32_t stride) {
  const AttentionShape& shape = in.shape;
  for (uint32_t i = 0; i < in.n_tokens; i += stride) {
    const uint32_t pos = in.n_tokens - 1 - i;
    for (uint32_t head = 0; head < shape.n_heads; ++head) {
      const ReferenceRow row = ReferenceAttention(in, options, pos, head, stored_rounding);
      const float* found = &out[(size_t{pos} * shape.n_heads + head) * shape.value_dim];
      for (uint32_t d = 0; d < shape.value_dim; ++d) {
        if (std::abs(found[d] - row.out[d]) <= row.bound[d]) continue;  // false for NaN
        char text[200];
        std::snprintf(text, sizeof text, "position %u head %u element %u: expected %.9g within %.3g, found %.9g", pos,
                      head, d, row.out[d], row.bound[d], double{found[d]});
        return text;
      }
    }
  }
  return "";
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

float RoundToHalf(float value) {
  if (value == 0.0f) return value;
  int exponent = 0;
  std::frexp(value, &exponent);                            // value = m * 2^exponent, 0.5 <= |m| < 1
  const int step = std::max(exponent - 11, -24);           // exponent of the last of 11 bits; subnormals below 2^-14
  const double scaled = std::ldexp(double{value}, -step);  // exact
  return static_cast<float>(std::clamp(std::ldexp(std::nearbyint(scaled), step), -65504.0, 65504.0));
}

}  // namespace linnet::testing
