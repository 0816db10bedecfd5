// Added tokens: tokens that are found in the text itself, before the model sees the rest. Internal to core.
#ifndef LINNET_CORE_TOKENIZER_ADDED_H_
#define LINNET_CORE_TOKENIZER_ADDED_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/tokenizer_view.h"

namespace linnet {

/// One set of added tokens (those that are searched in the text as given, or those in normalized text).
class AddedTokenSet {
 public:
  struct Entry {
    std::string_view text;  // not empty; points to bytes that outlive the set
    int32_t id;
    uint32_t flags;  // AddedTokenEntry::Flag
  };
  struct Match {
    size_t begin = 0, end = 0;  // with the white space that the token takes
    int32_t id = -1;            // -1: no more matches
  };

  AddedTokenSet() = default;
  explicit AddedTokenSet(std::vector<Entry> entries);

  bool empty() const { return entries_.empty(); }
  /// The next token at or after `start`, where the text before `start` is taken: leftmost, then longest. Special tokens
  /// are skipped unless `parse_special`. Time: a byte of text costs at most the longest entry times log(entries).
  Match Find(std::string_view text, size_t start, bool parse_special) const;

  size_t memory_bytes() const { return entries_.capacity() * sizeof(Entry); }

 private:
  struct Range {
    uint32_t begin = 0, end = 0;
  };
  const Entry* LongestAt(std::string_view text, bool parse_special) const;

  std::vector<Entry> entries_;              // ascending by text
  std::array<Range, 256> first_byte_ = {};  // entries that start with a byte
};

}  // namespace linnet

#endif  // LINNET_CORE_TOKENIZER_ADDED_H_
