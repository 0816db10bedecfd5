#include "formats/gguf/tokenizer_metadata.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/utf8.h"
#include "formats/gguf/pre_tokenizers.h"

namespace linnet::formats {
namespace {

constexpr const char* kMessage = "the GGUF tokenizer metadata is invalid";
constexpr const char* kSpaceMark = "\xe2\x96\x81";  // U+2581

/// Control tokens that end an answer, whatever the file names as eos, eot and eom.
constexpr std::string_view kEndNames[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<end_of_turn>",
                                          "<|endoftext|>",
                                          "<|eom_id|>",
                                          "<|end|>",
                                          "<|end_of_text|>",
                                          "<EOT>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<turn|>",
                                          "<\xef\xbd\x9c"
                                          "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"};

class MetadataReader {
 public:
  MetadataReader(const GgufTokenizerMetadata& metadata, TokenizerSpec* spec, GenerationDefaults* generation,
                 Diagnostic* diagnostic)
      : metadata_(metadata), spec_(spec), generation_(generation), diagnostic_(diagnostic) {}

  Status Run() {
    const bool byte_level = metadata_.model == "gpt2";
    if (!byte_level && metadata_.model != "llama") {
      return Fail(diagnostic_, StatusCode::kUnsupported, "a GGUF tokenizer of an unsupported model",
                  "tokenizer.ggml.model \"%.*s\" is not supported, expected gpt2 or llama",
                  static_cast<int>(std::min<size_t>(metadata_.model.size(), 64)), metadata_.model.data());
    }
    LINNET_RETURN_IF_ERROR(CheckLengths());
    LINNET_RETURN_IF_ERROR(ReadTypes());
    LINNET_RETURN_IF_ERROR(byte_level ? ReadByteLevel() : ReadSentencePiece());
    ReadAddedTokens();
    LINNET_RETURN_IF_ERROR(ReadSpecialIds(byte_level));
    ReadGeneration();
    return Status::Ok();
  }

 private:
  static constexpr const char* kTokens = "tokenizer.ggml.tokens";

  Status Refuse(const char* key, const std::string& why) const {
    return Fail(diagnostic_, StatusCode::kInvalidModel, kMessage, "%s: %.300s", key, why.c_str());
  }

  Status CheckLengths() const {
    const size_t n = metadata_.tokens.size();
    const auto count = [](size_t size) { return std::to_string(size); };
    if (n == 0 || n > TokenizerSpec::kMaxTokens)
      return Refuse(kTokens, "found " + count(n) + ", expected 1 to 2^22 tokens");
    if (!metadata_.token_types.empty() && metadata_.token_types.size() != n) {
      return Refuse("tokenizer.ggml.token_type",
                    "found " + count(metadata_.token_types.size()) + ", expected " + count(n));
    }
    if (!metadata_.scores.empty() && metadata_.scores.size() != n) {
      return Refuse("tokenizer.ggml.scores", "found " + count(metadata_.scores.size()) + ", expected " + count(n));
    }
    if (metadata_.merges.size() > TokenizerSpec::kMaxMerges) {
      return Refuse("tokenizer.ggml.merges", "found " + count(metadata_.merges.size()) + ", expected at most 2^23");
    }
    for (const std::string_view token : metadata_.tokens) {
      if (token.size() > TokenizerSpec::kMaxTokenBytes) {
        return Refuse(kTokens, "found a token of " + count(token.size()) + " bytes, expected at most 4096");
      }
    }
    return Status::Ok();
  }

  Status ReadTypes() {
    const size_t n = metadata_.tokens.size();
    spec_->types.assign(n, TokenType::kNormal);
    for (size_t i = 0; i < metadata_.token_types.size(); ++i) {
      const int32_t type = metadata_.token_types[i];
      // 0 is "undefined" and what some writers put for ordinary tokens.
      if (type < 0 || type > static_cast<int32_t>(TokenType::kByte)) {
        return Refuse("tokenizer.ggml.token_type", "found " + std::to_string(type) + ", expected 0 to 6");
      }
      if (type != 0) spec_->types[i] = static_cast<TokenType>(type);
    }
    return Status::Ok();
  }

