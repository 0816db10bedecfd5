#include "core/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdio>

#include "core/base/utf8.h"
#include "core/jinja/value.h"

namespace linnet::jinja {
namespace {

bool IsPythonSpace(uint32_t c) { return IsWhiteSpace(c) || (c >= 0x1c && c <= 0x1f); }

size_t LastCodePoint(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
  return begin;
}

uint32_t Cased(uint32_t c, bool upper) {
  const auto code_point = static_cast<utf8proc_int32_t>(c);
  return static_cast<uint32_t>(upper ? utf8proc_toupper(code_point) : utf8proc_tolower(code_point));
}

struct CivilTime {
  int64_t year, month, day, hour, minute, second, weekday,
      day_of_year;  // month, day and day_of_year from 1; Sunday is 0
};

/// The proleptic Gregorian calendar, counted in eras of 400 years from the first of March of the year 0.
CivilTime CivilOf(int64_t unix_seconds) {
  const auto floor_divide = [](int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); };
  const int64_t days = floor_divide(unix_seconds, 86400), seconds = unix_seconds - days * 86400;
  const int64_t shifted = days + 719468, era = floor_divide(shifted, 146097), day_of_era = shifted - era * 146097;
  const int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t month_from_march = (5 * from_march + 2) / 153;
  CivilTime time{};
  time.day = from_march - (153 * month_from_march + 2) / 5 + 1;
  time.month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;
  time.year = year_of_era + era * 400 + (time.month <= 2 ? 1 : 0);
  time.hour = seconds / 3600;
  time.minute = seconds / 60 % 60;
  time.second = seconds % 60;
  time.weekday = ((days + 4) % 7 + 7) % 7;
  const bool leap = (time.year % 4 == 0 && time.year % 100 != 0) || time.year % 400 == 0;
  time.day_of_year = from_march + (time.month > 2 ? 60 + (leap ? 1 : 0) : -305);
  return time;
}

}  // namespace

std::string Strip(std::string_view text, const std::string* characters, bool left, bool right) {
  const auto strips = [&](std::string_view c) {
    return characters != nullptr ? characters->find(c) != std::string::npos : IsPythonSpace(DecodeUtf8(c).code_point);
  };
  while (left && !text.empty()) {
    const size_t length = OffsetOfCodePoint(text, 1);
    if (!strips(text.substr(0, length))) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    const size_t begin = LastCodePoint(text);
    if (!strips(text.substr(begin))) break;
    text = text.substr(0, begin);
  }
  return std::string(text);
}

size_t LeadingSpaceBytes(std::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size()) {
    const Utf8Result c = DecodeUtf8(text.substr(bytes, 4));
    if (!IsPythonSpace(c.code_point) || c.length == 0) break;
    bytes += c.length;
  }
  return bytes;
}

std::string ReplaceText(std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  std::string result;
  size_t begin = 0;
  for (; count != 0; --count) {
    // An empty `from` stands in front of every code point and at the end.
    const size_t end = from.empty() ? begin : text.find(from, begin);
    if (end == std::string_view::npos || (from.empty() && begin > text.size())) break;
    result.append(text.substr(begin, end - begin)).append(to);
    begin = end + from.size();
    if (from.empty()) {
      if (begin == text.size()) return result;
      const size_t length = OffsetOfCodePoint(text.substr(begin), 1);
      result.append(text.substr(begin, length));
      begin += length;
    }
  }
  if (begin <= text.size()) result.append(text.substr(begin));
  return result;
}

std::string ChangeCase(std::string_view text, bool upper) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const Utf8Result c = DecodeUtf8(text.substr(i, 4));
    if (upper && c.code_point == 0xdf) {
      result += "SS";  // the sharp s
    } else {
      AppendUtf8(Cased(c.code_point, upper), &result);
    }
    i += std::max(1u, c.length);
  }
  return result;
}

std::string Capitalize(std::string_view text) {
  const size_t first = OffsetOfCodePoint(text, 1);
  return ChangeCase(text.substr(0, first), true) + ChangeCase(text.substr(first), false);
}

std::vector<std::string> SplitLines(std::string_view text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Result c = DecodeUtf8(text.substr(i, 4));
    const uint32_t p = c.code_point;
    size_t length = std::max(1u, c.length);
    const bool breaks = (p >= 0x0a && p <= 0x0d) || (p >= 0x1c && p <= 0x1e) || p == 0x85 || p == 0x2028 || p == 0x2029;
    if (breaks) {
      lines.emplace_back(text.substr(begin, i - begin));
      if (p == '\r' && i + 1 < text.size() && text[i + 1] == '\n') ++length;
      begin = i + length;
    }
    i += length;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string Concat(std::initializer_list<std::string_view> parts) {
  std::string result;
  for (const std::string_view part : parts) result += part;
  return result;
}

std::string FormatTime(int64_t unix_seconds, std::string_view format) {
  static constexpr const char* kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                            "July",    "August",   "September", "October", "November", "December"};
  static constexpr const char* kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
  // Years of four digits; what lies beyond is of no use in a prompt.
  const CivilTime time = CivilOf(std::clamp<int64_t>(unix_seconds, -62135596800, 253402300799));
  std::string result;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      result.push_back(format[i]);
      continue;
    }
    const bool unpadded = format[i + 1] == '-' && i + 2 < format.size();
    i += unpadded ? 2 : 1;
    const auto number = [&](int64_t value, int width) {
      char buffer[24];
      std::snprintf(buffer, sizeof(buffer), "%0*lld", unpadded ? 1 : width, static_cast<long long>(value));
      result += buffer;
    };
    const int64_t hour12 = time.hour % 12 == 0 ? 12 : time.hour % 12;
    switch (format[i]) {
      case 'Y':
        number(time.year, 4);
        break;
      case 'y':
        number(time.year % 100, 2);
        break;
      case 'm':
        number(time.month, 2);
        break;
      case 'd':
        number(time.day, 2);
        break;
      case 'j':
        number(time.day_of_year, 3);
        break;
      case 'H':
        number(time.hour, 2);
        break;
      case 'I':
        number(hour12, 2);
        break;
      case 'M':
        number(time.minute, 2);
        break;
      case 'S':
        number(time.second, 2);
        break;
      case 'p':
        result += time.hour < 12 ? "AM" : "PM";
        break;
      case 'B':
        result += kMonths[time.month - 1];
        break;
      case 'b':
        result += std::string_view(kMonths[time.month - 1]).substr(0, 3);
        break;
      case 'A':
        result += kDays[time.weekday];
        break;
      case 'a':
        result += std::string_view(kDays[time.weekday]).substr(0, 3);
        break;
      case 'Z':
        result += "UTC";
        break;
      case 'z':
        result += "+0000";
        break;
      case '%':
        result += '%';
        break;
      case 'F':
        result += FormatTime(unix_seconds, "%Y-%m-%d");
        break;
      case 'T':
        result += FormatTime(unix_seconds, "%H:%M:%S");
        break;
      default:
        result.append("%").push_back(format[i]);
    }
  }
  return result;
}

}  // namespace linnet::jinja
