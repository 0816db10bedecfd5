#include "core/tokenizer_added.h"

#include <utf8proc.h>

#include <algorithm>

#include "core/base/utf8.h"

namespace linnet {
namespace {

/// The first byte of the code point that ends before `end`.
size_t PreviousCodePoint(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
  return begin;
}

/// Letters, marks, decimal digits and connectors: what \w matches.
bool IsWordCharacter(uint32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c == 0x200c || c == 0x200d;
  }
}

bool IsSingleWord(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordCharacter(DecodeUtf8(text.substr(PreviousCodePoint(text, begin), 4)).code_point)) return false;
  return end >= text.size() || !IsWordCharacter(DecodeUtf8(text.substr(end, 4)).code_point);
}

size_t WithSpaceOnLeft(std::string_view text, size_t begin, size_t limit) {
  while (begin > limit) {
    const size_t previous = PreviousCodePoint(text, begin);
    if (previous < limit || !IsWhiteSpace(DecodeUtf8(text.substr(previous, 4)).code_point)) break;
    begin = previous;
  }
  return begin;
}

size_t WithSpaceOnRight(std::string_view text, size_t end) {
  while (end < text.size()) {
    const Utf8Result c = DecodeUtf8(text.substr(end, 4));
    if (c.length == 0 || !IsWhiteSpace(c.code_point)) break;
    end += c.length;
  }
  return end;
}

}  // namespace

AddedTokenSet::AddedTokenSet(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.text < b.text; });
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    Range& range = first_byte_[static_cast<uint8_t>(entries_[i].text[0])];
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
  }
}

const AddedTokenSet::Entry* AddedTokenSet::LongestAt(std::string_view text, bool parse_special) const {
  const Range& range = first_byte_[static_cast<uint8_t>(text[0])];
  auto low = entries_.begin() + range.begin;
  auto high = entries_.begin() + range.end;
  const Entry* longest = nullptr;
  // Entries of [low, high) share text[0, depth) with the text; the shortest of them come first.
  for (size_t depth = 1; low != high; ++depth) {
    for (; low != high && low->text.size() == depth; ++low) {
      const bool allowed = parse_special || (low->flags & AddedTokenEntry::kSpecial) == 0;
      if (allowed) longest = &*low;
    }
    if (depth == text.size()) break;
    const auto byte = static_cast<uint8_t>(text[depth]);
    const auto byte_of = [&](const Entry& entry) { return static_cast<uint8_t>(entry.text[depth]); };
    low = std::partition_point(low, high, [&](const Entry& entry) { return byte_of(entry) < byte; });
    high = std::partition_point(low, high, [&](const Entry& entry) { return byte_of(entry) == byte; });
  }
  return longest;
}

AddedTokenSet::Match AddedTokenSet::Find(std::string_view text, size_t start, bool parse_special) const {
  if (entries_.empty()) return {};
  for (size_t i = start; i < text.size();) {
    const Entry* entry = nullptr;
    if (first_byte_[static_cast<uint8_t>(text[i])].end != 0) entry = LongestAt(text.substr(i), parse_special);
    if (entry == nullptr) {
      ++i;
      continue;
    }
    const size_t end = i + entry->text.size();
    if ((entry->flags & AddedTokenEntry::kSingleWord) != 0 && !IsSingleWord(text, i, end)) {
      i = end;  // a match that is no word of its own is passed over whole
      continue;
    }
    return {(entry->flags & AddedTokenEntry::kLeftStrip) != 0 ? WithSpaceOnLeft(text, i, start) : i,
            (entry->flags & AddedTokenEntry::kRightStrip) != 0 ? WithSpaceOnRight(text, end) : end, entry->id};
  }
  return {};
}

}  // namespace linnet
