// Encodes and decodes with any accepted tokenizer.
#ifndef LINNET_TESTS_FUZZ_USE_TOKENIZER_H_
#define LINNET_TESTS_FUZZ_USE_TOKENIZER_H_

#include <cstddef>
#include <span>
#include <string_view>

namespace linnet::fuzz {

/// Reads `section` (at a multiple of 16); where it is accepted, encodes `text` in every mode and decodes the ids whole
/// and as a stream. Returns whether the section was accepted.
bool UseTokenizer(std::span<const std::byte> section, std::string_view text);

}  // namespace linnet::fuzz

#endif  // LINNET_TESTS_FUZZ_USE_TOKENIZER_H_
