// Public header. A checked tokenizer in memory: the vocabulary and its hash tables stay in the mapped file.
#ifndef LINNET_CORE_BASE_TOKENIZER_VIEW_H_
#define LINNET_CORE_BASE_TOKENIZER_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/tokenizer_spec.h"

namespace linnet {

/// A step of the vocabulary hash (FNV-1a, 64 bits). Part of the file format: tables are made at conversion.
constexpr uint64_t kTextHashSeed = 0xcbf29ce484222325u;
constexpr uint64_t TextHashStep(uint64_t hash, char byte) {
  return (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
}
/// Mixes the upper bits down, since tables use the lowest bits.
constexpr uint64_t TextHashFinish(uint64_t hash) { return hash ^ (hash >> 32); }
constexpr uint64_t TextHash(std::string_view text) {
  uint64_t hash = kTextHashSeed;
  for (char byte : text) hash = TextHashStep(hash, byte);
  return TextHashFinish(hash);
}
/// Hash of a pair of ids. Part of the file format.
constexpr uint64_t PairHash(int32_t left, int32_t right) {
  uint64_t key = (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  key = (key ^ (key >> 31)) * 0x9e3779b97f4a7c15u;
  return key ^ (key >> 32);
}

/// A lookup looks at so many slots at most, whatever the table holds; the writer grows a table until it suffices.
constexpr uint32_t kMaxHashProbes = 256;

/// An added token of the file; its text is added_text[begin, end).
struct AddedTokenEntry {
  enum Flag : uint32_t { kSingleWord = 1, kLeftStrip = 2, kRightStrip = 4, kNormalized = 8, kSpecial = 16 };
  static constexpr uint32_t kAllFlags = 31;
  int32_t id;
  uint32_t flags;
  uint32_t begin, end;
};
static_assert(sizeof(AddedTokenEntry) == 16 && sizeof(TokenMerge) == 12);

/// What TokenizerSpec says, with everything that grows with the vocabulary as spans. Made by a reader that has checked
/// it: ids lie in [0, token_count()), offsets ascend and lie inside their bytes, tables have a power of two of slots.
/// Does not own the spans' bytes; their owner outlives the view.
struct TokenizerView {
  TokenizerKind kind = TokenizerKind::kNone;
  bool byte_level = false, byte_fallback = false, fuse_unk = false, ignore_merges = false;
  int32_t unk_id = -1, bos_id = -1, eos_id = -1, pad_id = -1;  // -1: none
  uint32_t max_token_bytes = 0;                                // of the tokens in vocabulary_slots

  std::span<const uint32_t> token_offsets;  // [n + 1] into token_text
  std::string_view token_text;
  std::span<const uint8_t> token_types;       // [n] TokenType
  std::span<const float> scores;              // [n] or empty
  std::span<const int32_t> vocabulary_slots;  // open addressing by TextHash, linear probing: an id or -1; may be empty
  std::span<const TokenMerge> merges;         // by rank
  std::span<const int32_t> merge_slots;       // open addressing by PairHash: an index into merges or -1; may be empty
  std::span<const AddedTokenEntry> added_tokens;  // ascending by text, texts distinct
  std::string_view added_text;
  std::span<const int32_t> prefix_ids, suffix_ids;

  // Small (at most kMaxSteps each), hence owned.
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<DecoderStep> decoder;

  int32_t token_count() const { return static_cast<int32_t>(token_types.size()); }
  bool HasToken(int32_t id) const { return id >= 0 && id < token_count(); }
  /// The token's text; `id` is in range.
  std::string_view TokenText(int32_t id) const {
    const auto i = static_cast<size_t>(id);
    return token_text.substr(token_offsets[i], token_offsets[i + 1] - token_offsets[i]);
  }
  TokenType Type(int32_t id) const { return static_cast<TokenType>(token_types[static_cast<size_t>(id)]); }
  std::string_view AddedText(const AddedTokenEntry& token) const {
    return added_text.substr(token.begin, token.end - token.begin);
  }

  /// The id that the model gives to `text`, or -1.
  int32_t FindToken(std::string_view text) const {
    return text.size() > max_token_bytes ? -1 : FindToken(text, TextHash(text));
  }
  int32_t FindToken(std::string_view text, uint64_t text_hash) const {
    const size_t mask = vocabulary_slots.size() - 1;  // no slots: the loop does not run
    for (uint32_t probe = 0; probe < kMaxHashProbes && probe <= mask && mask + 1 != 0; ++probe) {
      const int32_t id = vocabulary_slots[(text_hash + probe) & mask];
      if (id < 0 || TokenText(id) == text) return id;
    }
    return -1;
  }

  /// The rank (index into merges) of the pair, or -1.
  int32_t FindMerge(int32_t left, int32_t right) const {
    const size_t mask = merge_slots.size() - 1;
    const uint64_t hash = PairHash(left, right);
    for (uint32_t probe = 0; probe < kMaxHashProbes && probe <= mask && mask + 1 != 0; ++probe) {
      const int32_t rank = merge_slots[(hash + probe) & mask];
      if (rank < 0) return -1;
      const TokenMerge& merge = merges[static_cast<size_t>(rank)];
      if (merge.left == left && merge.right == right) return rank;
    }
    return -1;
  }
};

}  // namespace linnet

#endif  // LINNET_CORE_BASE_TOKENIZER_VIEW_H_
