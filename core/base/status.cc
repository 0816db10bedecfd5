#include "core/base/status.h"

#include <cstdio>
#include <cstdlib>

namespace linnet {

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kInvalidModel:
      return "invalid model";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kOutOfMemory:
      return "out of memory";
    case StatusCode::kContextFull:
      return "context full";
    case StatusCode::kIoError:
      return "input/output error";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kInternal:
      return "internal error";
  }
  return "unknown status";
}

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "linnet: internal error: %s:%d: %s does not hold\n", file, line, condition);
  std::abort();
}

}  // namespace linnet