  Status ReadByteLevel() {
    const GgufPreTokenizer* pre = FindGgufPreTokenizer(metadata_.pre);
    if (pre == nullptr) {
      return Fail(diagnostic_, StatusCode::kUnsupported, "a GGUF pre-tokenizer of an unknown name",
                  "tokenizer.ggml.pre \"%.*s\" is not supported",
                  static_cast<int>(std::min<size_t>(metadata_.pre.size(), 64)), metadata_.pre.data());
    }
    spec_->kind = TokenizerKind::kBpe;
    spec_->byte_level = true;
    spec_->ignore_merges = pre->ignore_merges;
    add_bos_default_ = pre->add_bos;
    if (pre->nfc) spec_->normalizer.push_back({NormalizerKind::kNfc, false, {}, {}});
    if (metadata_.add_space_prefix.value_or(false)) AddStep(PreTokenizerKind::kPrefixSpace);
    for (const std::string_view pattern : pre->patterns) {
      PreTokenizerStep& step = AddStep(PreTokenizerKind::kSplit);
      step.regex = true;
      step.pattern = pattern;
    }
    AddStep(PreTokenizerKind::kByteLevel);
    spec_->tokens.resize(metadata_.tokens.size());
    spec_->lookup.assign(metadata_.tokens.size(), false);
    for (size_t i = 0; i < metadata_.tokens.size(); ++i) {
      // Control and user-defined tokens are written as they are; only the model's own use the byte-level alphabet.
      const bool own = spec_->types[i] == TokenType::kNormal || spec_->types[i] == TokenType::kUnused;
      spec_->lookup[i] = own && AppendBytesOfAlphabet(metadata_.tokens[i], &spec_->tokens[i]);
      if (spec_->tokens[i].empty()) spec_->tokens[i] = metadata_.tokens[i];
    }
    return ReadMerges();
  }

  PreTokenizerStep& AddStep(PreTokenizerKind kind) {
    spec_->pre_tokenizer.emplace_back().kind = kind;
    return spec_->pre_tokenizer.back();
  }

  /// Merges are found by the bytes that they make: a result that is user-defined is not written in the alphabet.
  Status ReadMerges() {
    std::unordered_map<std::string_view, int32_t> id_of;
    id_of.reserve(spec_->tokens.size());
    for (const bool lookup : {false, true}) {  // the model's own tokens win
      for (size_t i = 0; i < spec_->tokens.size(); ++i) {
        if (spec_->lookup[i] == lookup) id_of[spec_->tokens[i]] = static_cast<int32_t>(i);
      }
    }
    spec_->merges.reserve(metadata_.merges.size());
    std::string bytes;
    for (const std::string_view merge : metadata_.merges) {
      const size_t space = merge.find(' ', 1);  // a left part may be a space itself in odd files
      bytes.clear();
      size_t left_bytes = 0;
      bool ok = space != std::string_view::npos && AppendBytesOfAlphabet(merge.substr(0, space), &bytes);
      left_bytes = bytes.size();
      ok = ok && AppendBytesOfAlphabet(merge.substr(space + 1), &bytes);
      const std::string_view joined = bytes;
      const auto left = id_of.find(joined.substr(0, left_bytes)), right = id_of.find(joined.substr(left_bytes));
      const auto result = id_of.find(joined);
      if (!ok || left == id_of.end() || right == id_of.end() || result == id_of.end()) {
        return Refuse("tokenizer.ggml.merges",
                      std::string(merge.substr(0, 128)).append(": does not name two tokens that make a third"));
      }
      spec_->merges.push_back({left->second, right->second, result->second});
    }
    return Status::Ok();
  }

  Status ReadSentencePiece() {
    if (metadata_.scores.empty()) return Refuse("tokenizer.ggml.scores", "missing, expected one for each token");
    spec_->kind = TokenizerKind::kSentencePieceBpe;
    add_bos_default_ = true;
    spec_->tokens.assign(metadata_.tokens.begin(), metadata_.tokens.end());
    spec_->scores.assign(metadata_.scores.begin(), metadata_.scores.end());
    spec_->lookup.assign(spec_->tokens.size(), false);
    for (size_t i = 0; i < spec_->tokens.size(); ++i) {
      if (std::isnan(spec_->scores[i]))
        return Refuse("tokenizer.ggml.scores", "token " + std::to_string(i) + " has NaN");
      if (metadata_.token_types.empty() && ByteOfByteToken(spec_->tokens[i]) >= 0) spec_->types[i] = TokenType::kByte;
      // Text must not turn into a control or byte token by looking like one.
      spec_->lookup[i] = spec_->types[i] == TokenType::kNormal || spec_->types[i] == TokenType::kUserDefined;
      spec_->byte_fallback = spec_->byte_fallback || spec_->types[i] == TokenType::kByte;
    }
    const bool prefix = metadata_.add_space_prefix.value_or(true);
    if (prefix) spec_->normalizer.push_back({NormalizerKind::kPrepend, false, {}, kSpaceMark});
    spec_->normalizer.push_back({NormalizerKind::kReplace, false, " ", kSpaceMark});
    DecoderStep replace, bytes, fuse, strip;
    replace.kind = DecoderKind::kReplace;
    replace.pattern = kSpaceMark;
    replace.content = " ";
    bytes.kind = DecoderKind::kByteFallback;
    fuse.kind = DecoderKind::kFuse;
    strip.kind = DecoderKind::kStrip;
    strip.content = " ";
    strip.start = 1;
    spec_->decoder = {replace, bytes, fuse};
    if (prefix) spec_->decoder.push_back(strip);
    return Status::Ok();
  }

