// GGUF's tokenizer.ggml.* metadata -> TokenizerSpec and generation defaults.
#ifndef LINNET_FORMATS_GGUF_TOKENIZER_METADATA_H_
#define LINNET_FORMATS_GGUF_TOKENIZER_METADATA_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/base/diagnostic.h"
#include "core/base/model_view.h"
#include "core/base/status.h"
#include "core/base/tokenizer_spec.h"

namespace linnet::formats {

/// The metadata as the file has it; texts and arrays point into the file's bytes or the parser's tables. Absent keys
/// keep the defaults below. The caller has checked types (array of string, of f32, of i32), nothing else.
struct GgufTokenizerMetadata {
  std::string_view model;                    // tokenizer.ggml.model: "gpt2", "llama"; empty: no tokenizer
  std::string_view pre;                      // tokenizer.ggml.pre; may be empty
  std::span<const std::string_view> tokens;  // tokenizer.ggml.tokens
  std::span<const float> scores;             // tokenizer.ggml.scores; empty: none
  std::span<const int32_t> token_types;      // tokenizer.ggml.token_type; empty: none
  std::span<const std::string_view> merges;  // tokenizer.ggml.merges; empty: none
  std::optional<bool> add_bos;               // tokenizer.ggml.add_bos_token
  std::optional<bool> add_eos;               // tokenizer.ggml.add_eos_token
  std::optional<bool> add_space_prefix;      // tokenizer.ggml.add_space_prefix
  std::optional<int64_t> bos_id;             // tokenizer.ggml.bos_token_id
  std::optional<int64_t> eos_id;             // tokenizer.ggml.eos_token_id
  std::optional<int64_t> eot_id;             // tokenizer.ggml.eot_token_id
  std::optional<int64_t> eom_id;             // tokenizer.ggml.eom_token_id
  std::optional<int64_t> unk_id;             // tokenizer.ggml.unknown_token_id
  std::optional<int64_t> pad_id;             // tokenizer.ggml.padding_token_id
};

/// Fills `tokenizer` (kind kNone where model is empty or "no_vocab") and `generation` (bos, end ids, whether bos is put
/// in front). Errors: kInvalidModel (ids out of range, arrays of different lengths, a merge of unknown tokens),
/// kUnsupported (an unknown model or pre-tokenizer, by its name).
Status TokenizerFromGgufMetadata(const GgufTokenizerMetadata& metadata, TokenizerSpec* tokenizer,
                                 GenerationDefaults* generation, Diagnostic* diagnostic);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_GGUF_TOKENIZER_METADATA_H_
