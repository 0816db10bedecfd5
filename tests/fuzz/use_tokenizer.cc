#include "tests/fuzz/use_tokenizer.h"

#include <string>
#include <vector>

#include "core/tokenizer.h"
#include "formats/linnet/tokenizer_section.h"
#include "tests/fuzz/fuzz.h"

namespace linnet::fuzz {
namespace {

void DecodeBothWays(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  for (const bool skip_special : {false, true}) {
    std::string streamed;
    StreamDecoder decoder(tokenizer, {.skip_special = skip_special});
    for (const int32_t id : ids) decoder.Push(id, &streamed);
    decoder.Flush(&streamed);
    LINNET_CHECK(streamed == tokenizer.Decode(ids, skip_special));
  }
}

void EncodeAndDecode(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options) {
  std::vector<int32_t> ids;
  Diagnostic diagnostic;
  const Status status = tokenizer.Encode(text, options, &ids, &diagnostic);
  if (!status.ok()) {
    LINNET_CHECK(ids.empty());
    return CheckRefusal(diagnostic.text());
  }
  for (const int32_t id : ids) {
    LINNET_CHECK(id >= 0 && id < tokenizer.vocab_size());
    static_cast<void>(tokenizer.FindId(tokenizer.TokenText(id)));
  }
  DecodeBothWays(tokenizer, ids);
}

}  // namespace

bool UseTokenizer(std::span<const std::byte> section, std::string_view text) {
  Diagnostic diagnostic;
  auto view = formats::ReadTokenizerSection(section, &diagnostic);
  if (!view.ok()) {
    CheckRefusal(diagnostic.text());
    return false;
  }
  if (view->kind == TokenizerKind::kNone) return true;
  const auto tokenizer = Tokenizer::Create(std::move(view).value(), &diagnostic);
  if (!tokenizer.ok()) {
    CheckRefusal(diagnostic.text());
    return true;
  }
  for (const bool special : {false, true}) EncodeAndDecode(*tokenizer, text, {special, special});
  // Ids that no text gives, in an order that no text gives, and ids outside the vocabulary.
  std::vector<int32_t> ids = {-1, tokenizer->vocab_size()};
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  DecodeBothWays(*tokenizer, ids);
  return true;
}

}  // namespace linnet::fuzz
