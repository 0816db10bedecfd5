// Public header. Text -> double, the same for every C++ library and locale.
#ifndef LINNET_CORE_BASE_PARSE_DOUBLE_H_
#define LINNET_CORE_BASE_PARSE_DOUBLE_H_

#include <string_view>

namespace linnet {

/// True where all of `text` is a number as std::from_chars reads one (an optional minus sign, decimal digits, a
/// fraction, an exponent; inf, nan) that a double can hold. `value` is then the nearest double, else unchanged.
bool ParseDouble(std::string_view text, double* value);

}  // namespace linnet

#endif  // LINNET_CORE_BASE_PARSE_DOUBLE_H_
