// Public header. Typed errors: a small code, a static text and one integer; no heap, no formatting.
#ifndef LINNET_CORE_BASE_STATUS_H_
#define LINNET_CORE_BASE_STATUS_H_

#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include "core/base/check.h"

namespace linnet {

enum class StatusCode : uint8_t {
  kOk = 0,
  kInvalidArgument,  // the caller's argument
  kInvalidModel,     // the content of a model, checkpoint, tokenizer or template
  kUnsupported,      // well formed, but this build cannot run it
  kOutOfMemory,      // an arena or the machine has too little
  kContextFull,      // no room left in the KV cache
  kIoError,          // the operating system refused
  kCancelled,        // the caller's progress function asked to stop
  kInternal,         // a broken invariant of our own
};

/// The code's name as users read it, for example "invalid model".
const char* StatusCodeName(StatusCode code);

/// The outcome of an operation that can fail for a reason outside the code.
/// `message` points to static storage; `value` is one integer of context (a file offset, a count) or -1.
class [[nodiscard]] Status {
 public:
  constexpr Status() = default;
  constexpr Status(StatusCode code, const char* message, int64_t value = -1)
      : message_(message), value_(value), code_(code) {}

  static constexpr Status Ok() { return {}; }

  constexpr bool ok() const { return code_ == StatusCode::kOk; }
  constexpr StatusCode code() const { return code_; }
  constexpr const char* message() const { return message_; }
  constexpr int64_t value() const { return value_; }

 private:
  const char* message_ = "";
  int64_t value_ = -1;
  StatusCode code_ = StatusCode::kOk;
};

/// Either a value or a Status that is not Ok; the shape of std::expected.
/// Errors: value() on a failed Result is a broken invariant (LINNET_CHECK).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : has_value_(true) { new (&value_) T(std::move(value)); }  // NOLINT: implicit on purpose
  Result(Status status) : status_(status) {                                  // NOLINT: implicit on purpose
    LINNET_CHECK(!status.ok());
  }
  Result(Result&& other) noexcept : status_(other.status_), has_value_(other.has_value_) {
    if (has_value_) new (&value_) T(std::move(other.value_));
  }
  Result& operator=(Result&& other) noexcept {
    if (this == &other) return *this;
    this->~Result();
    new (this) Result(std::move(other));
    return *this;
  }
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  ~Result() {
    if (has_value_) value_.~T();
  }

  bool ok() const { return has_value_; }
  Status status() const { return has_value_ ? Status::Ok() : status_; }
  T& value() & {
    LINNET_CHECK(has_value_);
    return value_;
  }
  const T& value() const& {
    LINNET_CHECK(has_value_);
    return value_;
  }
  T&& value() && {
    LINNET_CHECK(has_value_);
    return std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  union {
    T value_;
  };
  Status status_;
  bool has_value_ = false;
};

}  // namespace linnet

#define LINNET_CONCAT_INNER(a, b) a##b
#define LINNET_CONCAT(a, b) LINNET_CONCAT_INNER(a, b)

/// Returns the Status from the enclosing function where it is not Ok.
#define LINNET_RETURN_IF_ERROR(expression)                \
  do {                                                    \
    const ::linnet::Status linnet_status_ = (expression); \
    if (!linnet_status_.ok()) return linnet_status_;      \
  } while (false)

/// Assigns the value of a Result, or returns its Status from the enclosing function.
#define LINNET_ASSIGN_OR_RETURN(declaration, expression) \
  LINNET_ASSIGN_OR_RETURN_INNER(LINNET_CONCAT(linnet_result_, __LINE__), declaration, expression)
#define LINNET_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                          \
  if (!result.ok()) return result.status();                            \
  declaration = std::move(result).value()

#endif  // LINNET_CORE_BASE_STATUS_H_
