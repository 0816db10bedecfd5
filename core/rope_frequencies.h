// Public header. A rotary embedding's frequencies after its scaling.
#ifndef LINNET_CORE_ROPE_FREQUENCIES_H_
#define LINNET_CORE_ROPE_FREQUENCIES_H_

#include <cstddef>
#include <span>

#include "core/base/model_config.h"

namespace linnet {

/// inv_freq[i], radians per position of pair i, for a sequence of `sequence_length` tokens in all. Only dynamic NTK
/// and LongRoPE look at the length; for the others any value gives the same. Shape: inv_freq [spec.rope_dim / 2].
/// Numerics: f64 inside, rounded once; transformers computes in f32, which differs by an ulp at most.
/// Sources: transformers' rope_utils semantics; arXiv:2306.15595 (linear), arXiv:2309.00071 (YaRN, NTK),
/// arXiv:2402.13753 (LongRoPE), the Llama 3.1 reference code.
void ComputeRopeFrequencies(const RopeSpec& spec, size_t sequence_length, std::span<float> inv_freq);

/// True where the frequencies depend on the sequence's length.
bool RopeDependsOnLength(const RopeSpec& spec);

}  // namespace linnet

#endif  // LINNET_CORE_ROPE_FREQUENCIES_H_
