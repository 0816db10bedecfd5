// What every fuzzer shares: the entry point, and a reader that turns bytes into arguments.
#ifndef LINNET_TESTS_FUZZ_FUZZ_H_
#define LINNET_TESTS_FUZZ_FUZZ_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/base/check.h"

/// Runs one input. A failed LINNET_CHECK, a sanitizer's report or a hang is a finding; the result is always 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace linnet::fuzz {

/// Takes an input apart from the front. What is not there reads as zeros, so that every input means something.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}

  template <typename T>
  T Take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value = {};
    TakeInto(&value, sizeof(T));
    return value;
  }
  /// Of two bytes; `limit` is above 0.
  size_t TakeBelow(size_t limit) { return Take<uint16_t>() % limit; }
  bool TakeBool() { return (Take<uint8_t>() & 1) != 0; }
  /// The bytes before the next zero byte, which is passed over; all where there is none.
  std::string_view TakeText() {
    const std::string_view text = RestText();
    const size_t length = std::min(text.find('\0'), text.size());
    rest_ = rest_.subspan(std::min(length + 1, rest_.size()));
    return text.substr(0, length);
  }
  bool empty() const { return rest_.empty(); }
  std::span<const std::byte> Rest() const { return std::as_bytes(rest_); }
  std::string_view RestText() const {
    return rest_.empty() ? std::string_view()
                         : std::string_view(reinterpret_cast<const char*>(rest_.data()), rest_.size());
  }
  std::span<const std::byte> TakeBytes(size_t count) {
    const auto bytes = std::as_bytes(rest_).first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(bytes.size());
    return bytes;
  }

 private:
  void TakeInto(void* out, size_t size) {
    const std::span<const std::byte> bytes = TakeBytes(size);
    if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
  }

  std::span<const uint8_t> rest_;
};

/// A refusal explains itself in one line.
inline void CheckRefusal(const char* text) {
  LINNET_CHECK(text[0] != '\0');
  LINNET_CHECK(std::strchr(text, '\n') == nullptr);
}

/// Reads every byte, so that a view outside its memory is found by AddressSanitizer.
inline void Touch(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const std::byte byte : bytes) sum += static_cast<unsigned>(byte);
  volatile unsigned sink = sum;
  (void)sink;
}

}  // namespace linnet::fuzz

#endif  // LINNET_TESTS_FUZZ_FUZZ_H_
