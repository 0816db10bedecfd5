// Public header. UTF-8 and the byte-level alphabet: what tokenizers in core and their readers in formats share.
#ifndef LINNET_CORE_BASE_UTF8_H_
#define LINNET_CORE_BASE_UTF8_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace linnet {

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";  // U+FFFD

/// What the bytes at the start of a text are.
struct Utf8Result {
  uint32_t code_point = 0;
  uint32_t length = 0;      // > 0: a whole code point; 0: none
  uint32_t bad_length = 0;  // where length is 0: bytes that one U+FFFD stands for (a maximal prefix of a code point)
  bool incomplete = false;  // where length is 0: all of the text may be the start of a code point
};

/// Decodes the first code point of `text` (not empty). Surrogates, overlong forms and values over U+10FFFF are invalid.
constexpr Utf8Result DecodeUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, 0, false};
  if (lead < 0xc2 || lead > 0xf4) return {0, 0, 1, false};
  const uint32_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  uint32_t code_point = lead & (0xffu >> (length + 1));
  for (uint32_t i = 1; i < length; ++i) {
    if (i >= text.size()) return {0, 0, i, true};
    // The second byte has a narrower range where the first would allow overlong forms, surrogates or too much.
    const uint8_t low = i > 1 ? 0x80 : lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = i > 1 ? 0xbf : lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (byte(i) < low || byte(i) > high) return {0, 0, i, false};
    code_point = (code_point << 6) | (byte(i) & 0x3fu);
  }
  return {code_point, length, 0, false};
}

inline void AppendUtf8(uint32_t code_point, std::string* out) {
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
    return;
  }
  if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xc0 | (code_point >> 6)));
  } else {
    if (code_point < 0x10000) {
      out->push_back(static_cast<char>(0xe0 | (code_point >> 12)));
    } else {
      out->push_back(static_cast<char>(0xf0 | (code_point >> 18)));
      out->push_back(static_cast<char>(0x80 | ((code_point >> 12) & 0x3f)));
    }
    out->push_back(static_cast<char>(0x80 | ((code_point >> 6) & 0x3f)));
  }
  out->push_back(static_cast<char>(0x80 | (code_point & 0x3f)));
}

inline bool IsValidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<uint8_t>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const uint32_t length = DecodeUtf8(text.substr(i, 4)).length;
    if (length == 0) return false;
    i += length;
  }
  return true;
}

/// Appends `text` with U+FFFD in place of every maximal invalid part.
inline void AppendValidUtf8(std::string_view text, std::string* out) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Result result = DecodeUtf8(text.substr(i, 4));
    if (result.length != 0) {
      out->append(text.substr(i, result.length));
      i += result.length;
    } else {
      out->append(kReplacementCharacter);
      i += result.bad_length;
    }
  }
}

/// True for Unicode's White_Space property.
constexpr bool IsWhiteSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/// The byte-level alphabet of GPT-2: printable bytes of Latin-1 stand for themselves, the others for U+0100 and up.
constexpr bool IsByteOfItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}
constexpr std::array<uint16_t, 256> MakeByteAlphabet() {
  std::array<uint16_t, 256> alphabet = {};
  uint16_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte)
    alphabet[byte] = IsByteOfItself(byte) ? static_cast<uint16_t>(byte) : next++;
  return alphabet;
}
inline constexpr std::array<uint16_t, 256> kByteAlphabet = MakeByteAlphabet();

constexpr std::array<int16_t, 0x144> MakeByteOfCharacter() {
  std::array<int16_t, 0x144> bytes = {};
  for (int16_t& byte : bytes) byte = -1;
  for (size_t byte = 0; byte < 256; ++byte) bytes[kByteAlphabet[byte]] = static_cast<int16_t>(byte);
  return bytes;
}
inline constexpr std::array<int16_t, 0x144> kByteOfCharacter = MakeByteOfCharacter();

/// Appends the bytes that `text` stands for in the byte-level alphabet. False where a character is not of the alphabet;
/// `out` is then as before.
inline bool AppendBytesOfAlphabet(std::string_view text, std::string* out) {
  const size_t size_before = out->size();
  for (size_t i = 0; i < text.size();) {
    const Utf8Result result = DecodeUtf8(text.substr(i, 4));
    if (result.length == 0 || result.code_point >= kByteOfCharacter.size() || kByteOfCharacter[result.code_point] < 0) {
      out->resize(size_before);
      return false;
    }
    out->push_back(static_cast<char>(kByteOfCharacter[result.code_point]));
    i += result.length;
  }
  return true;
}

/// The value of "<0xHH>", or -1 where `text` is something else.
constexpr int ByteOfByteToken(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (size_t i = 3; i < 5; ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace linnet

#endif  // LINNET_CORE_BASE_UTF8_H_
