#include "core/tokenizer_bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "core/base/utf8.h"

namespace linnet {
namespace {

/// Maps floats onto integers so that higher scores give lower numbers.
uint32_t DescendingOrder(float score) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // + 0: both zeros compare equal
  const uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return std::min(~ascending, UINT32_MAX - 1);  // the highest number means "no merge"
}

uint64_t MergeKey(uint32_t order, int32_t left) { return (uint64_t{order} << 32) | static_cast<uint32_t>(left); }

std::string_view ByteTokenText(uint32_t byte, std::array<char, 6>* buffer) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  *buffer = {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
  return {buffer->data(), buffer->size()};
}

}  // namespace

TokenizerBpe::TokenizerBpe(const TokenizerView& view)
    : view_(&view), by_score_(view.kind == TokenizerKind::kSentencePieceBpe) {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    single_byte_ids_[byte] = view.FindToken({&text, 1});
    std::array<char, 6> buffer;
    byte_token_ids_[byte] = view.byte_fallback ? view.FindToken(ByteTokenText(byte, &buffer)) : -1;
  }
  if (!view.byte_fallback || !by_score_) return;
  // By score, byte tokens are not part of the lookup table: text that looks like one must not become it.
  for (int32_t id = 0; id < view.token_count(); ++id) {
    if (view.Type(id) != TokenType::kByte) continue;
    const int byte = ByteOfByteToken(view.TokenText(id));
    if (byte >= 0) byte_token_ids_[static_cast<size_t>(byte)] = id;
  }
}

bool TokenizerBpe::HasByteTokens(std::string_view text) const {
  return view_->byte_fallback &&
         std::all_of(text.begin(), text.end(), [&](char c) { return byte_token_ids_[static_cast<uint8_t>(c)] >= 0; });
}

void TokenizerBpe::AddUnknown(uint32_t begin, uint32_t length, std::vector<Scratch::Symbol>* symbols) const {
  if (view_->unk_id < 0) return;
  if (view_->fuse_unk && !symbols->empty() && symbols->back().id == view_->unk_id) {
    symbols->back().length += length;
  } else {
    symbols->push_back({begin, length, view_->unk_id, -1, -1, Scratch::kNoMerge, -1});
  }
}

void TokenizerBpe::AddCharacter(std::string_view piece, uint32_t begin, uint32_t length,
                                std::vector<Scratch::Symbol>* symbols) const {
  const std::string_view text = piece.substr(begin, length);
  const int32_t id = length == 1 ? single_byte_ids_[static_cast<uint8_t>(text[0])] : view_->FindToken(text);
  if (id >= 0 || by_score_) {
    symbols->push_back({begin, length, id, -1, -1, Scratch::kNoMerge, -1});
  } else if (HasByteTokens(text)) {
    for (uint32_t i = 0; i < length; ++i) {
      symbols->push_back({begin + i, 1, byte_token_ids_[static_cast<uint8_t>(text[i])], -1, -1, Scratch::kNoMerge, -1});
    }
  } else {
    AddUnknown(begin, length, symbols);
  }
}

