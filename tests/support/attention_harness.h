// Runs a sequence through a KV cache and attention as a session does: chunk after chunk, task by task.
#ifndef LINNET_TESTS_SUPPORT_ATTENTION_HARNESS_H_
#define LINNET_TESTS_SUPPORT_ATTENTION_HARNESS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/attention_reference.h"

namespace linnet::testing {

struct RunOptions {
  ops::KvType type = ops::KvType::kF32;
  uint32_t chunk = 1;          // tokens per call; the last call takes the rest
  uint32_t first_chunk = 0;    // tokens of the first call, where not 0
  uint32_t capacity = 0;       // 0: KvCapacity for the window, the sequence and the chunk
  bool reverse_tasks = false;  // tasks run in reverse order, each with scratch full of NaN
};

/// Output [n_tokens][n_heads][value_dim]. Cache and scratch start as NaN bytes. Guards around and between all outputs
/// and after each buffer are checked: `guards_intact` is cleared when one was overwritten.
struct RunResult {
  std::vector<float> out;
  bool guards_intact = true;
};
RunResult RunAttention(const AttentionInputs& inputs, const ops::AttentionOptions& options, const RunOptions& run);

/// The first output that differs from the f64 reference by more than its bound, as text; empty: none.
/// Every `stride`-th position is checked, and the last.
std::string CompareWithReference(const AttentionInputs& inputs, const ops::AttentionOptions& options,
                                 const std::vector<float>& out, double stored_rounding, uint32_t stride = 1);

/// True where a and b are the same bits.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

/// Nearest f16 value, as f32.
float RoundToHalf(float value);

}  // namespace linnet::testing

#endif  // LINNET_TESTS_SUPPORT_ATTENTION_HARNESS_H_
