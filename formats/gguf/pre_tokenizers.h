// What the names in tokenizer.ggml.pre mean. Internal to formats/gguf.
#ifndef LINNET_FORMATS_GGUF_PRE_TOKENIZERS_H_
#define LINNET_FORMATS_GGUF_PRE_TOKENIZERS_H_

#include <span>
#include <string_view>

namespace linnet::formats {

/// A byte-level pre-tokenizer: the text is cut at the matches of each pattern in turn, every match a piece of its own.
struct GgufPreTokenizer {
  std::span<const std::string_view> names;
  std::span<const std::string_view> patterns;
  bool nfc = false;            // the model's own tokenizer normalizes to NFC, which GGUF does not say
  bool ignore_merges = false;  // a piece that is a token is taken whole
  bool add_bos = false;        // where tokenizer.ggml.add_bos_token is absent
};

/// The entry with this name, or null.
const GgufPreTokenizer* FindGgufPreTokenizer(std::string_view name);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_GGUF_PRE_TOKENIZERS_H_
