#include "core/tokenizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "tests/core/tokenizer/tokenizer_fixture.h"

namespace linnet {
namespace {

using testing::Load;
using testing::LoadedTokenizer;

/// Every byte, and a few merges: ids 0 to 255 are the bytes.
TokenizerSpec ByteLevelSpec() {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kBpe;
  spec.byte_level = true;
  for (int byte = 0; byte < 256; ++byte) spec.tokens.emplace_back(1, static_cast<char>(byte));
  const auto add = [&](int32_t left, int32_t right) {
    const auto id = static_cast<int32_t>(spec.tokens.size());
    spec.tokens.push_back(spec.tokens[static_cast<size_t>(left)] + spec.tokens[static_cast<size_t>(right)]);
    spec.merges.push_back({left, right, id});
    return id;
  };
  const int32_t he = add('h', 'e'), ll = add('l', 'l');
  add(add(he, ll), 'o');  // "hell", "hello"
  add(0xf0, 0x9f);
  spec.types.assign(spec.tokens.size(), TokenType::kNormal);
  spec.lookup.assign(spec.tokens.size(), true);
  return spec;
}

int32_t AddToken(TokenizerSpec* spec, const std::string& text, bool special) {
  const auto id = static_cast<int32_t>(spec->tokens.size());
  spec->tokens.push_back(text);
  spec->types.push_back(special ? TokenType::kControl : TokenType::kUserDefined);
  spec->lookup.push_back(false);
  if (!spec->scores.empty()) spec->scores.push_back(0.0f);
  AddedToken token;
  token.id = id;
  token.content = text;
  token.special = special;
  spec->added_tokens.push_back(token);
  return id;
}

/// "llama" of GGUF in small: <unk>, <s>, 256 byte tokens, pieces with scores.
TokenizerSpec ScoredSpec() {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePieceBpe;
  spec.byte_fallback = true;
  spec.unk_id = 0;
  spec.bos_id = 1;
  const auto add = [&](const std::string& text, TokenType type, float score) {
    spec.tokens.push_back(text);
    spec.types.push_back(type);
    spec.scores.push_back(score);
    spec.lookup.push_back(type == TokenType::kNormal);
  };
  add("<unk>", TokenType::kUnknown, 0);
  add("<s>", TokenType::kControl, 0);
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    add(text, TokenType::kByte, 0);
  }
  float score = -1;
  for (const char* text :
       {"\xe2\x96\x81t", "er", "in", "\xe2\x96\x81th", "the", "\xe2\x96\x81", "t", "h", "e", "r", "i", "n"}) {
    add(text, TokenType::kNormal, score--);
  }
  DecoderStep replace, bytes, fuse, strip;
  replace.kind = DecoderKind::kReplace;
  replace.pattern = "\xe2\x96\x81";
  replace.content = " ";
  bytes.kind = DecoderKind::kByteFallback;
  fuse.kind = DecoderKind::kFuse;
  strip.kind = DecoderKind::kStrip;
  strip.content = " ";
  strip.start = 1;
  spec.decoder = {replace, bytes, fuse, strip};
  spec.normalizer.push_back({NormalizerKind::kPrepend, false, {}, "\xe2\x96\x81"});
  spec.normalizer.push_back({NormalizerKind::kReplace, false, " ", "\xe2\x96\x81"});
  return spec;
}

std::string RandomText(std::mt19937& random) {
  std::string text;
  for (size_t count = random() % 40; count > 0; --count) {
    static constexpr uint32_t kLimits[] = {0x80, 0x80, 0x800, 0x10000, 0x110000};
    uint32_t c = static_cast<uint32_t>(random()) % kLimits[random() % 5];
    if (c >= 0xd800 && c < 0xe000) c = 'x';
    AppendUtf8(c, &text);
  }
  return text;
}

std::vector<std::string> Stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, StreamOptions options) {
  StreamDecoder decoder(tokenizer, options);
  std::vector<std::string> parts;
  for (int32_t id : ids) decoder.Push(id, &parts.emplace_back());
  decoder.Flush(&parts.emplace_back());
  return parts;
}

}  // namespace

