// What is behind the C API's handles, and how its functions check arguments and report failures.
#ifndef LINNET_CAPI_HANDLES_H_
#define LINNET_CAPI_HANDLES_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "capi/linnet.h"
#include "capi/packed_store.h"
#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "core/chat_template.h"
#include "core/sampler.h"
#include "core/session.h"
#include "core/tokenizer.h"
#include "formats/linnet/model_file.h"
#include "ops/thread_pool.h"
#include "platforms/mapped_output.h"

namespace linnet::capi {

/// What every handle made from a model shares. Fixed after opening, but for `packed`, which is set once.
struct ModelState {
  ModelState(formats::ModelFile opened, platform::AnonymousMemory copied)
      : copy(std::move(copied)), file(std::move(opened)), view(file.view()) {}

  void Log(linnet_log_level level, const char* line) const {
    if (log != nullptr) log(log_context, level, line);
  }

  platform::AnonymousMemory copy;  // the file's bytes where they could not be used where they are mapped, else empty
  formats::ModelFile file;
  ModelView view;
  std::string name, license;
  std::optional<Tokenizer> tokenizer;  // none: the model has none
  std::optional<ChatTemplate> chat_template;
  Status template_status;  // why the model's template cannot be used; ok where there is none
  Diagnostic template_reason;
  linnet_log_function log = nullptr;
  void* log_context = nullptr;

  std::mutex packed_mutex;               // held while weights are packed
  std::atomic<std::thread::id> loading;  // the thread that holds it: its callbacks must not wait for it
  std::optional<PackedStore> packed;     // set once, before `loaded`
  std::atomic<bool> loaded{false};
};

/// One line of failure besides those of core: what the caller's fault is.
inline Status Misuse(Diagnostic* diagnostic, const char* line) {
  return Fail(diagnostic, StatusCode::kInvalidArgument, "a wrong call", "%s", line);
}

/// Writes the outcome to the caller's error (may be null) and returns its code.
linnet_status Report(const Status& status, const Diagnostic& diagnostic, linnet_error* error);
linnet_status ReportTooSmall(size_t needed, size_t capacity, linnet_error* error);

/// Runs `function(Diagnostic*) -> Status` and reports. Nothing in Linnet throws but the C++ library where the heap is
/// exhausted: that ends here.
template <typename Function>
linnet_status Guarded(linnet_error* error, const Function& function) {
  Diagnostic diagnostic;
  Status status;
  try {
    status = function(&diagnostic);
  } catch (const std::bad_alloc&) {
    status = {StatusCode::kOutOfMemory, "the heap is exhausted"};
  } catch (...) {
    status = {StatusCode::kInternal, "an unexpected exception"};
  }
  return Report(status, diagnostic, error);
}

/// Copies the caller's struct, which begins with its size, over `options` (zeros: defaults). Null is all defaults.
/// Errors: kInvalidArgument for a size that no version has, kUnsupported where fields that are unknown here are set.
template <typename Options>
Status ReadOptions(const Options* caller, const char* name, Options* options, Diagnostic* diagnostic) {
  std::memset(options, 0, sizeof(Options));
  options->struct_size = sizeof(Options);
  if (caller == nullptr) return Status::Ok();
  constexpr size_t kMaxStructBytes = 4096;
  const size_t size = caller->struct_size;
  if (size < sizeof(size_t) || size > kMaxStructBytes) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "a struct of no known size",
                "%s: expected struct_size to be sizeof(%s), %zu in this version, found %zu", name, name,
                sizeof(Options), size);
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(caller);
  for (size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return Fail(diagnostic, StatusCode::kUnsupported, "a field of a newer version",
                "%s: expected zero from byte %zu on, which API version %d does not know, found %d at byte %zu", name,
                sizeof(Options), LINNET_API_VERSION, bytes[i], i);
  }
  std::memcpy(options, caller, std::min(size, sizeof(Options)));
  return Status::Ok();
}

/// Writes a report into the caller's struct, as far as that goes. Errors: as ReadOptions.
template <typename Info>
Status WriteReport(const Info& report, const char* name, Info* caller, Diagnostic* diagnostic) {
  Info unused;
  if (caller == nullptr) return Fail(diagnostic, StatusCode::kInvalidArgument, "a null argument", "%s: null", name);
  LINNET_RETURN_IF_ERROR(ReadOptions(caller, name, &unused, diagnostic));
  const size_t size = caller->struct_size;
  std::memcpy(caller, &report, std::min(size, sizeof(Info)));
  caller->struct_size = size;
  return Status::Ok();
}

/// Copies `source` and a NUL to the caller's buffer. *text_bytes is what it needs without the NUL.
/// Returns LINNET_BUFFER_TOO_SMALL where it does not fit.
linnet_status CopyText(std::string_view source, char* text, size_t capacity, size_t* text_bytes, linnet_error* error);

/// Errors: kInvalidArgument where the options are out of range.
Result<Plan> PlanFor(const ModelState& model, const linnet_session_options* options, Diagnostic* diagnostic);

}  // namespace linnet::capi

struct linnet_model {
  std::shared_ptr<linnet::capi::ModelState> state;
};

struct linnet_decoder {
  std::shared_ptr<const linnet::capi::ModelState> model;
  linnet::StreamOptions options;
  std::optional<linnet::StreamDecoder> decoder;
  std::string text;  // of the last call
};

struct linnet_sampler {
  std::vector<uint64_t> memory;
  std::optional<linnet::Sampler> sampler;
  size_t vocab_size = 0;
};

struct linnet_session {
  // Destroyed last to first: the session before what it refers to.
  std::shared_ptr<const linnet::capi::ModelState> model;
  linnet::platform::AnonymousMemory memory;
  std::optional<linnet::ops::ThreadPool> pool;
  std::optional<linnet::Session> session;
  std::vector<int32_t> ids;  // of the sequence; reserved for the whole context, so that no call allocates
  uint32_t capacity = 0;
  std::atomic<uint32_t> position{0};
  std::atomic<bool> cancelled{false};
  mutable std::atomic<bool> in_use{false};
};

namespace linnet::capi {

/// Holds a session for one call. False where another call, or the callback of one, holds it.
class SessionLock {
 public:
  explicit SessionLock(const linnet_session& session)
      : in_use_(session.in_use), held_(!in_use_.exchange(true, std::memory_order_acquire)) {}
  ~SessionLock() {
    if (held_) in_use_.store(false, std::memory_order_release);
  }
  SessionLock(const SessionLock&) = delete;
  SessionLock& operator=(const SessionLock&) = delete;

  explicit operator bool() const { return held_; }

 private:
  std::atomic<bool>& in_use_;
  bool held_;
};

}  // namespace linnet::capi

#endif  // LINNET_CAPI_HANDLES_H_
