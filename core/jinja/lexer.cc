#include "core/jinja/lexer.h"

#include <utility>

#include "core/base/utf8.h"
#include "core/jinja/text.h"

namespace linnet::jinja {
namespace {

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsNameCharacter(char c) { return IsNameStart(c) || IsDigit(c); }

/// "\r\n" and "\r" are line breaks as "\n" is; the last one of the template is dropped.
std::string NormalizeLines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text.push_back(source[i]);
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::vector<Token>* tokens, Diagnostic* diagnostic)
      : source_(NormalizeLines(source)), tokens_(tokens), diagnostic_(diagnostic) {}

  Status Run() {
    while (at_ < source_.size()) LINNET_RETURN_IF_ERROR(TextAndTag());
    Add(TokenKind::kEnd, {});
    return Status::Ok();
  }

 private:
  std::string_view Rest() const { return std::string_view(source_).substr(at_); }
  bool At(std::string_view text) const { return Rest().starts_with(text); }
  char Peek(size_t ahead) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  void Add(TokenKind kind, std::string text) { tokens_->push_back({kind, line_, std::move(text)}); }
  void Advance(size_t count) {
    for (size_t i = 0; i < count; ++i) line_ += source_[at_ + i] == '\n' ? 1 : 0;
    at_ += count;
  }
  Status Refuse(const char* why) const {
    return Fail(diagnostic_, StatusCode::kInvalidModel, "the chat template does not parse",
                "chat template, line %u: %s", line_, why);
  }

  /// The next tag's start at or after `from`.
  size_t FindTag(size_t from) const {
    for (size_t i = source_.find('{', from); i != std::string::npos; i = source_.find('{', i + 1)) {
      const char next = i + 1 < source_.size() ? source_[i + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return source_.size();
  }

  Status TextAndTag() {
    const size_t tag = FindTag(at_);
    std::string text = source_.substr(at_, tag - at_);
    const bool at_end = tag == source_.size();
    const char sign = at_end || tag + 2 >= source_.size() ? '\0' : source_[tag + 2];
    if (!at_end && sign == '-') {
      text = Strip(text, nullptr, false, true);
    } else if (!at_end && sign != '+' && source_[tag + 1] != '{') {
      StripLineStart(&text);
    }
    if (!text.empty()) Add(TokenKind::kText, std::move(text));
    Advance(tag - at_);
    if (at_end) return Status::Ok();
    const char kind = Peek(1);
    Advance(sign == '-' || (sign == '+' && kind != '{') ? 3 : 2);
    if (kind == '#') return Comment();
    if (kind == '{') return Tag(TokenKind::kVariableBegin, TokenKind::kVariableEnd, "}}");
    std::string_view rest = Rest();
    while (!rest.empty() && IsSpace(rest.front())) rest.remove_prefix(1);
    if (rest.starts_with("raw") && rest.size() > 3 && !IsNameCharacter(rest[3])) return Raw();
    return Tag(TokenKind::kBlockBegin, TokenKind::kBlockEnd, "%}");
  }

  /// lstrip_blocks: white space between the start of a line and a block or comment goes.
  void StripLineStart(std::string* text) const {
    const size_t line_start = text->rfind('\n') + 1;  // 0 where there is no line break
    if (line_start == 0 && !after_line_break_) return;
    if (LeadingSpaceBytes(std::string_view(*text).substr(line_start)) == text->size() - line_start)
      text->resize(line_start);
  }

  /// What follows a tag's end: "-" takes all white space, trim_blocks one line break.
  void AfterTag(bool strip, bool trim_line) {
    const size_t before = at_;
    if (strip) {
      Advance(LeadingSpaceBytes(Rest()));
    } else if (trim_line && Peek(0) == '\n') {
      Advance(1);
    }
    after_line_break_ = at_ > before && source_[at_ - 1] == '\n';
  }

  Status Comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return Refuse("a comment has no end");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    Advance(end + 2 - at_);
    AfterTag(sign == '-', sign != '+');
    return Status::Ok();
  }

  /// Steps over "NAME [-+]%}" and says which sign was there. False where something else stands there.
  bool SimpleBlock(std::string_view name, char* sign) {
    size_t i = at_;
    const auto skip_space = [&] {
      while (i < source_.size() && IsSpace(source_[i])) ++i;
    };
    skip_space();
    if (source_.compare(i, name.size(), name) != 0) return false;
    i += name.size();
    skip_space();
    *sign = i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i] : '\0';
    if (*sign != '\0') ++i;
    if (source_.compare(i, 2, "%}") != 0) return false;
    Advance(i + 2 - at_);
    return true;
  }

