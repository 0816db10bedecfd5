// The tokenizer files of a Hugging Face directory -> TokenizerSpec, chat template, generation defaults.
#ifndef LINNET_FORMATS_HUGGINGFACE_TOKENIZER_JSON_H_
#define LINNET_FORMATS_HUGGINGFACE_TOKENIZER_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/diagnostic.h"
#include "core/base/model_view.h"
#include "core/base/status.h"
#include "core/base/tokenizer_spec.h"

namespace linnet::formats {

/// The bytes of the files that say something about text; absent ones are nullopt. `tokenizer_model` (SentencePiece) is
/// only looked at to say that it is not read when there is no tokenizer.json.
struct HuggingFaceFiles {
  std::optional<std::string_view> tokenizer_json;           // tokenizer.json
  std::optional<std::string_view> tokenizer_config_json;    // tokenizer_config.json
  std::optional<std::string_view> special_tokens_map_json;  // special_tokens_map.json
  std::optional<std::string_view> generation_config_json;   // generation_config.json
  std::optional<std::string_view> config_json;              // config.json: bos_token_id, eos_token_id
  std::optional<std::string_view> chat_template_jinja;      // chat_template.jinja, else chat_template.json's text
  std::optional<std::string_view> tokenizer_model;          // tokenizer.model
  uint32_t vocab_size = 0;                                  // of the model; 0: not known
};

/// Fills `tokenizer` (kind kNone without a tokenizer.json), `chat_template` (empty: none) and `generation`.
/// Precedence: chat_template.jinja before tokenizer_config.json's chat_template (a string, or a list of named ones of
/// which "default" is taken); special tokens of tokenizer_config.json before special_tokens_map.json; ids of
/// generation_config.json before config.json's; the end ids are the union of those and the tokenizer's eos token.
/// Ids outside the model's vocabulary are dropped, as no model produces them; numbers outside the sampler's ranges
/// count as not given.
/// Errors: kInvalidModel (file and key), kUnsupported (an unknown component by its name); never throws.
Status ReadHuggingFaceTokenizer(const HuggingFaceFiles& files, TokenizerSpec* tokenizer, std::string* chat_template,
                                GenerationDefaults* generation, Diagnostic* diagnostic);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_HUGGINGFACE_TOKENIZER_JSON_H_
