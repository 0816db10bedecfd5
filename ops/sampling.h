// Public header. What sampling needs of a row of logits: one scan, and exponentials.
#ifndef LINNET_OPS_SAMPLING_H_
#define LINNET_OPS_SAMPLING_H_

#include <cstddef>
#include <span>

namespace linnet::ops {

struct LogitScan {
  size_t argmax = 0;       // lowest index of the greatest value
  float max = 0.0f;        // -inf where every value is -inf
  bool all_valid = false;  // no NaN and no +inf; argmax and max mean nothing otherwise
};

/// Reads logits [n], n >= 1, once. -inf counts as valid: a token that can never be chosen.
LogitScan ScanLogits(std::span<const float> logits);

/// x[i] = exp((x[i] - max) * inverse_temperature), in place; returns the sum. max is at least every x[i] and above
/// -inf; inverse_temperature > 0 and finite. Numerics: f32 values, f64 sum, in an order that depends on the size only.
double ExpOfLogits(std::span<float> x, float max, float inverse_temperature);

}  // namespace linnet::ops

#endif  // LINNET_OPS_SAMPLING_H_
