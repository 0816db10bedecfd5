#include "core/base/diagnostic.h"

#include <cstdarg>
#include <cstdio>

namespace linnet {
namespace {

void Format(std::array<char, Diagnostic::kCapacity>& text, const char* format, va_list arguments) {
  std::vsnprintf(text.data(), text.size(), format, arguments);
  for (char* c = text.data(); *c != '\0'; ++c) {
    if (static_cast<unsigned char>(*c) < 0x20 || *c == 0x7f) *c = '?';
  }
}

}  // namespace

void Diagnostic::Set(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Format(text_, format, arguments);
  va_end(arguments);
}

Status Fail(Diagnostic* diagnostic, StatusCode code, const char* message, const char* format, ...) {
  if (diagnostic != nullptr) {
    va_list arguments;
    va_start(arguments, format);
    Format(diagnostic->text_, format, arguments);
    va_end(arguments);
  }
  return {code, message};
}

}  // namespace linnet
