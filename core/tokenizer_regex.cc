#include "core/tokenizer_regex.h"

#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/utf8.h"

namespace linnet {
namespace {

// Backtracking steps that one match may take: PCRE2's own default, and some for each byte, since a run of white space
// that is given back byte by byte is ordinary.
constexpr uint32_t kMatchLimitBase = 10'000'000;
constexpr uint32_t kMatchLimitPerByte = 8;
constexpr uint32_t kHeapLimitKib = 256 * 1024;  // interpreter only; its frames are on the heap, never on the stack
constexpr size_t kJitStackStart = 32 * 1024, kJitStackMax = 8 * 1024 * 1024;  // mapped on demand

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Code = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

/// Rewrites what PCRE2 reads differently from Oniguruma, in whose (Ruby's) syntax tokenizer.json patterns are written:
/// - \s is Unicode's White_Space; PCRE2 counts U+180E too, so \s and \S are spelled out;
/// - X{1,3}+ repeats X{1,3}; PCRE2 takes the + for "possessive";
/// - \uHHHH is \x{HHHH}.
class OnigurumaSyntax {
 public:
  OnigurumaSyntax(std::string_view pattern, bool nested_classes) : pattern_(pattern), nested_classes_(nested_classes) {}

  std::string ToPcre2() {
    while (i_ < pattern_.size()) {
      switch (pattern_[i_]) {
        case '\\':
          atom_ = out_.size();
          CopyEscape(false);
          break;
        case '[':
          atom_ = out_.size();
          CopyClass();
          break;
        case '(':
          groups_.push_back(out_.size());
          out_.push_back(pattern_[i_++]);
          break;
        case ')':
          if (!groups_.empty()) {
            atom_ = groups_.back();
            groups_.pop_back();
          }
          out_.push_back(pattern_[i_++]);
          break;
        case '{':
          CopyBrace();
          break;
        case '*':
        case '+':
        case '?':
          out_.push_back(pattern_[i_++]);
          break;
        default:
          CopyCharacter();
      }
    }
    return std::move(out_);
  }

 private:
  static constexpr std::string_view kWhiteSpace = "\\x09-\\x0d\\x{85}\\p{Z}";

  bool At(size_t i, char c) const { return i < pattern_.size() && pattern_[i] == c; }

  void CopyCharacter() {
    atom_ = out_.size();
    const uint32_t length = std::max(1u, DecodeUtf8(pattern_.substr(i_, 4)).length);
    out_.append(pattern_.substr(i_, length));
    i_ += length;
  }

  void CopyEscape(bool in_class) {
    const char escaped = i_ + 1 < pattern_.size() ? pattern_[i_ + 1] : '\0';
    if (escaped == 's') {
      out_.append(in_class ? "" : "[").append(kWhiteSpace).append(in_class ? "" : "]");
    } else if (escaped == 'S' && !in_class) {
      out_.append("[^").append(kWhiteSpace).append("]");
    } else if (escaped == 'u' && i_ + 6 <= pattern_.size()) {
      out_.append("\\x{").append(pattern_.substr(i_ + 2, 4)).append("}");
      i_ += 4;
    } else {
      out_.append(pattern_.substr(i_, 2));
      const bool braced = (escaped == 'p' || escaped == 'P' || escaped == 'x') && At(i_ + 2, '{');
      if (braced) {
        const size_t end = std::min(pattern_.find('}', i_), pattern_.size() - 1);
        out_.append(pattern_.substr(i_ + 2, end - i_ - 1));
        i_ = end - 1;
      }
    }
    i_ = std::min(i_ + 2, pattern_.size());
  }

  void CopyClass() {
    size_t depth = 0;
    while (i_ < pattern_.size()) {
      const char c = pattern_[i_];
      if (c == '\\') {
        CopyEscape(true);
        continue;
      }
      if (c == '[' && depth > 0 && At(i_ + 1, ':')) {  // a POSIX class such as [:alpha:]
        const size_t end = pattern_.find(":]", i_ + 2);
        const size_t length = end == std::string_view::npos ? 1 : end + 2 - i_;
        out_.append(pattern_.substr(i_, length));
        i_ += length;
        continue;
      }
      out_.push_back(c);
      ++i_;
      if (c == '[' && (depth == 0 || nested_classes_)) {
        ++depth;
        if (At(i_, '^')) out_.push_back(pattern_[i_++]);
        if (At(i_, ']')) out_.push_back(pattern_[i_++]);  // a ] that comes first is literal
      } else if (c == ']' && --depth == 0) {
        return;
      }
    }
  }

  void CopyBrace() {
    size_t end = i_ + 1;
    while (end < pattern_.size() && ((pattern_[end] >= '0' && pattern_[end] <= '9') || pattern_[end] == ',')) ++end;
    if (end == i_ + 1 || !At(end, '}')) {
      CopyCharacter();  // no quantifier
      return;
    }
    const bool repeated = At(end + 1, '+');
    if (repeated) out_.insert(atom_, "(?:");
    out_.append(pattern_.substr(i_, end + 1 - i_));
    if (repeated) out_.append(")+");
    i_ = end + (repeated ? 2 : 1);
  }

