#include "core/base/parse_double.h"

#ifdef __ANDROID__
#include <cerrno>
#include <cstdlib>
#include <string>
#else
#include <charconv>
#endif

namespace linnet {

#ifdef __ANDROID__

// The NDK's C++ library has no std::from_chars for double (LLVM got it in version 20). Android's C library knows no
// other decimal point than '.', whatever the locale; what strtod reads beyond from_chars is refused first.
bool ParseDouble(std::string_view text, double* value) {
  if (text.empty() || text[0] == '+' || text.find_first_of(" \t\n\v\f\rxX") != std::string_view::npos) return false;
  const std::string copy(text);
  char* end = nullptr;
  errno = 0;
  const double number = std::strtod(copy.c_str(), &end);
  if (errno == ERANGE || end != copy.c_str() + copy.size()) return false;
  *value = number;
  return true;
}

#else

bool ParseDouble(std::string_view text, double* value) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  *value = number;
  return true;
}

#endif

}  // namespace linnet
