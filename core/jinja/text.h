// Python's methods on text, by code points. Internal to core.
#ifndef LINNET_CORE_JINJA_TEXT_H_
#define LINNET_CORE_JINJA_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace linnet::jinja {

/// Python's strip: white space, or the code points of `characters` where it is not null.
std::string Strip(std::string_view text, const std::string* characters, bool left, bool right);
/// The bytes of white space at the start of a text.
size_t LeadingSpaceBytes(std::string_view text);
std::string ReplaceText(std::string_view text, std::string_view from, std::string_view to, int64_t count);
std::string ChangeCase(std::string_view text, bool upper);
std::string Capitalize(std::string_view text);
/// Python's splitlines() without the line ends.
std::vector<std::string> SplitLines(std::string_view text);
/// The parts one after another.
std::string Concat(std::initializer_list<std::string_view> parts);
/// strftime in UTC for the conversions that templates use.
std::string FormatTime(int64_t unix_seconds, std::string_view format);

}  // namespace linnet::jinja

#endif  // LINNET_CORE_JINJA_TEXT_H_
