// Byte pair encoding of one piece of text. Internal to core.
#ifndef LINNET_CORE_TOKENIZER_BPE_H_
#define LINNET_CORE_TOKENIZER_BPE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/tokenizer_view.h"

namespace linnet {

/// Merges by rank (TokenizerKind::kBpe) or by score (kSentencePieceBpe). The pairs that can merge wait in order and the
/// symbols form a linked list, so that n symbols take n log n steps, whatever the text.
class TokenizerBpe {
 public:
  /// Buffers of one Encode, reused from piece to piece.
  struct Scratch {
    struct Symbol {
      uint32_t begin, length;  // bytes of the piece; length 0: merged into its left neighbour
      int32_t id;              // -1: no token has this text (by score: it may still merge)
      int32_t previous, next;  // -1: none
      uint32_t order;          // of its merge with the next symbol, lower merges first; kNoMerge: they do not merge
      int32_t result;          // the token of that merge
    };
    static constexpr uint32_t kNoMerge = UINT32_MAX;
    std::vector<Symbol> symbols;
    // Possible merges as (order << 32 | left symbol), so that among equals the leftmost comes first. One whose order is
    // not its symbol's any more is out of date. What is there from the start is sorted once and read in a row, which
    // keeps the heap of later ones small: on a megabyte without a break that halves the time.
    std::vector<uint64_t> first_merges, later_merges;
  };

  /// `view` outlives the object.
  explicit TokenizerBpe(const TokenizerView& view);

  /// Appends the ids of `piece` (not empty; valid UTF-8, or any bytes where the vocabulary is byte-level).
  void Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* out) const;

 private:
  void MakeSymbols(std::string_view piece, std::vector<Scratch::Symbol>* symbols) const;
  void AddCharacter(std::string_view piece, uint32_t begin, uint32_t length,
                    std::vector<Scratch::Symbol>* symbols) const;
  void AddUnknown(uint32_t begin, uint32_t length, std::vector<Scratch::Symbol>* symbols) const;
  bool HasByteTokens(std::string_view text) const;
  void FindPair(std::string_view piece, std::vector<Scratch::Symbol>* symbols, int32_t left) const;
  void Merge(std::string_view piece, Scratch* scratch) const;
  void MergeAt(std::string_view piece, int32_t left, Scratch* scratch) const;
  void AppendIds(std::string_view piece, const std::vector<Scratch::Symbol>& symbols, std::vector<int32_t>* out) const;

  const TokenizerView* view_;
  bool by_score_;
  std::array<int32_t, 256> single_byte_ids_;  // of the one-byte text; -1: none
  std::array<int32_t, 256> byte_token_ids_;   // of "<0xHH>"; -1: none
};

}  // namespace linnet

#endif  // LINNET_CORE_TOKENIZER_BPE_H_
