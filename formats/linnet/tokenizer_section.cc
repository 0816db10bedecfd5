#include "formats/linnet/tokenizer_section.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "core/base/checked.h"
#include "core/base/utf8.h"
#include "formats/linnet/tokenizer_layout.h"
#include "tokenizer_generated.h"

namespace linnet::formats {
namespace {

constexpr const char* kMessage = "the model file's tokenizer is damaged";

template <typename T>
std::span<const T> SpanOf(const flatbuffers::Vector<T>* vector) {
  if (vector == nullptr) return {};
  return {vector->data(), vector->size()};
}

std::string_view TextOf(const flatbuffers::Vector<uint8_t>* vector) {
  return {reinterpret_cast<const char*>(vector->data()), vector->size()};
}

/// The checks of one section; each names the field that it refuses.
class Checker {
 public:
  Checker(const TokenizerView& view, Diagnostic* diagnostic) : view_(view), diagnostic_(diagnostic) {}

  Status Run() const {
    LINNET_RETURN_IF_ERROR(CheckVocabulary());
    LINNET_RETURN_IF_ERROR(CheckTable("vocabulary_slots", view_.vocabulary_slots, view_.token_types.size()));
    LINNET_RETURN_IF_ERROR(CheckMerges());
    LINNET_RETURN_IF_ERROR(CheckTable("merge_slots", view_.merge_slots, view_.merges.size()));
    LINNET_RETURN_IF_ERROR(CheckAddedTokens());
    LINNET_RETURN_IF_ERROR(CheckSpecialIds());
    return CheckSteps();
  }

 private:
  Status Refuse(const char* field, long long found, const char* expected) const {
    return Fail(diagnostic_, StatusCode::kInvalidModel, kMessage, "tokenizer.%s: found %lld, expected %s", field, found,
                expected);
  }
  bool IsId(int32_t id) const { return view_.HasToken(id); }

  Status CheckVocabulary() const {
    const size_t n = view_.token_types.size();
    if (n > TokenizerSpec::kMaxTokens) return Refuse("token_types", static_cast<long long>(n), "at most 2^22 tokens");
    if (view_.token_offsets.size() != n + 1) {
      return Refuse("token_offsets", static_cast<long long>(view_.token_offsets.size()), "one more than tokens");
    }
    const bool scored = view_.kind == TokenizerKind::kSentencePieceBpe;
    if (view_.scores.size() != (scored ? n : 0)) {
      return Refuse("scores", static_cast<long long>(view_.scores.size()), scored ? "one a token" : "none");
    }
    uint32_t previous = 0;
    for (uint32_t offset : view_.token_offsets) {
      if (offset < previous || offset - previous > TokenizerSpec::kMaxTokenBytes) {
        return Refuse("token_offsets", offset, "ascending offsets at most 4096 bytes apart");
      }
      previous = offset;
    }
    if (view_.token_offsets.front() != 0 || previous != view_.token_text.size()) {
      return Refuse("token_offsets", previous, "offsets from 0 to the length of token_text");
    }
    uint8_t lowest = 255, highest = 0;
    for (uint8_t type : view_.token_types) {
      lowest = type < lowest ? type : lowest;
      highest = type > highest ? type : highest;
    }
    if (n != 0 && (lowest < 1 || highest > static_cast<uint8_t>(TokenType::kByte))) {
      return Refuse("token_types", lowest < 1 ? lowest : highest, "1 to 6");
    }
    for (float score : view_.scores) {
      if (!(score == score)) return Refuse("scores", 0, "numbers (one is NaN)");
    }
    if (view_.max_token_bytes > TokenizerSpec::kMaxTokenBytes) {
      return Refuse("max_token_bytes", view_.max_token_bytes, "at most 4096");
    }
    return Status::Ok();
  }

  Status CheckTable(const char* field, std::span<const int32_t> slots, size_t limit) const {
    if (slots.empty()) return Status::Ok();
    if (!IsPowerOfTwo(slots.size()))
      return Refuse(field, static_cast<long long>(slots.size()), "a power of two of slots");
    // -1 is the empty slot; adding one maps the allowed values onto [0, limit].
    uint32_t highest = 0;
    for (int32_t slot : slots) highest = std::max(highest, static_cast<uint32_t>(slot) + 1u);
    if (highest > limit) return Refuse(field, static_cast<long long>(highest) - 1, "an index in range, or -1");
    return Status::Ok();
  }

  Status CheckMerges() const {
    if (view_.merges.size() > TokenizerSpec::kMaxMerges) {
      return Refuse("merges", static_cast<long long>(view_.merges.size()), "at most 2^23");
    }
    uint32_t highest = 0;
    for (const TokenMerge& merge : view_.merges) {
      highest = std::max({highest, static_cast<uint32_t>(merge.left), static_cast<uint32_t>(merge.right),
                          static_cast<uint32_t>(merge.result)});
    }
    if (!view_.merges.empty() && highest >= view_.token_types.size()) {
      return Refuse("merges", static_cast<int32_t>(highest), "ids of the vocabulary");
    }
    return Status::Ok();
  }