  std::string_view pattern_;
  bool nested_classes_;
  size_t i_ = 0;
  std::string out_;
  size_t atom_ = 0;  // where the item that a quantifier would repeat starts in out_
  std::vector<size_t> groups_;
};

int ShownLength(std::string_view text) { return static_cast<int>(std::min<size_t>(text.size(), 120)); }

}  // namespace

struct TokenizerRegex::Impl {
  std::string literal;  // not empty: no expression at all
  Code code;
  bool jit = false;
};

struct TokenizerRegex::Scratch::Impl {
  MatchContext context;
  MatchData data;
  JitStack stack;
};

TokenizerRegex::Scratch::Scratch() = default;
TokenizerRegex::Scratch::~Scratch() = default;
TokenizerRegex::TokenizerRegex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TokenizerRegex::TokenizerRegex(TokenizerRegex&&) noexcept = default;
TokenizerRegex& TokenizerRegex::operator=(TokenizerRegex&&) noexcept = default;
TokenizerRegex::~TokenizerRegex() = default;

Result<TokenizerRegex> TokenizerRegex::Compile(std::string_view pattern, bool regex, Diagnostic* diagnostic) {
  auto impl = std::make_unique<Impl>();
  if (pattern.empty()) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a tokenizer pattern is empty", "tokenizer: a pattern is empty");
  }
  if (!regex) {
    impl->literal = pattern;
    return TokenizerRegex(std::move(impl));
  }
  // Class intersection as in Oniguruma; only where it is asked for, since it changes the meaning of "[" inside a class.
  const bool nested_classes = pattern.find("&&") != std::string_view::npos;
  const std::string translated = OnigurumaSyntax(pattern, nested_classes).ToPcre2();
  const uint32_t options =
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | (nested_classes ? PCRE2_ALT_EXTENDED_CLASS : 0u);
  const CompileContext context(pcre2_compile_context_create(nullptr));
  int error = 0;
  PCRE2_SIZE offset = 0;
  if (context != nullptr) {
    impl->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options, &error,
                                   &offset, context.get()));
  }
  if (impl->code == nullptr) {
    char reason[160] = "out of memory";
    if (error != 0) pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof(reason));
    return Fail(diagnostic, StatusCode::kInvalidModel, "a tokenizer pattern does not compile",
                "tokenizer: the pattern \"%.*s\" does not compile: %s (at offset %zu)", ShownLength(pattern),
                pattern.data(), reason, static_cast<size_t>(offset));
  }
  // Where the system forbids making code, the interpreter does the work.
  impl->jit = pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return TokenizerRegex(std::move(impl));
}

Result<TokenizerRegex::Match> TokenizerRegex::Find(std::string_view text, size_t start, Scratch* scratch,
                                                   Diagnostic* diagnostic) const {
  if (!impl_->literal.empty()) {
    const size_t begin = text.find(impl_->literal, start);
    if (begin == std::string_view::npos) return Match{};
    return Match{begin, begin + impl_->literal.size(), true};
  }
  if (scratch->impl_ == nullptr) {
    scratch->impl_ = std::make_unique<Scratch::Impl>();
    Scratch::Impl& made = *scratch->impl_;
    made.context.reset(pcre2_match_context_create(nullptr));
    made.data.reset(pcre2_match_data_create(1, nullptr));  // the whole match is all that is asked for
    made.stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr));
  }
  Scratch::Impl& own = *scratch->impl_;
  if (own.context == nullptr || own.data == nullptr) {
    return Fail(diagnostic, StatusCode::kOutOfMemory, "no memory to match a pattern", "tokenizer: out of memory");
  }
  const uint64_t limit = kMatchLimitBase + uint64_t{kMatchLimitPerByte} * text.size();
  pcre2_set_match_limit(own.context.get(), static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX)));
  pcre2_set_heap_limit(own.context.get(), kHeapLimitKib);
  if (own.stack != nullptr) pcre2_jit_stack_assign(own.context.get(), nullptr, own.stack.get());
  const auto match = [&](uint32_t options) {
    return pcre2_match(impl_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                       options | PCRE2_NO_UTF_CHECK, own.data.get(), own.context.get());
  };
  int count = match(0);
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = match(PCRE2_NO_JIT);
  if (count == PCRE2_ERROR_NOMATCH) return Match{};
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(own.data.get());
  if (count < 0 || ends[0] < start || ends[1] < ends[0]) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a tokenizer pattern exceeds its limits",
                "tokenizer: a pattern fails on a text of %zu bytes (PCRE2 error %d): it backtracks without end",
                text.size(), count);
  }
  return Match{ends[0], ends[1], true};
}

size_t TokenizerRegex::memory_bytes() const {
  size_t bytes = sizeof(Impl) + impl_->literal.capacity();
  size_t part = 0;
  if (impl_->code != nullptr && pcre2_pattern_info(impl_->code.get(), PCRE2_INFO_SIZE, &part) == 0) bytes += part;
  if (impl_->jit && pcre2_pattern_info(impl_->code.get(), PCRE2_INFO_JITSIZE, &part) == 0) bytes += part;
  return bytes;
}

}  // namespace linnet
