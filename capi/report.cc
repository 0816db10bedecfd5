#include <algorithm>
#include <cstdio>
#include <cstring>

#include "capi/handles.h"

namespace linnet::capi {
namespace {

static_assert(LINNET_OK == static_cast<int>(StatusCode::kOk));
static_assert(LINNET_INVALID_ARGUMENT == static_cast<int>(StatusCode::kInvalidArgument));
static_assert(LINNET_INVALID_MODEL == static_cast<int>(StatusCode::kInvalidModel));
static_assert(LINNET_UNSUPPORTED == static_cast<int>(StatusCode::kUnsupported));
static_assert(LINNET_OUT_OF_MEMORY == static_cast<int>(StatusCode::kOutOfMemory));
static_assert(LINNET_CONTEXT_FULL == static_cast<int>(StatusCode::kContextFull));
static_assert(LINNET_IO_ERROR == static_cast<int>(StatusCode::kIoError));
static_assert(LINNET_CANCELLED == static_cast<int>(StatusCode::kCancelled));
static_assert(LINNET_INTERNAL == static_cast<int>(StatusCode::kInternal));

}  // namespace

linnet_status Report(const Status& status, const Diagnostic& diagnostic, linnet_error* error) {
  const linnet_status code = static_cast<linnet_status>(status.code());
  if (error == nullptr) return code;
  std::memset(error, 0, sizeof(*error));
  error->status = code;
  error->value = status.ok() ? -1 : status.value();
  if (status.ok()) return code;
  if (diagnostic.empty()) {
    std::snprintf(error->message, sizeof(error->message), "%s", status.message());
  } else {
    std::snprintf(error->message, sizeof(error->message), "%.200s: %s", status.message(), diagnostic.text());
  }
  return code;
}

linnet_status ReportTooSmall(size_t needed, size_t capacity, linnet_error* error) {
  if (error != nullptr) {
    std::memset(error, 0, sizeof(*error));
    error->status = LINNET_BUFFER_TOO_SMALL;
    error->value = static_cast<int64_t>(needed);
    std::snprintf(error->message, sizeof(error->message), "the buffer is too small: expected capacity %zu, found %zu",
                  needed, capacity);
  }
  return LINNET_BUFFER_TOO_SMALL;
}

linnet_status CopyText(std::string_view source, char* text, size_t capacity, size_t* text_bytes, linnet_error* error) {
  *text_bytes = source.size();
  if (text == nullptr || capacity <= source.size()) {
    return ReportTooSmall(source.size() + 1, text == nullptr ? 0 : capacity, error);
  }
  std::memcpy(text, source.data(), source.size());
  text[source.size()] = '\0';
  return Report(Status::Ok(), {}, error);
}

}  // namespace linnet::capi

extern "C" {

uint32_t linnet_api_version(void) { return LINNET_API_VERSION; }
const char* linnet_version(void) { return LINNET_VERSION; }

const char* linnet_status_name(linnet_status status) {
  if (status == LINNET_BUFFER_TOO_SMALL) return "buffer too small";
  if (status < LINNET_OK || status > LINNET_INTERNAL) return "unknown status";
  return linnet::StatusCodeName(static_cast<linnet::StatusCode>(status));
}

}  // extern "C"
