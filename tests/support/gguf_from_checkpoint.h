// Writes a checkpoint's weights as the GGUF file that llama.cpp's converter would have made of it.
#ifndef LINNET_TESTS_SUPPORT_GGUF_FROM_CHECKPOINT_H_
#define LINNET_TESTS_SUPPORT_GGUF_FROM_CHECKPOINT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "tests/support/gguf_writer.h"

namespace linnet::test {

struct GgufVariant {
  bool absorbed_latent = true;     // MLA as attn_k_b and attn_v_b (files since 2025), else as attn_kv_b
  bool one_tensor_experts = true;  // ffn_up_exps, else a tensor for each expert (early 2024)
};

/// All tensors as F32, under llama.cpp's names, with q and k permuted and 1 added to gains where its converter does so
/// for `architecture`; metadata as it writes it, and keys of other writers (attention.scale,
/// attention.sliding_window_pattern, ...) where the golden's config needs them.
std::vector<std::byte> GgufFromCheckpoint(const formats::Checkpoint& source, const std::string& architecture,
                                          const GgufVariant& variant = {});

}  // namespace linnet::test

#endif  // LINNET_TESTS_SUPPORT_GGUF_FROM_CHECKPOINT_H_
