// Public header. A tokenizer as data, owned: what formats read from a source and the model file stores.
#ifndef LINNET_CORE_BASE_TOKENIZER_SPEC_H_
#define LINNET_CORE_BASE_TOKENIZER_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace linnet {

// Enumerators' values are part of the file format and never change; new ones go last.

enum class TokenizerKind : uint8_t {
  kNone = 0,              // the model has no tokenizer: only ids in, ids out
  kBpe = 1,               // pairs are merged in the order of a merge list (tokenizer.json's BPE, GGUF's "gpt2")
  kSentencePieceBpe = 2,  // pairs whose text is a token are merged by that token's score (GGUF's "llama")
};

enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,      // stands for text that has no token
  kControl = 3,      // special: hidden from the reader, recognized in text only where the caller allows it
  kUserDefined = 4,  // always recognized in text, shown to the reader
  kUnused = 5,       // an id without meaning (a hole in the vocabulary)
  kByte = 6,         // its text is "<0xHH>" and means that byte
};

enum class NormalizerKind : uint8_t {
  kNfc = 1,
  kNfd = 2,
  kNfkc = 3,
  kNfkd = 4,
  kLowercase = 5,
  kStripAccents = 6,  // removes combining marks (Unicode category M)
  kPrepend = 7,       // content + text, where text is not empty
  kReplace = 8,       // every match of pattern becomes content, taken literally
  kStripLeft = 9,     // white space at the start
  kStripRight = 10,   // white space at the end
};

/// One step on the text of a segment (the text between two added tokens).
struct NormalizerStep {
  NormalizerKind kind = NormalizerKind::kNfc;
  bool regex = false;   // kReplace: pattern is a regular expression, else literal text
  std::string pattern;  // kReplace
  std::string content;  // kPrepend, kReplace
  bool operator==(const NormalizerStep&) const = default;
};

enum class PreTokenizerKind : uint8_t {
  kSplit = 1,        // at matches of pattern, as behavior says
  kPrefixSpace = 2,  // a space before every piece that does not start with one
  kByteLevel = 3,  // later steps see each byte as a character of the byte-level alphabet (GPT-2); vocabularies of such
                   // tokenizers are stored as plain bytes, so that nothing is left to do where it is the last step
  kMetaspace = 4,  // spaces become pattern; pattern is put in front as prepend says; split before each if split is set
};

/// What becomes of a match; without invert the pattern finds delimiters.
enum class SplitBehavior : uint8_t {
  kIsolated = 0,  // a piece of its own
  kRemoved = 1,
  kMergedWithPrevious = 2,
  kMergedWithNext = 3,
  kContiguous = 4,  // neighbouring matches form one piece
};

enum class PrependScheme : uint8_t { kNever = 0, kFirst = 1, kAlways = 2 };  // kFirst: at the start of the whole text

struct PreTokenizerStep {
  PreTokenizerKind kind = PreTokenizerKind::kSplit;
  bool regex = false;   // kSplit: pattern is a regular expression, else literal text
  bool invert = false;  // kSplit: what lies between the matches is the delimiter
  bool split = true;    // kMetaspace
  SplitBehavior behavior = SplitBehavior::kIsolated;
  PrependScheme prepend = PrependScheme::kNever;
  std::string pattern;
  bool operator==(const PreTokenizerStep&) const = default;
};

enum class DecoderKind : uint8_t {
  kReplace = 1,       // in each token, literal pattern becomes content
  kByteFallback = 2,  // tokens of type kByte become their byte
  kFuse = 3,          // what follows sees one text
  kStrip = 4,         // up to `start` copies of content from the start and `stop` from the end, of each token or, after
                      // kFuse, of the whole text (then stop is 0, since text is decoded as it comes)
  kMetaspace = 5,     // pattern becomes a space; in the first token it is dropped unless prepend is kNever
};

/// Token texts are put one after another once every step has been applied. No step: the bytes as they are (byte level).
struct DecoderStep {
  DecoderKind kind = DecoderKind::kFuse;
  PrependScheme prepend = PrependScheme::kNever;
  uint32_t start = 0, stop = 0;
  std::string pattern, content;
  bool operator==(const DecoderStep&) const = default;
};

/// A token that is found in the text itself, before the model sees the rest; leftmost, then longest match.
struct AddedToken {
  int32_t id = 0;
  std::string content;       // not empty, UTF-8
  bool single_word = false;  // only between characters that form no word
  bool lstrip = false;       // takes white space on its left
  bool rstrip = false;       // takes white space on its right
  bool normalized = false;   // searched in the normalized text, else in the text as given
  bool special = false;      // searched only where the caller allows special tokens in text
  bool operator==(const AddedToken&) const = default;
};

/// A pair of token ids and the token that they become; its rank is its index, lower ranks first.
struct TokenMerge {
  int32_t left = 0, right = 0, result = 0;
  bool operator==(const TokenMerge&) const = default;
};

struct TokenizerSpec {
  // Limits; the reason is that each exceeds what any published tokenizer has, several times.
  static constexpr size_t kMaxTokens = size_t{1} << 22;
  static constexpr size_t kMaxMerges = size_t{1} << 23;
  static constexpr size_t kMaxTokenBytes = 4096;  // one token's text
  static constexpr size_t kMaxVocabularyBytes = size_t{1} << 28;
  static constexpr size_t kMaxAddedTokens = size_t{1} << 18;
  static constexpr size_t kMaxSteps = 64;  // of each of the three lists
  static constexpr size_t kMaxPatternBytes = size_t{1} << 16;
  static constexpr size_t kMaxAffixIds = 64;  // prefix_ids, suffix_ids

  TokenizerKind kind = TokenizerKind::kNone;

  // Vocabulary, indexed by id. Texts are what the token stands for: plain bytes for byte-level vocabularies.
  std::vector<std::string> tokens;
  std::vector<TokenType> types;    // as many as tokens
  std::vector<float> scores;       // as many as tokens where kind is kSentencePieceBpe, else empty
  std::vector<bool> lookup;        // as many as tokens: the model may produce this id from text (an added token outside
                                   // the model's vocabulary: false)
  std::vector<TokenMerge> merges;  // kBpe

  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<DecoderStep> decoder;
  std::vector<AddedToken> added_tokens;

  bool byte_level = false;     // the model's symbols are bytes, else UTF-8 characters
  bool byte_fallback = false;  // characters without a token become their "<0xHH>" tokens
  bool fuse_unk = false;       // neighbouring unknown characters become one unknown token
  bool ignore_merges = false;  // a piece that is a token is taken whole, whatever the merges say

  int32_t unk_id = -1;  // -1: none, unknown characters are dropped
  int32_t bos_id = -1, eos_id = -1, pad_id = -1;

  // What the post-processor puts around a text when special tokens are asked for.
  std::vector<int32_t> prefix_ids, suffix_ids;

  bool operator==(const TokenizerSpec&) const = default;
};

}  // namespace linnet

#endif  // LINNET_CORE_BASE_TOKENIZER_SPEC_H_
