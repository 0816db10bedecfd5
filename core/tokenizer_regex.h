// Regular expressions of tokenizers: PCRE2 behind a small interface. Internal to core.
#ifndef LINNET_CORE_TOKENIZER_REGEX_H_
#define LINNET_CORE_TOKENIZER_REGEX_H_

#include <cstddef>
#include <memory>
#include <string_view>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet {

/// A pattern with Unicode properties, or a literal text. Read-only after Compile.
class TokenizerRegex {
 public:
  struct Match {
    size_t begin = 0, end = 0;
    bool found = false;
  };
  /// What one caller needs to match: reused over all calls of one Encode, never shared between threads.
  class Scratch {
   public:
    Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch();

   private:
    friend class TokenizerRegex;
    struct Impl;
    std::unique_ptr<Impl> impl_;  // made by the first match
  };

  /// Compiles `pattern`: with `regex`, in the syntax that tokenizer.json files use (Oniguruma's, as far as PCRE2 shares
  /// it; \s is Unicode's White_Space); without, the text itself. Errors: kInvalidModel with the reason and its offset.
  static Result<TokenizerRegex> Compile(std::string_view pattern, bool regex, Diagnostic* diagnostic);

  TokenizerRegex(TokenizerRegex&&) noexcept;
  TokenizerRegex& operator=(TokenizerRegex&&) noexcept;
  ~TokenizerRegex();

  /// The first match at or after `start` in `text`, valid UTF-8; lookbehind sees what is before `start`.
  /// Errors: kInvalidModel where the pattern backtracks beyond its limits.
  Result<Match> Find(std::string_view text, size_t start, Scratch* scratch, Diagnostic* diagnostic) const;

  size_t memory_bytes() const;

 private:
  struct Impl;
  explicit TokenizerRegex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace linnet

#endif  // LINNET_CORE_TOKENIZER_REGEX_H_
