// Template text -> tokens, with Jinja2's white space rules. Internal to core.
#ifndef LINNET_CORE_JINJA_LEXER_H_
#define LINNET_CORE_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::jinja {

enum class TokenKind : uint8_t {
  kText,           // outside of tags
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kName,
  kString,  // text: the value
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t line = 1;
  std::string text;
};

/// Cuts a template, valid UTF-8, into tokens; the last is kEnd. trim_blocks and lstrip_blocks are on, the last line
/// break of the template is dropped, comments and raw blocks are resolved. Errors: kInvalidModel with the line.
Status Tokenize(std::string_view source, std::vector<Token>* tokens, Diagnostic* diagnostic);

}  // namespace linnet::jinja

#endif  // LINNET_CORE_JINJA_LEXER_H_
