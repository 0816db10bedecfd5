#include "core/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace linnet {
namespace {

double Unscaled(double theta, size_t pair, double rope_dim) {
  return 1.0 / std::pow(theta, 2.0 * static_cast<double>(pair) / rope_dim);
}

// The base grows once the sequence is longer than what the model was trained for.
double DynamicNtkTheta(const RopeSpec& spec, size_t sequence_length) {
  const double original = spec.original_context_length;
  const double length = std::max(static_cast<double>(sequence_length), original);
  const double dim = spec.rope_dim;
  const double growth = spec.factor * length / original - (spec.factor - 1.0);
  return dim > 2 ? spec.theta * std::pow(growth, dim / (dim - 2.0)) : spec.theta;
}

// YaRN: the pair whose wavelength makes `rotations` turns within the original context.
double CorrectionPair(const RopeSpec& spec, double rotations) {
  const double original = spec.original_context_length;
  return spec.rope_dim * std::log(original / (rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(spec.theta));
}

struct Ramp {
  double low = 0.0, high = 1.0;
  // 0 up to `low`, 1 from `high` on.
  double at(size_t pair) const { return std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0); }
};

Ramp YarnRamp(const RopeSpec& spec) {
  double low = CorrectionPair(spec, spec.beta_fast), high = CorrectionPair(spec, spec.beta_slow);
  if (spec.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(spec.rope_dim) - 1.0);
  if (low == high) high += 0.001;
  return {low, high};
}

double Llama3Scaled(const RopeSpec& spec, double frequency) {
  const double original = spec.original_context_length;
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength > original / spec.low_freq_factor) return frequency / spec.factor;
  if (wavelength < original / spec.high_freq_factor) return frequency;
  const double smooth = (original / wavelength - spec.low_freq_factor) / (spec.high_freq_factor - spec.low_freq_factor);
  return (1.0 - smooth) * frequency / spec.factor + smooth * frequency;
}

}  // namespace

bool RopeDependsOnLength(const RopeSpec& spec) {
  return spec.scaling == RopeScaling::kDynamicNtk || spec.scaling == RopeScaling::kLongRope;
}

void ComputeRopeFrequencies(const RopeSpec& spec, size_t sequence_length, std::span<float> inv_freq) {
  const double theta = spec.scaling == RopeScaling::kDynamicNtk ? DynamicNtkTheta(spec, sequence_length) : spec.theta;
  const bool is_long = sequence_length > spec.original_context_length;
  const Ramp ramp = spec.scaling == RopeScaling::kYarn ? YarnRamp(spec) : Ramp{};
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    double frequency = Unscaled(theta, i, spec.rope_dim);
    switch (spec.scaling) {
      case RopeScaling::kNone:
      case RopeScaling::kDynamicNtk:
        break;
      case RopeScaling::kLinear:
        frequency /= spec.factor;
        break;
      case RopeScaling::kYarn:
        frequency = frequency / spec.factor * ramp.at(i) + frequency * (1.0 - ramp.at(i));
        break;
      case RopeScaling::kLlama3:
        frequency = Llama3Scaled(spec, frequency);
        break;
      case RopeScaling::kLongRope:
        frequency /= is_long ? spec.long_factors[i] : spec.short_factors[i];
        break;
    }
    inv_freq[i] = static_cast<float>(frequency);
  }
}

}  // namespace linnet
