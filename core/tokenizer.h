// Public header. Text -> token ids -> text, from a checked description of a tokenizer.
#ifndef LINNET_CORE_TOKENIZER_H_
#define LINNET_CORE_TOKENIZER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "core/base/tokenizer_view.h"

namespace linnet {

struct EncodeOptions {
  bool add_special = false;  // put the model's prefix and suffix tokens (bos, eos) around the text
  bool parse_special =
      false;  // special tokens written in the text become those tokens: for templates, not for a user's text
};

/// Read-only after Create; one Tokenizer may be used from several threads. Move-only.
class Tokenizer {
 public:
  /// Texts are cut off here so that positions fit 32 bits.
  static constexpr size_t kMaxTextBytes = size_t{1} << 30;

  /// Prepares a checked view (kind other than kNone): compiles its patterns, normalizes its added tokens. The bytes
  /// behind the view outlive the Tokenizer. Errors: kInvalidArgument (kind kNone), kInvalidModel (a pattern that does
  /// not compile), kUnsupported (a decoder that cannot work on a stream).
  static Result<Tokenizer> Create(TokenizerView view, Diagnostic* diagnostic);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Appends the ids of `text` to `out`. Bytes that are not UTF-8 are read as U+FFFD, one for each maximal invalid
  /// part. Time and memory grow with n log n at most, but for patterns that backtrack without end, which PCRE2's limits
  /// stop. Errors: kInvalidArgument (a longer text than kMaxTextBytes), kInvalidModel (a pattern that exceeds its
  /// limits); `out` is then as before.
  Status Encode(std::string_view text, const EncodeOptions& options, std::vector<int32_t>* out,
                Diagnostic* diagnostic = nullptr) const;

  /// The text of `ids`; invalid UTF-8 becomes U+FFFD, ids outside the vocabulary (padding rows of an embedding) become
  /// nothing. Equals what a StreamDecoder gives for the same ids.
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const;

  /// The text that the vocabulary has for `id`, as it is stored (byte-level tokens: any bytes); empty outside it.
  std::string_view TokenText(int32_t id) const;
  /// True for control and unknown tokens.
  bool IsSpecial(int32_t id) const;
  /// The id of a token whose text is `text`, an added token or one of the model; -1: none.
  int32_t FindId(std::string_view text) const;

  /// The number of ids: every id that Encode gives is less.
  int32_t vocab_size() const;
  int32_t bos_id() const;  // -1: none
  int32_t eos_id() const;  // -1: none
  std::span<const int32_t> prefix_ids() const;
  const TokenizerView& view() const;

  /// Heap that the Tokenizer keeps, compiled patterns included; the mapped vocabulary is not counted.
  size_t memory_bytes() const;

  struct Impl;  // core/tokenizer_impl.h, internal

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct StreamOptions {
  bool skip_special = true;
  bool at_start = true;  // the ids start a text; false: they continue one, so that no leading space is dropped
};

/// Text of a stream of ids, in whole code points. Holds back at most three bytes. The Tokenizer outlives it.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, const StreamOptions& options);

  /// Appends the text that `id` completes. Allocates only where `out` or the decoder's buffers (reserved when made for
  /// the longest token) must grow.
  void Push(int32_t id, std::string* out);
  /// Ends the text: bytes that are held back become one U+FFFD.
  void Flush(std::string* out);

 private:
  void PushText(std::string_view text, std::string* out);
  void PushByte(char byte, std::string* out);
  void Emit(std::string_view code_point, std::string* out);

  const Tokenizer* tokenizer_;
  StreamOptions options_;
  bool first_token_;
  uint32_t strip_left_;  // copies of the decoder's strip character that are still dropped
  uint32_t pending_count_ = 0;
  std::array<char, 4> pending_ = {};
  std::string token_, replaced_;  // one token's text while steps are applied
};

}  // namespace linnet

#endif  // LINNET_CORE_TOKENIZER_H_
