#include "platforms/console.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

namespace linnet::platform {
namespace {

// Written by signal handlers.
volatile sig_atomic_t g_interrupted = 0;
volatile sig_atomic_t g_terminated = 0;
// A byte in this pipe wakes a LineReader: a signal that came just before it waits, or that another thread took, would
// not.
int g_wake[2] = {-1, -1};

int g_scopes = 0;  // that are alive

void OnSignal(int number) {
  const int error = errno;
  if (number == SIGTERM) g_terminated = 1;
  g_interrupted = 1;
  // A full pipe has woken the reader already; without a pipe there is nobody to wake.
  if (g_wake[1] >= 0 && write(g_wake[1], "", 1) < 0) errno = 0;
  errno = error;
}

int DescriptorOf(Stream stream) {
  switch (stream) {
    case Stream::kInput:
      return STDIN_FILENO;
    case Stream::kOutput:
      return STDOUT_FILENO;
    case Stream::kError:
      return STDERR_FILENO;
  }
  return STDERR_FILENO;
}

void DrainWakePipe() {
  char bytes[64];
  while (g_wake[0] >= 0 && read(g_wake[0], bytes, sizeof(bytes)) > 0) {
  }
}

}  // namespace

struct InterruptScope::Previous {
  struct sigaction interrupt = {};
  struct sigaction terminate = {};
};

InterruptScope::InterruptScope() : previous_(std::make_unique<Previous>()) {
  if (g_scopes++ == 0) {
    g_interrupted = 0;
    g_terminated = 0;
    if (pipe2(g_wake, O_CLOEXEC | O_NONBLOCK) != 0) g_wake[0] = g_wake[1] = -1;
  }
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read at a prompt returns
  sigaction(SIGINT, &action, &previous_->interrupt);
  sigaction(SIGTERM, &action, &previous_->terminate);
}

InterruptScope::~InterruptScope() {
  sigaction(SIGINT, &previous_->interrupt, nullptr);
  sigaction(SIGTERM, &previous_->terminate, nullptr);
  if (--g_scopes > 0) return;
  for (int& end : g_wake) {
    if (end >= 0) close(end);
    end = -1;
  }
}

bool InterruptScope::Requested() { return g_interrupted != 0; }
bool InterruptScope::TerminateRequested() { return g_terminated != 0; }
void InterruptScope::Clear() {
  DrainWakePipe();
  g_interrupted = g_terminated;
}

void IgnoreWriteSignals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

void OccupyStandardStreams() {
  // Opened the wrong way round, so that using them is an error. The lowest free descriptor is taken first.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    if (open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

bool IsTerminal(Stream stream) { return isatty(DescriptorOf(stream)) == 1; }

size_t TerminalColumns(Stream stream) {
  winsize size = {};
  return ioctl(DescriptorOf(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

LineStatus LineReader::Read(size_t max_bytes, std::string* line) {
  while (true) {
    const size_t newline = pending_.find('\n', searched_);
    const bool whole = newline != std::string::npos;
    const size_t length = whole ? newline : pending_.size();
    skipping_ = skipping_ || length > max_bytes;
    if (whole || (ended_ && (length > 0 || skipping_))) {
      const LineStatus status = skipping_ ? LineStatus::kTooLong : LineStatus::kLine;
      line->assign(pending_, 0, skipping_ ? 0 : length);
      pending_.erase(0, whole ? length + 1 : length);
      searched_ = 0;
      skipping_ = false;
      return status;
    }
    if (skipping_) pending_.clear();
    searched_ = pending_.size();
    if (ended_) return LineStatus::kEnd;
    pollfd waits[2] = {{STDIN_FILENO, POLLIN, 0}, {g_wake[0], POLLIN, 0}};  // a negative descriptor is left out
    const int ready = poll(waits, 2, -1);
    if (ready < 0 || (waits[1].revents & POLLIN) != 0) {
      DrainWakePipe();
      return LineStatus::kInterrupted;
    }
    char buffer[1 << 16];
    const ssize_t count = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) return LineStatus::kInterrupted;
    if (count <= 0) {
      ended_ = true;
    } else {
      pending_.append(buffer, static_cast<size_t>(count));
    }
  }
}

}  // namespace linnet::platform