  Status CheckAddedTokens() const {
    const auto tokens = view_.added_tokens;
    if (tokens.size() > TokenizerSpec::kMaxAddedTokens) {
      return Refuse("added_tokens", static_cast<long long>(tokens.size()), "at most 2^18");
    }
    std::string_view previous;
    for (const AddedTokenEntry& token : tokens) {
      if (!IsId(token.id)) return Refuse("added_tokens.id", token.id, "an id of the vocabulary");
      if (token.flags > AddedTokenEntry::kAllFlags) return Refuse("added_tokens.flags", token.flags, "known flags");
      if (token.begin >= token.end || token.end > view_.added_text.size() ||
          token.end - token.begin > TokenizerSpec::kMaxTokenBytes) {
        return Refuse("added_tokens.end", token.end, "a text of 1 to 4096 bytes inside added_text");
      }
      const std::string_view text = view_.AddedText(token);
      if (!IsValidUtf8(text)) return Refuse("added_tokens", token.id, "UTF-8");
      if (text <= previous) return Refuse("added_tokens", token.id, "distinct texts in ascending order");
      previous = text;
    }
    return Status::Ok();
  }

  Status CheckSpecialIds() const {
    const struct {
      const char* name;
      int32_t id;
    } ids[] = {{"unk_id", view_.unk_id}, {"bos_id", view_.bos_id}, {"eos_id", view_.eos_id}, {"pad_id", view_.pad_id}};
    for (const auto& [name, id] : ids) {
      if (id != -1 && !IsId(id)) return Refuse(name, id, "an id of the vocabulary, or -1");
    }
    for (const auto affix : {view_.prefix_ids, view_.suffix_ids}) {
      if (affix.size() > TokenizerSpec::kMaxAffixIds) {
        return Refuse("prefix_ids", static_cast<long long>(affix.size()), "at most 64 ids");
      }
      for (int32_t id : affix) {
        if (!IsId(id)) return Refuse("prefix_ids", id, "ids of the vocabulary");
      }
    }
    return Status::Ok();
  }

  static bool InRange(uint8_t value, uint8_t low, uint8_t high) { return value >= low && value <= high; }

  Status CheckSteps() const {
    for (const NormalizerStep& step : view_.normalizer) {
      if (!InRange(static_cast<uint8_t>(step.kind), 1, static_cast<uint8_t>(NormalizerKind::kStripRight))) {
        return Refuse("normalizer.kind", static_cast<int>(step.kind), "1 to 10");
      }
      if (step.kind == NormalizerKind::kReplace && step.pattern.empty()) {
        return Refuse("normalizer.pattern", 0, "a pattern that is not empty");
      }
    }
    for (const PreTokenizerStep& step : view_.pre_tokenizer) {
      if (!InRange(static_cast<uint8_t>(step.kind), 1, static_cast<uint8_t>(PreTokenizerKind::kMetaspace)) ||
          static_cast<uint8_t>(step.behavior) > static_cast<uint8_t>(SplitBehavior::kContiguous) ||
          static_cast<uint8_t>(step.prepend) > static_cast<uint8_t>(PrependScheme::kAlways)) {
        return Refuse("pre_tokenizer.kind", static_cast<int>(step.kind), "a known kind, behavior and prepend scheme");
      }
      const bool needs_pattern = step.kind == PreTokenizerKind::kSplit || step.kind == PreTokenizerKind::kMetaspace;
      if (needs_pattern && step.pattern.empty())
        return Refuse("pre_tokenizer.pattern", 0, "a pattern that is not empty");
    }
    for (const DecoderStep& step : view_.decoder) {
      if (!InRange(static_cast<uint8_t>(step.kind), 1, static_cast<uint8_t>(DecoderKind::kMetaspace)) ||
          static_cast<uint8_t>(step.prepend) > static_cast<uint8_t>(PrependScheme::kAlways)) {
        return Refuse("decoder.kind", static_cast<int>(step.kind), "a known kind and prepend scheme");
      }
      const bool needs_pattern = step.kind == DecoderKind::kReplace || step.kind == DecoderKind::kMetaspace;
      if (needs_pattern && step.pattern.empty()) return Refuse("decoder.pattern", 0, "a pattern that is not empty");
      if (step.kind == DecoderKind::kStrip && step.content.empty()) {
        return Refuse("decoder.content", 0, "a content that is not empty");
      }
    }
    return Status::Ok();
  }

