// The goldens that GGUF has an architecture for.
#ifndef LINNET_TESTS_SUPPORT_GGUF_GOLDENS_H_
#define LINNET_TESTS_SUPPORT_GGUF_GOLDENS_H_

#include "tests/support/gguf_from_checkpoint.h"

namespace linnet::test {

/// A golden and the GGUF architecture that its weights are written under.
struct GgufGolden {
  const char* folder;
  const char* architecture;
  GgufVariant variant = {};
};

inline constexpr GgufGolden kGgufGoldens[] = {
    {"llama", "llama"},
    {"llama_rope_llama3", "llama"},
    {"llama_rope_linear", "llama"},
    {"llama_rope_yarn", "llama"},
    {"llama_mqa", "llama"},
    {"llama_mha_bias", "llama"},
    {"llama_tied", "llama"},
    {"llama_bf16", "llama"},
    {"mistral", "llama"},
    {"mixtral", "llama"},
    {"mixtral", "llama", {.one_tensor_experts = false}},
    {"smollm3", "smollm3"},
    {"granite", "granite"},
    {"qwen2", "qwen2"},
    {"qwen2_sliding", "qwen2"},
    {"qwen2_moe", "qwen2moe"},
    {"qwen3", "qwen3"},
    {"qwen3_sharded", "qwen3"},
    {"qwen3_moe", "qwen3moe"},
    {"phi3", "phi3"},
    {"phi3_longrope_long", "phi3"},
    {"phi3_longrope_short", "phi3"},
    {"olmo2", "olmo2"},
    {"gemma", "gemma"},
    {"gemma2", "gemma2"},
    {"gemma3", "gemma3"},
    {"gemma3_ropescale", "gemma3"},
    {"gpt2", "gpt2"},
    {"gpt_neox", "gptneox"},
    {"gpt_neox_seq", "gptneox"},
    {"falcon", "falcon"},
    {"falcon_new", "falcon"},
    {"starcoder2", "starcoder2"},
    {"stablelm", "stablelm"},
    {"stablelm_qknorm", "stablelm"},
    {"deepseek_v2", "deepseek2"},
    {"deepseek_v2_lite", "deepseek2"},
    {"deepseek_v2_lite_yarn", "deepseek2"},
    {"deepseek_v3", "deepseek2"},
    {"deepseek_v3_yarn", "deepseek2"},
    {"deepseek_v2", "deepseek2", {.absorbed_latent = false}},
    {"gpt_oss", "gpt-oss"},
};

}  // namespace linnet::test

#endif  // LINNET_TESTS_SUPPORT_GGUF_GOLDENS_H_
