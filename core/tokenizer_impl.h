// What a Tokenizer holds. Internal to core.
#ifndef LINNET_CORE_TOKENIZER_IMPL_H_
#define LINNET_CORE_TOKENIZER_IMPL_H_

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/tokenizer_view.h"
#include "core/tokenizer.h"
#include "core/tokenizer_added.h"
#include "core/tokenizer_bpe.h"
#include "core/tokenizer_normalizer.h"
#include "core/tokenizer_pieces.h"

namespace linnet {

struct Tokenizer::Impl {
  Impl(TokenizerView checked_view, TokenizerNormalizer made_normalizer, TokenizerPreTokenizer made_pre_tokenizer)
      : view(std::move(checked_view)),
        normalizer(std::move(made_normalizer)),
        pre_tokenizer(std::move(made_pre_tokenizer)),
        bpe(view) {}

  TokenizerView view;
  TokenizerNormalizer normalizer;
  TokenizerPreTokenizer pre_tokenizer;
  TokenizerBpe bpe;
  AddedTokenSet raw_tokens;         // searched in the text as given
  AddedTokenSet normalized_tokens;  // searched in normalized text
  // What the normalizer makes of normalized_tokens; they are also decoded to it, since the text that they were found in
  // was normalized (a space before them may be part of it). By id; empty where there is no normalizer.
  std::vector<std::pair<int32_t, std::string>> normalized_texts;

  /// The text that stands for `id`, in range, before the decoder's steps.
  std::string_view DecodedText(int32_t id) const {
    const auto it = std::lower_bound(normalized_texts.begin(), normalized_texts.end(), id,
                                     [](const auto& entry, int32_t value) { return entry.first < value; });
    return it != normalized_texts.end() && it->first == id ? std::string_view(it->second) : view.TokenText(id);
  }

  // The decoder, split where it stops to look at single tokens.
  std::vector<DecoderStep> token_steps;
  std::string strip_text;  // one code point; up to strip_count of it are dropped from the start of a text
  uint32_t strip_count = 0;
};

}  // namespace linnet

#endif  // LINNET_CORE_TOKENIZER_IMPL_H_