void TokenizerBpe::MakeSymbols(std::string_view piece, std::vector<Scratch::Symbol>* symbols) const {
  symbols->clear();
  for (uint32_t i = 0; i < piece.size();) {
    const uint32_t length = view_->byte_level ? 1 : std::max(1u, DecodeUtf8(piece.substr(i, 4)).length);
    AddCharacter(piece, i, length, symbols);
    i += length;
  }
  const auto count = static_cast<int32_t>(symbols->size());
  for (int32_t i = 0; i < count; ++i) {
    (*symbols)[static_cast<size_t>(i)].previous = i - 1;
    (*symbols)[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
}

/// Looks up the merge of `left` with its next symbol.
void TokenizerBpe::FindPair(std::string_view piece, std::vector<Scratch::Symbol>* symbols, int32_t left) const {
  Scratch::Symbol& a = (*symbols)[static_cast<size_t>(left)];
  a.order = Scratch::kNoMerge;
  if (a.next < 0) return;
  const Scratch::Symbol& b = (*symbols)[static_cast<size_t>(a.next)];
  if (by_score_) {
    a.result = view_->FindToken(piece.substr(a.begin, a.length + b.length));
    if (a.result >= 0) a.order = DescendingOrder(view_->scores[static_cast<size_t>(a.result)]);
    return;
  }
  const int32_t rank = view_->FindMerge(a.id, b.id);
  if (rank < 0) return;
  a.order = static_cast<uint32_t>(rank);
  a.result = view_->merges[static_cast<size_t>(rank)].result;
}

void TokenizerBpe::MergeAt(std::string_view piece, int32_t left, Scratch* scratch) const {
  auto& symbols = scratch->symbols;
  Scratch::Symbol& a = symbols[static_cast<size_t>(left)];
  Scratch::Symbol& b = symbols[static_cast<size_t>(a.next)];
  a.length += b.length;
  a.id = a.result;
  a.next = b.next;
  b.length = 0;
  b.order = Scratch::kNoMerge;
  if (a.next >= 0) symbols[static_cast<size_t>(a.next)].previous = left;
  for (const int32_t changed : {a.previous, left}) {
    if (changed < 0) continue;
    FindPair(piece, &symbols, changed);
    const uint32_t order = symbols[static_cast<size_t>(changed)].order;
    if (order == Scratch::kNoMerge) continue;
    scratch->later_merges.push_back(MergeKey(order, changed));
    std::push_heap(scratch->later_merges.begin(), scratch->later_merges.end(), std::greater<>());
  }
}

void TokenizerBpe::Merge(std::string_view piece, Scratch* scratch) const {
  auto& [symbols, first, later] = *scratch;
  first.clear();
  later.clear();
  for (size_t i = 0; i < symbols.size(); ++i) {
    FindPair(piece, &symbols, static_cast<int32_t>(i));
    if (symbols[i].order != Scratch::kNoMerge) first.push_back(MergeKey(symbols[i].order, static_cast<int32_t>(i)));
  }
  std::sort(first.begin(), first.end());
  for (size_t next = 0; next < first.size() || !later.empty();) {
    uint64_t key = 0;
    if (later.empty() || (next < first.size() && first[next] < later.front())) {
      key = first[next++];
    } else {
      key = later.front();
      std::pop_heap(later.begin(), later.end(), std::greater<>());
      later.pop_back();
    }
    const auto left = static_cast<int32_t>(key & UINT32_MAX);
    const uint32_t order = symbols[static_cast<size_t>(left)].order;
    if (order == key >> 32 && order != Scratch::kNoMerge) MergeAt(piece, left, scratch);
  }
}

void TokenizerBpe::AppendIds(std::string_view piece, const std::vector<Scratch::Symbol>& symbols,
                             std::vector<int32_t>* out) const {
  bool after_unknown = false;
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    const Scratch::Symbol& symbol = symbols[static_cast<size_t>(i)];
    const bool unknown = symbol.id < 0 && !HasByteTokens(piece.substr(symbol.begin, symbol.length));
    if (symbol.id >= 0) {
      out->push_back(symbol.id);
    } else if (!unknown) {
      for (char c : piece.substr(symbol.begin, symbol.length)) out->push_back(byte_token_ids_[static_cast<uint8_t>(c)]);
    } else if (view_->unk_id >= 0 && !(after_unknown && view_->fuse_unk)) {
      out->push_back(view_->unk_id);
    }
    after_unknown = unknown;
  }
}

void TokenizerBpe::Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* out) const {
  if (view_->ignore_merges) {
    const int32_t id = view_->FindToken(piece);
    if (id >= 0) {
      out->push_back(id);
      return;
    }
  }
  MakeSymbols(piece, &scratch->symbols);
  if (scratch->symbols.empty()) return;
  if (scratch->symbols.size() > 1) Merge(piece, scratch);
  AppendIds(piece, scratch->symbols, out);
}

}  // namespace linnet
