// Public header. The caller's place for the one line that explains a failure.
#ifndef LINNET_CORE_BASE_DIAGNOSTIC_H_
#define LINNET_CORE_BASE_DIAGNOSTIC_H_

#include <array>
#include <cstddef>

#include "core/base/status.h"

namespace linnet {

/// One line of text: what went wrong, where, what was expected, what was found. Status stays small and free of
/// heap; functions that read files fill a Diagnostic that the caller hands over. A null Diagnostic is allowed.
class Diagnostic {
 public:
  static constexpr size_t kCapacity = 1024;  // one line; longer texts are cut

  const char* text() const { return text_.data(); }
  bool empty() const { return text_[0] == '\0'; }
  void Clear() { text_[0] = '\0'; }

  /// printf-style. Bytes below 0x20 that come from a file are shown as '?', so that one line stays one line.
  void Set(const char* format, ...) __attribute__((format(printf, 2, 3)));

 private:
  friend Status Fail(Diagnostic*, StatusCode, const char*, const char*, ...);
  std::array<char, kCapacity> text_ = {};
};

/// Fills `diagnostic` (may be null) and returns a Status with `code` and the static `message`.
Status Fail(Diagnostic* diagnostic, StatusCode code, const char* message, const char* format, ...)
    __attribute__((format(printf, 4, 5)));

}  // namespace linnet

#endif  // LINNET_CORE_BASE_DIAGNOSTIC_H_