  const TokenizerView& view_;
  Diagnostic* diagnostic_;
};

/// False where a text is longer than a pattern may be, or is not UTF-8.
bool CopyText(const flatbuffers::String* from, std::string* to) {
  if (from == nullptr) return true;
  if (from->size() > TokenizerSpec::kMaxPatternBytes) return false;
  to->assign(from->data(), from->size());
  return IsValidUtf8(*to);  // matching and replacing must leave valid text valid
}

/// Copies the step lists; false where a list is too long, or CopyText refuses a text.
bool CopySteps(const fb::Tokenizer& table, TokenizerView* view) {
  constexpr size_t kMax = TokenizerSpec::kMaxSteps;
  if (table.normalizer()->size() > kMax || table.pre_tokenizer()->size() > kMax || table.decoder()->size() > kMax) {
    return false;
  }
  for (const fb::NormalizerStep* from : *table.normalizer()) {
    NormalizerStep step{static_cast<NormalizerKind>(from->kind()), from->regex(), {}, {}};
    if (!CopyText(from->pattern(), &step.pattern) || !CopyText(from->content(), &step.content)) return false;
    view->normalizer.push_back(std::move(step));
  }
  for (const fb::PreTokenizerStep* from : *table.pre_tokenizer()) {
    PreTokenizerStep step{static_cast<PreTokenizerKind>(from->kind()),
                          from->regex(),
                          from->invert(),
                          from->split(),
                          static_cast<SplitBehavior>(from->behavior()),
                          static_cast<PrependScheme>(from->prepend()),
                          {}};
    if (!CopyText(from->pattern(), &step.pattern)) return false;
    view->pre_tokenizer.push_back(std::move(step));
  }
  for (const fb::DecoderStep* from : *table.decoder()) {
    DecoderStep step{static_cast<DecoderKind>(from->kind()),
                     static_cast<PrependScheme>(from->prepend()),
                     from->start(),
                     from->stop(),
                     {},
                     {}};
    if (!CopyText(from->pattern(), &step.pattern) || !CopyText(from->content(), &step.content)) return false;
    view->decoder.push_back(std::move(step));
  }
  return true;
}

void CopyFields(const fb::Tokenizer& table, TokenizerView* view) {
  view->kind = static_cast<TokenizerKind>(table.kind());
  view->byte_level = table.byte_level();
  view->byte_fallback = table.byte_fallback();
  view->fuse_unk = table.fuse_unk();
  view->ignore_merges = table.ignore_merges();
  view->unk_id = table.unk_id();
  view->bos_id = table.bos_id();
  view->eos_id = table.eos_id();
  view->pad_id = table.pad_id();
  view->max_token_bytes = table.max_token_bytes();
  view->token_offsets = SpanOf(table.token_offsets());
  view->token_text = TextOf(table.token_text());
  view->token_types = SpanOf(table.token_types());
  view->scores = SpanOf(table.scores());
  view->vocabulary_slots = SpanOf(table.vocabulary_slots());
  view->merges = {reinterpret_cast<const TokenMerge*>(table.merges()->Data()), table.merges()->size()};
  view->merge_slots = SpanOf(table.merge_slots());
  view->added_tokens = {reinterpret_cast<const AddedTokenEntry*>(table.added_tokens()->Data()),
                        table.added_tokens()->size()};
  view->added_text = TextOf(table.added_text());
  view->prefix_ids = SpanOf(table.prefix_ids());
  view->suffix_ids = SpanOf(table.suffix_ids());
}

}  // namespace

Result<TokenizerView> ReadTokenizerSection(std::span<const std::byte> bytes, Diagnostic* diagnostic) {
  TokenizerView view;
  if (bytes.empty()) return view;
  if (reinterpret_cast<uintptr_t>(bytes.data()) % 8 != 0) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the tokenizer's bytes are not aligned",
                "tokenizer: the bytes start at an odd address, expected a multiple of 16");
  }
  flatbuffers::Verifier::Options options;
  options.max_depth = 8;
  options.max_tables = 4 * TokenizerSpec::kMaxSteps;
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), options);
  if (bytes.size() >= FLATBUFFERS_MAX_BUFFER_SIZE || !fb::VerifyTokenizerBuffer(verifier)) {
    return Fail(diagnostic, StatusCode::kInvalidModel, kMessage,
                "tokenizer: %zu bytes that are no tokenizer section, or a damaged one", bytes.size());
  }
  const fb::Tokenizer& table = *fb::GetTokenizer(bytes.data());
  if (table.layout_version() != kTokenizerLayoutVersion) {
    return Fail(diagnostic, StatusCode::kUnsupported, "the tokenizer section has another version",
                "tokenizer.layout_version: found %u, expected %u; convert the model again", table.layout_version(),
                kTokenizerLayoutVersion);
  }
  const auto kind = static_cast<TokenizerKind>(table.kind());
  if (kind != TokenizerKind::kBpe && kind != TokenizerKind::kSentencePieceBpe) {
    return Fail(diagnostic, StatusCode::kInvalidModel, kMessage, "tokenizer.kind: found %d, expected 1 or 2",
                static_cast<int>(kind));
  }
  CopyFields(table, &view);
  if (!CopySteps(table, &view)) {
    return Fail(diagnostic, StatusCode::kInvalidModel, kMessage,
                "tokenizer: more than %zu steps, or a pattern that is not UTF-8 of at most %zu bytes",
                TokenizerSpec::kMaxSteps, TokenizerSpec::kMaxPatternBytes);
  }
  LINNET_RETURN_IF_ERROR(Checker(view, diagnostic).Run());
  return view;
}

}  // namespace linnet::formats
