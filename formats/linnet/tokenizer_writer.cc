#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/linnet/tokenizer_layout.h"
#include "formats/linnet/tokenizer_section.h"
#include "tokenizer_generated.h"

namespace linnet::formats {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

Status CheckSizes(const TokenizerSpec& spec, Diagnostic* diagnostic) {
  constexpr const char* kMessage = "the tokenizer does not fit the model file";
  const size_t n = spec.tokens.size();
  const auto fail = [&](const char* what, size_t found, size_t expected) {
    return Fail(diagnostic, StatusCode::kInvalidModel, kMessage, "tokenizer: %zu %s, expected at most %zu", found, what,
                expected);
  };
  if (n > TokenizerSpec::kMaxTokens) return fail("tokens", n, TokenizerSpec::kMaxTokens);
  if (spec.merges.size() > TokenizerSpec::kMaxMerges)
    return fail("merges", spec.merges.size(), TokenizerSpec::kMaxMerges);
  if (spec.added_tokens.size() > TokenizerSpec::kMaxAddedTokens) {
    return fail("added tokens", spec.added_tokens.size(), TokenizerSpec::kMaxAddedTokens);
  }
  if (spec.types.size() != n || spec.lookup.size() != n || (!spec.scores.empty() && spec.scores.size() != n)) {
    return Fail(diagnostic, StatusCode::kInvalidModel, kMessage,
                "tokenizer: %zu tokens with %zu types, %zu scores and %zu lookup flags, expected one of each", n,
                spec.types.size(), spec.scores.size(), spec.lookup.size());
  }
  size_t bytes = 0;
  for (const std::string& token : spec.tokens) bytes += token.size();
  for (const AddedToken& token : spec.added_tokens) bytes += token.content.size();
  if (bytes > TokenizerSpec::kMaxVocabularyBytes)
    return fail("bytes of text", bytes, TokenizerSpec::kMaxVocabularyBytes);
  return Status::Ok();
}

/// Puts item `i` into the first free slot of its probe sequence, or into the slot of an equal item. False: none in
/// reach.
template <typename Equal>
bool Insert(std::vector<int32_t>& table, size_t i, uint64_t hash, const Equal& equal) {
  for (uint32_t probe = 0; probe < kMaxHashProbes && probe < table.size(); ++probe) {
    int32_t& slot = table[(hash + probe) & (table.size() - 1)];
    if (slot >= 0 && !equal(static_cast<size_t>(slot), i)) continue;
    slot = static_cast<int32_t>(i);
    return true;
  }
  return false;
}

/// A table of those of `count` items that `include` admits. At most half full, and larger where probes get too long.
template <typename HashOf, typename Equal, typename Include>
std::vector<int32_t> BuildTable(size_t count, const HashOf& hash_of, const Equal& equal, const Include& include) {
  size_t included = 0;
  for (size_t i = 0; i < count; ++i) included += include(i) ? 1 : 0;
  if (included == 0) return {};
  size_t slots = std::bit_ceil(2 * included);
  for (int growth = 0;; ++growth, slots *= 2) {
    std::vector<int32_t> table(slots, -1);
    bool fits = true;
    for (size_t i = 0; i < count; ++i) {
      if (include(i) && !Insert(table, i, hash_of(i), equal)) fits = false;
    }
    // Texts made to collide would need ever larger tables; what does not fit then is simply never found.
    if (fits || growth == kMaxTableDoublings) return table;
  }
}

std::vector<int32_t> BuildVocabularyTable(const TokenizerSpec& spec) {
  const auto& tokens = spec.tokens;
  return BuildTable(
      tokens.size(), [&](size_t i) { return TextHash(tokens[i]); },
      [&](size_t a, size_t b) { return tokens[a] == tokens[b]; },
      [&](size_t i) { return spec.lookup[i] && !tokens[i].empty(); });
}

std::vector<int32_t> BuildMergeTable(const TokenizerSpec& spec) {
  const auto& merges = spec.merges;
  return BuildTable(
      merges.size(), [&](size_t i) { return PairHash(merges[i].left, merges[i].right); },
      [&](size_t a, size_t b) { return merges[a].left == merges[b].left && merges[a].right == merges[b].right; },
      [](size_t) { return true; });
}

struct Vocabulary {
  Offset<flatbuffers::Vector<uint32_t>> offsets;
  Offset<flatbuffers::Vector<uint8_t>> text;
  uint32_t max_token_bytes = 0;
};

Vocabulary BuildVocabulary(FlatBufferBuilder& builder, const TokenizerSpec& spec) {
  Vocabulary result;
  std::vector<uint32_t> offsets(1, 0);
  offsets.reserve(spec.tokens.size() + 1);
  std::string text;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    text += spec.tokens[i];
    offsets.push_back(static_cast<uint32_t>(text.size()));
    if (spec.lookup[i])
      result.max_token_bytes = std::max(result.max_token_bytes, static_cast<uint32_t>(spec.tokens[i].size()));
  }
  result.offsets = builder.CreateVector(offsets);
  result.text = builder.CreateVector(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  return result;
}

uint32_t Flags(const AddedToken& token) {
  return (token.single_word ? AddedTokenEntry::kSingleWord : 0u) | (token.lstrip ? AddedTokenEntry::kLeftStrip : 0u) |
         (token.rstrip ? AddedTokenEntry::kRightStrip : 0u) | (token.normalized ? AddedTokenEntry::kNormalized : 0u) |
         (token.special ? AddedTokenEntry::kSpecial : 0u);
}

struct AddedTokens {
  Offset<flatbuffers::Vector<const fb::AddedToken*>> entries;
  Offset<flatbuffers::Vector<uint8_t>> text;
};

AddedTokens BuildAddedTokens(FlatBufferBuilder& builder, const TokenizerSpec& spec) {
  std::vector<const AddedToken*> sorted;
  for (const AddedToken& token : spec.added_tokens) sorted.push_back(&token);
  std::sort(sorted.begin(), sorted.end(),
            [](const AddedToken* a, const AddedToken* b) { return a->content < b->content; });
  std::vector<fb::AddedToken> entries;
  std::string text;
  for (const AddedToken* token : sorted) {
    const auto begin = static_cast<uint32_t>(text.size());
    text += token->content;
    entries.emplace_back(token->id, Flags(*token), begin, static_cast<uint32_t>(text.size()));
  }
  return {builder.CreateVectorOfStructs(entries),
          builder.CreateVector(reinterpret_cast<const uint8_t*>(text.data()), text.size())};
}

auto BuildNormalizer(FlatBufferBuilder& builder, const TokenizerSpec& spec) {
  std::vector<Offset<fb::NormalizerStep>> steps;
  for (const NormalizerStep& step : spec.normalizer) {
    steps.push_back(fb::CreateNormalizerStep(builder, static_cast<uint8_t>(step.kind), step.regex,
                                             builder.CreateString(step.pattern), builder.CreateString(step.content)));
  }
  return builder.CreateVector(steps);
}

auto BuildPreTokenizer(FlatBufferBuilder& builder, const TokenizerSpec& spec) {
  std::vector<Offset<fb::PreTokenizerStep>> steps;
  for (const PreTokenizerStep& step : spec.pre_tokenizer) {
    steps.push_back(fb::CreatePreTokenizerStep(builder, static_cast<uint8_t>(step.kind), step.regex, step.invert,
                                               step.split, static_cast<uint8_t>(step.behavior),
                                               static_cast<uint8_t>(step.prepend), builder.CreateString(step.pattern)));
  }
  return builder.CreateVector(steps);
}

auto BuildDecoder(FlatBufferBuilder& builder, const TokenizerSpec& spec) {
  std::vector<Offset<fb::DecoderStep>> steps;
  for (const DecoderStep& step : spec.decoder) {
    steps.push_back(fb::CreateDecoderStep(builder, static_cast<uint8_t>(step.kind), static_cast<uint8_t>(step.prepend),
                                          step.start, step.stop, builder.CreateString(step.pattern),
                                          builder.CreateString(step.content)));
  }
  return builder.CreateVector(steps);
}

Offset<fb::Tokenizer> Build(FlatBufferBuilder& builder, const TokenizerSpec& spec) {
  const Vocabulary vocabulary = BuildVocabulary(builder, spec);
  const auto types = builder.CreateVector(reinterpret_cast<const uint8_t*>(spec.types.data()), spec.types.size());
  const auto scores = spec.scores.empty() ? 0 : builder.CreateVector(spec.scores);
  const auto vocabulary_slots = builder.CreateVector(BuildVocabularyTable(spec));
  const auto merges =
      builder.CreateVectorOfStructs(reinterpret_cast<const fb::TokenMerge*>(spec.merges.data()), spec.merges.size());
  const auto merge_slots = builder.CreateVector(BuildMergeTable(spec));
  const AddedTokens added = BuildAddedTokens(builder, spec);
  const auto prefix_ids = builder.CreateVector(spec.prefix_ids);
  const auto suffix_ids = builder.CreateVector(spec.suffix_ids);
  const auto normalizer = BuildNormalizer(builder, spec);
  const auto pre_tokenizer = BuildPreTokenizer(builder, spec);
  const auto decoder = BuildDecoder(builder, spec);
  return fb::CreateTokenizer(builder, kTokenizerLayoutVersion, static_cast<uint8_t>(spec.kind), spec.byte_level,
                             spec.byte_fallback, spec.fuse_unk, spec.ignore_merges, spec.unk_id, spec.bos_id,
                             spec.eos_id, spec.pad_id, vocabulary.max_token_bytes, vocabulary.offsets, vocabulary.text,
                             types, scores, vocabulary_slots, merges, merge_slots, added.entries, added.text,
                             prefix_ids, suffix_ids, normalizer, pre_tokenizer, decoder);
}

}  // namespace

Result<std::vector<std::byte>> WriteTokenizerSection(const TokenizerSpec& spec, Diagnostic* diagnostic) {
  if (spec.kind == TokenizerKind::kNone) return std::vector<std::byte>();
  LINNET_RETURN_IF_ERROR(CheckSizes(spec, diagnostic));
  FlatBufferBuilder builder(1 << 16);
  builder.Finish(Build(builder, spec), fb::TokenizerIdentifier());
  const auto* begin = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  std::vector<std::byte> bytes(begin, begin + builder.GetSize());
  // The reader's checks are the format's rules; running them here keeps one list of rules and refuses at conversion.
  const Result<TokenizerView> view = ReadTokenizerSection(bytes, diagnostic);
  if (!view.ok()) return view.status();
  return bytes;
}

}  // namespace linnet::formats
