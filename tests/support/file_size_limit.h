// A stand-in for a full disk.
#ifndef LINNET_TESTS_SUPPORT_FILE_SIZE_LIMIT_H_
#define LINNET_TESTS_SUPPORT_FILE_SIZE_LIMIT_H_

#include <sys/resource.h>

#include <csignal>

namespace linnet::testing {

/// Writes of this process beyond `bytes` of a file fail while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    previous_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &previous_);
    const rlimit limit = {bytes, previous_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &previous_);
    std::signal(SIGXFSZ, previous_handler_);
  }

 private:
  rlimit previous_ = {};
  void (*previous_handler_)(int) = nullptr;
};

}  // namespace linnet::testing

#endif  // LINNET_TESTS_SUPPORT_FILE_SIZE_LIMIT_H_
