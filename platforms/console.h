// Public header. What an interactive program needs from the system: Ctrl-C as a flag, and what a stream is tied to.
#ifndef LINNET_PLATFORMS_CONSOLE_H_
#define LINNET_PLATFORMS_CONSOLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace linnet::platform {

/// While one is alive, SIGINT and SIGTERM raise flags instead of ending the program, and interrupt a blocking read.
/// They nest on one thread; the previous handlers come back at the end, and the flags start lowered with the outermost.
class InterruptScope {
 public:
  InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  ~InterruptScope();

  /// True since the first signal, until Clear. A SIGTERM stays.
  static bool Requested();
  static bool TerminateRequested();
  static void Clear();

 private:
  struct Previous;
  std::unique_ptr<Previous> previous_;
};

/// A write to a closed pipe, or beyond a file-size limit, becomes an error of that write instead of the program's end.
void IgnoreWriteSignals();

/// Where the program was started with standard input, output or error closed, keeps those descriptors from going to the
/// next file that is opened: reads and writes of them then fail at once. To be called before anything is opened.
void OccupyStandardStreams();

enum class Stream : uint8_t { kInput, kOutput, kError };
bool IsTerminal(Stream stream);
/// Characters in a line of the terminal behind `stream`; 0 where there is none, or it does not tell.
size_t TerminalColumns(Stream stream);

enum class LineStatus : uint8_t { kLine, kTooLong, kEnd, kInterrupted };
/// Reads a line of at most `max_bytes` from standard input, without its newline. kTooLong: the line was longer; all of
/// it is skipped. Does not mix with std::cin or stdin. kInterrupted: a signal came while waiting; nothing was lost.
class LineReader {
 public:
  LineStatus Read(size_t max_bytes, std::string* line);

 private:
  std::string pending_;
  size_t searched_ = 0;    // bytes of pending_ without a newline
  bool skipping_ = false;  // inside a line that is too long
  bool ended_ = false;
};

}  // namespace linnet::platform

#endif  // LINNET_PLATFORMS_CONSOLE_H_
