// Standard output with errors, progress on stderr, and numbers for people.
#ifndef LINNET_EXAMPLES_CLI_OUTPUT_H_
#define LINNET_EXAMPLES_CLI_OUTPUT_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::cli {

/// Appends to standard output, buffered. Errors show at the next FlushOutput.
void Print(std::string_view text);
void PrintFormat(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// One JSON object on a line of its own. Bytes that are no UTF-8 are replaced.
void PrintJson(const nlohmann::ordered_json& value);
/// Errors: kIoError with the system's reason (a closed pipe, a full disk).
Status FlushOutput(Diagnostic* diagnostic);

/// A note on stderr, one line; not part of the result.
void Note(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// Errors: kInvalidArgument where writing `output` would replace the file `input`, which is still being read.
Status CheckOutputIsNot(const std::string& input, const std::string& output, Diagnostic* diagnostic);

/// "1.2 GiB", "640 B".
std::string HumanBytes(uint64_t bytes);
/// "134.5 M", for counts.
std::string HumanCount(uint64_t count);
/// Control characters, which could drive a terminal, become '?'; newlines and tabs too.
std::string OneLine(std::string_view text);
/// Lower-case hexadecimal.
std::string Hex(const uint8_t* bytes, size_t count);

/// Progress of something that may take longer than a second: on a terminal a line that is redrawn and fits it, else a
/// line every ten seconds. Nothing is shown in the first second.
class Progress {
 public:
  explicit Progress(std::string label);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// done of total units; `detail` stands behind the percentage. total 0: unknown.
  void Update(uint64_t done, uint64_t total, const std::string& detail = "");
  /// Removes the redrawn line, so that something else can be printed.
  void Hide();

 private:
  std::string label_;
  uint64_t start_ns_;
  uint64_t next_ns_;
  bool terminal_;
  size_t shown_columns_ = 0;
};

/// How long a stage will go on, from its own speed so far.
class TimeLeft {
 public:
  /// Such as ", about 3 min left"; empty in a stage's first seconds. `done` never goes back within a stage.
  std::string Text(const std::string& stage, uint64_t done, uint64_t total);

 private:
  std::string stage_;
  uint64_t start_ns_ = 0, start_done_ = 0;
};

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_OUTPUT_H_