  Status Raw() {
    char sign = '\0';
    if (!SimpleBlock("raw", &sign)) return Refuse("expected %} behind raw");
    AfterTag(sign == '-', false);  // trim_blocks leaves the line break behind this tag
    const size_t begin = at_;
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
      Advance(tag - at_);
      const char left = Peek(2);
      Advance(left == '-' || left == '+' ? 3 : 2);
      if (!SimpleBlock("endraw", &sign)) continue;
      std::string text = source_.substr(begin, tag - begin);
      if (left == '-') {
        text = Strip(text, nullptr, false, true);
      } else if (left != '+') {
        StripLineStart(&text);
      }
      if (!text.empty()) Add(TokenKind::kText, std::move(text));
      AfterTag(sign == '-', sign != '+');
      return Status::Ok();
    }
    return Refuse("a raw block has no end");
  }

  Status Tag(TokenKind begin, TokenKind end_kind, std::string_view end) {
    Add(begin, {});
    size_t braces = 0;  // inside of braces and brackets "}}" does not end the tag
    while (at_ < source_.size()) {
      const char c = Peek(0);
      if (IsSpace(c)) {
        Advance(1);
        continue;
      }
      const bool signed_end = (c == '-' || (c == '+' && end == "%}")) && Rest().substr(1).starts_with(end);
      if (braces == 0 && (signed_end || At(end))) {
        Add(end_kind, {});
        Advance(signed_end ? 3 : 2);
        AfterTag(signed_end && c == '-', end == "%}" && !signed_end);
        return Status::Ok();
      }
      if (c == '(' || c == '[' || c == '{') ++braces;
      if ((c == ')' || c == ']' || c == '}') && braces > 0) --braces;
      LINNET_RETURN_IF_ERROR(ExpressionToken(c));
    }
    return Refuse("a tag has no end");
  }

  Status ExpressionToken(char c) {
    if (IsNameStart(c)) {
      size_t length = 1;
      while (IsNameCharacter(Peek(length))) ++length;
      return Take(TokenKind::kName, length);
    }
    if (IsDigit(c)) return Number();
    if (c == '\'' || c == '"') return String(c);
    for (const std::string_view op : {"**", "//", "==", "!=", ">=", "<="}) {
      if (At(op)) return Take(TokenKind::kOperator, 2);
    }
    if (std::string_view("+-*/%~[](){}<>=.:|,").find(c) == std::string_view::npos)
      return Refuse("an unknown character in a tag");
    return Take(TokenKind::kOperator, 1);
  }

  Status Take(TokenKind kind, size_t length) {
    Add(kind, source_.substr(at_, length));
    Advance(length);
    return Status::Ok();
  }

  Status Number() {
    size_t length = 0;
    bool is_float = false;
    const auto digits = [&] {
      while (IsDigit(Peek(length)) || (Peek(length) == '_' && IsDigit(Peek(length + 1)))) ++length;
    };
    digits();
    const bool after_dot =
        !tokens_->empty() && tokens_->back().kind == TokenKind::kOperator && tokens_->back().text == ".";
    if (!after_dot && Peek(length) == '.' && IsDigit(Peek(length + 1))) {
      is_float = true;
      ++length;
      digits();
    }
    const size_t exponent_sign = Peek(length + 1) == '+' || Peek(length + 1) == '-' ? 1 : 0;
    if ((Peek(length) == 'e' || Peek(length) == 'E') && IsDigit(Peek(length + 1 + exponent_sign))) {
      is_float = true;
      length += 1 + exponent_sign;
      digits();
    }
    std::string text = source_.substr(at_, length);
    std::erase(text, '_');
    Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
    Advance(length);
    return Status::Ok();
  }

  Status String(char quote) {
    std::string text;
    size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = Escape(i + 1, &text);
      } else {
        text.push_back(source_[i++]);
      }
    }
    if (i >= source_.size()) return Refuse("a string has no end");
    Add(TokenKind::kString, std::move(text));
    Advance(i + 1 - at_);
    return Status::Ok();
  }

  /// Appends what the escape at `i` (behind the backslash) stands for; returns where the text goes on.
  size_t Escape(size_t i, std::string* text) const {
    constexpr std::string_view kNames = "nrtabfv\\'\"0", kValues("\n\r\t\a\b\f\v\\'\"\0", 11);
    const char c = source_[i];
    if (c == '\n') return i + 1;
    if (const size_t named = kNames.find(c); named != std::string_view::npos) {
      text->push_back(kValues[named]);
      return i + 1;
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code_point = 0;
    size_t used = 0;
    for (; used < digits && i + 1 + used < source_.size(); ++used) {
      const int digit = HexDigit(source_[i + 1 + used]);
      if (digit < 0) break;
      code_point = code_point * 16 + static_cast<uint32_t>(digit);
    }
    if (digits == 0 || used != digits || code_point > 0x10ffff || (code_point >= 0xd800 && code_point < 0xe000)) {
      text->push_back('\\');  // Python keeps what it does not know
      return i;
    }
    AppendUtf8(code_point, text);
    return i + 1 + digits;
  }
  static int HexDigit(char c) {
    if (IsDigit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  }

  std::string source_;
  std::vector<Token>* tokens_;
  Diagnostic* diagnostic_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool after_line_break_ = true;  // the text so far ends a line, or is empty
};

}  // namespace

Status Tokenize(std::string_view source, std::vector<Token>* tokens, Diagnostic* diagnostic) {
  tokens->clear();
  return Lexer(source, tokens, diagnostic).Run();
}

}  // namespace linnet::jinja