  void ReadAddedTokens() {
    std::unordered_map<std::string_view, size_t> index_of;
    for (size_t i = 0; i < spec_->tokens.size(); ++i) {
      const TokenType type = spec_->types[i];
      const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
      const std::string_view text = metadata_.tokens[i];
      if ((!special && type != TokenType::kUserDefined) || text.empty() || !IsValidUtf8(text)) continue;
      AddedToken token;
      token.id = static_cast<int32_t>(i);
      token.content = text;
      token.special = special;
      const auto [entry, is_new] = index_of.emplace(text, spec_->added_tokens.size());
      if (is_new) {
        spec_->added_tokens.push_back(std::move(token));
      } else {
        spec_->added_tokens[entry->second] = std::move(token);  // the later one is meant
      }
    }
  }

  /// Reads one special id; a value outside the vocabulary is refused, -1 means none.
  Status ReadId(const char* key, const std::optional<int64_t>& value, int32_t default_id, int32_t* id) const {
    *id = -1;
    const int64_t found = value.value_or(default_id);
    const auto count = static_cast<int64_t>(spec_->tokens.size());
    if (!value.has_value() && found >= count) return Status::Ok();
    // 2^32 - 1 is -1 in an unsigned key.
    if (found == -1 || found == int64_t{UINT32_MAX}) return Status::Ok();
    if (found < 0 || found >= count) {
      return Refuse(key, "found " + std::to_string(found) + ", expected an id below " + std::to_string(count));
    }
    *id = static_cast<int32_t>(found);
    return Status::Ok();
  }

  Status ReadSpecialIds(bool byte_level) {
    // What a "llama" tokenizer means where the keys are absent.
    const int32_t unk = byte_level ? -1 : 0, bos = byte_level ? -1 : 1, eos = byte_level ? -1 : 2;
    LINNET_RETURN_IF_ERROR(ReadId("tokenizer.ggml.unknown_token_id", metadata_.unk_id, unk, &spec_->unk_id));
    LINNET_RETURN_IF_ERROR(ReadId("tokenizer.ggml.bos_token_id", metadata_.bos_id, bos, &spec_->bos_id));
    LINNET_RETURN_IF_ERROR(ReadId("tokenizer.ggml.eos_token_id", metadata_.eos_id, eos, &spec_->eos_id));
    LINNET_RETURN_IF_ERROR(ReadId("tokenizer.ggml.padding_token_id", metadata_.pad_id, -1, &spec_->pad_id));
    LINNET_RETURN_IF_ERROR(ReadId("tokenizer.ggml.eot_token_id", metadata_.eot_id, -1, &eot_id_));
    LINNET_RETURN_IF_ERROR(ReadId("tokenizer.ggml.eom_token_id", metadata_.eom_id, -1, &eom_id_));
    if (byte_level) spec_->unk_id = -1;  // every byte is a token, so that nothing is unknown
    if (metadata_.add_bos.value_or(add_bos_default_) && spec_->bos_id >= 0) spec_->prefix_ids = {spec_->bos_id};
    if (metadata_.add_eos.value_or(false) && spec_->eos_id >= 0) spec_->suffix_ids = {spec_->eos_id};
    return Status::Ok();
  }

  void AddEnd(int32_t id) {
    auto& ids = generation_->end_ids;
    if (id >= 0 && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }

  void ReadGeneration() {
    generation_->bos_id = spec_->bos_id;
    generation_->add_bos = !spec_->prefix_ids.empty();
    for (int32_t id : {spec_->eos_id, eot_id_, eom_id_}) AddEnd(id);
    const auto control_token = [&](std::string_view name) {
      for (const AddedToken& token : spec_->added_tokens) {
        if (token.special && token.content == name) return token.id;
      }
      return -1;
    };
    // Where a model has both, <|end|> ends one message of an answer and <|return|> the answer.
    const bool end_is_message = control_token("<|return|>") >= 0;
    for (const std::string_view name : kEndNames) {
      if (name != "<|end|>" || !end_is_message) AddEnd(control_token(name));
    }
  }

  const GgufTokenizerMetadata& metadata_;
  TokenizerSpec* spec_;
  GenerationDefaults* generation_;
  Diagnostic* diagnostic_;
  bool add_bos_default_ = false;
  int32_t eot_id_ = -1, eom_id_ = -1;
};

}  // namespace

Status TokenizerFromGgufMetadata(const GgufTokenizerMetadata& metadata, TokenizerSpec* tokenizer,
                                 GenerationDefaults* generation, Diagnostic* diagnostic) {
  *tokenizer = {};
  *generation = {};
  if (metadata.model.empty() || metadata.model == "no_vocab" || metadata.model == "none") return Status::Ok();
  return MetadataReader(metadata, tokenizer, generation, diagnostic).Run();
}

}  // namespace linnet::formats