TEST_SUITE("tokenizer") {
  TEST_CASE("Encode: merges by rank, the leftmost of equals first") {
    const LoadedTokenizer loaded = Load(ByteLevelSpec());
    CHECK(loaded.Encode("hello") == std::vector<int32_t>{259});
    CHECK(loaded.Encode("hell") == std::vector<int32_t>{258});
    CHECK(loaded.Encode("helllo") == std::vector<int32_t>{258, 'l', 'o'});
    CHECK(loaded.Encode("lll") == std::vector<int32_t>{257, 'l'});
    CHECK(loaded.Encode("").empty());
  }

  TEST_CASE("Encode: byte-level texts come back as they were") {
    const LoadedTokenizer loaded = Load(ByteLevelSpec());
    std::mt19937 random(7);
    for (int i = 0; i < 2000; ++i) {
      const std::string text = RandomText(random);
      CAPTURE(text);
      CHECK(loaded.tokenizer->Decode(loaded.Encode(text), false) == text);
    }
  }

  TEST_CASE("Encode: bytes that are not UTF-8 are read as U+FFFD, one for each maximal part") {
    const LoadedTokenizer loaded = Load(ByteLevelSpec());
    CHECK(loaded.tokenizer->Decode(loaded.Encode("a\xff\xe2\x82z\xed\xa0\x80"), false) ==
          "a\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  }

  TEST_CASE("Encode: special tokens in text only where asked for, user-defined ones always") {
    TokenizerSpec spec = ByteLevelSpec();
    const int32_t end = AddToken(&spec, "<end>", true), user = AddToken(&spec, "<user>", false);
    AddToken(&spec, "<endless>", true);
    spec.prefix_ids = {end};
    spec.suffix_ids = {user, end};
    const LoadedTokenizer loaded = Load(spec);
    CHECK(loaded.Encode("a<end><user>", {.parse_special = true}) == std::vector<int32_t>{'a', end, user});
    CHECK(loaded.Encode("<end>").size() == 5);
    CHECK(loaded.Encode("<user>") == std::vector<int32_t>{user});
    CHECK(loaded.Encode("<endless>", {.parse_special = true}) == std::vector<int32_t>{end + 2});
    CHECK(loaded.Encode("a", {.add_special = true}) == std::vector<int32_t>{end, 'a', user, end});
    CHECK(loaded.tokenizer->Decode(std::vector<int32_t>{end, 'a', user}, true) == "a<user>");
    CHECK(loaded.tokenizer->Decode(std::vector<int32_t>{end, 'a', user}, false) == "<end>a<user>");
    CHECK(loaded.tokenizer->IsSpecial(end));
    CHECK(!loaded.tokenizer->IsSpecial(user));
    CHECK(loaded.tokenizer->FindId("<end>") == end);
    CHECK(loaded.tokenizer->FindId("nothing") == -1);
  }

  TEST_CASE("Encode: by score, unknown characters fall back to bytes and text forges no control token") {
    const LoadedTokenizer loaded = Load(ScoredSpec());
    const int32_t first = 258;
    CHECK(loaded.Encode("the") == std::vector<int32_t>{first + 3, first + 8});  // "_t" + "h" = "_th", then "e"
    CHECK(loaded.Encode("\xc3\xa9") == std::vector<int32_t>{first + 5, 2 + 0xc3, 2 + 0xa9});
    const auto forged = loaded.Encode("<s>");
    CHECK(std::find(forged.begin(), forged.end(), 1) == forged.end());
    CHECK(loaded.tokenizer->Decode(loaded.Encode("the \xc3\xa9 rin"), false) == "the \xc3\xa9 rin");
  }

  TEST_CASE("Decode: ids outside the vocabulary are padding and give nothing") {
    const LoadedTokenizer loaded = Load(ByteLevelSpec());
    CHECK(loaded.tokenizer->Decode(std::vector<int32_t>{-1, 'a', 100000, 'b', INT32_MAX, INT32_MIN}, false) == "ab");
    CHECK(loaded.tokenizer->TokenText(100000).empty());
    CHECK(!loaded.tokenizer->IsSpecial(-5));
  }

  TEST_CASE("StreamDecoder: whole code points only, incomplete ones held back, the rest flushed") {
    const LoadedTokenizer loaded = Load(ByteLevelSpec());
    CHECK(Stream(*loaded.tokenizer, {0xe2, 0x82, 0xac, 'x'}, {}) ==
          std::vector<std::string>{"", "", "\xe2\x82\xac", "x", ""});
    CHECK(Stream(*loaded.tokenizer, {260, 0x99, 0x82}, {}) == std::vector<std::string>{"", "", "\xf0\x9f\x99\x82", ""});
    CHECK(Stream(*loaded.tokenizer, {0xe2, 0x82, 'x'}, {}) == std::vector<std::string>{"", "", "\xef\xbf\xbdx", ""});
    CHECK(Stream(*loaded.tokenizer, {0xe2, 0x82}, {}) == std::vector<std::string>{"", "", "\xef\xbf\xbd"});
    CHECK(Stream(*loaded.tokenizer, {0x80, 0xff}, {}) == std::vector<std::string>{"\xef\xbf\xbd", "\xef\xbf\xbd", ""});
  }

  TEST_CASE("StreamDecoder: the first space goes at the start of a text, not in its continuation") {
    const LoadedTokenizer loaded = Load(ScoredSpec());
    const std::vector<int32_t> ids = {258 + 5, 258 + 3};  // " ", " th"
    CHECK(Stream(*loaded.tokenizer, ids, {}) == std::vector<std::string>{"", " th", ""});
    CHECK(Stream(*loaded.tokenizer, ids, {.at_start = false}) == std::vector<std::string>{" ", " th", ""});
  }

  TEST_CASE("StreamDecoder: pushing tokens one by one equals Decode") {
    const LoadedTokenizer loaded = Load(ScoredSpec());
    std::mt19937 random(11);
    for (int i = 0; i < 500; ++i) {
      std::vector<int32_t> ids(random() % 30);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % loaded.tokenizer->vocab_size());
      std::string joined;
      for (const std::string& part : Stream(*loaded.tokenizer, ids, {.skip_special = false})) {
        CHECK(IsValidUtf8(part));
        joined += part;
      }
      CHECK(joined == loaded.tokenizer->Decode(ids, false));
    }
  }

  TEST_CASE("Create: a pattern that does not compile, or a decoder that cannot stream, is refused") {
    Diagnostic diagnostic;
    const auto create = [&](const TokenizerSpec& spec) {
      const auto section = formats::WriteTokenizerSection(spec, &diagnostic);
      REQUIRE(section.ok());
      auto view = formats::ReadTokenizerSection(*section, &diagnostic);
      REQUIRE(view.ok());
      return Tokenizer::Create(std::move(view).value(), &diagnostic).status();
    };
    TokenizerSpec spec = ByteLevelSpec();
    PreTokenizerStep& split = spec.pre_tokenizer.emplace_back();
    split.regex = true;
    split.pattern = "a(b";
    CHECK(create(spec).code() == StatusCode::kInvalidModel);
    CHECK(std::string(diagnostic.text()).find("a(b") != std::string::npos);
    spec = ScoredSpec();
    spec.decoder.push_back(spec.decoder.front());
    CHECK(create(spec).code() == StatusCode::kUnsupported);
    CHECK(Tokenizer::Create(TokenizerView(), &diagnostic).status().code() == StatusCode::kUnsupported);
  }

  TEST_CASE("Encode: a pattern that backtracks without end is a typed error") {
    TokenizerSpec spec = ByteLevelSpec();
    PreTokenizerStep& split = spec.pre_tokenizer.emplace_back();
    split.regex = true;
    split.pattern = "(a+)+$";
    const LoadedTokenizer loaded = Load(spec);
    std::vector<int32_t> ids{1, 2};
    Diagnostic diagnostic;
    const Status status = loaded.tokenizer->Encode(std::string(64, 'a') + "!", {}, &ids, &diagnostic);
    CHECK(status.code() == StatusCode::kInvalidModel);
    CHECK(ids == std::vector<int32_t>{1, 2});
  }

  TEST_CASE("Encode: long texts without a break take no time to speak of") {
    // Quadratic merging would take minutes for these; the benchmark measures.
    const LoadedTokenizer loaded = Load(ByteLevelSpec());
    CHECK(loaded.Encode(std::string(300000, 'l')).size() == 150000);
    std::string text;
    for (int i = 0; i < 60000; ++i) text += "hello";
    CHECK(loaded.Encode(text) == std::vector<int32_t>(60000, 259));
  }
}

}  // namespace linnet
