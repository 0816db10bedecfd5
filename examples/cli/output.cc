#include "examples/cli/output.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "platforms/clock.h"
#include "platforms/console.h"
#include "platforms/files.h"

namespace linnet::cli {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kQuietNs = kSecondNs;  // shorter work needs no progress
constexpr uint64_t kRedrawNs = kSecondNs / 10;
constexpr uint64_t kLineNs = 10 * kSecondNs;  // in logs
constexpr size_t kBarColumns = 24, kMinBarColumns = 4;
constexpr double kSettleSeconds = 5.0;  // before them, a speed says little

int g_output_error = 0;  // errno of the first failed write

// With a bar that is shorter where the terminal is narrow: a line that wraps could not be drawn over.
std::string ProgressLine(const std::string& label, double share, const std::string& rest, size_t terminal_columns) {
  const size_t fixed = label.size() + rest.size() + 4;  // with spaces and brackets
  const size_t room = terminal_columns > 0 ? terminal_columns - 1 : fixed + kBarColumns;
  const size_t bar = std::min(room - std::min(room, fixed), kBarColumns);
  std::string line = label + " ";
  if (bar >= kMinBarColumns) {
    const auto filled = static_cast<size_t>(share * static_cast<double>(bar));
    line += "[" + std::string(filled, '#') + std::string(bar - filled, '.') + "] ";
  }
  line += rest;
  if (line.size() > room) line.resize(room);
  return line;
}

}  // namespace

void Print(std::string_view text) {
  if (g_output_error != 0 || text.empty()) return;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) g_output_error = errno != 0 ? errno : EIO;
}

void PrintFormat(const char* format, ...) {
  if (g_output_error != 0) return;
  va_list arguments;
  va_start(arguments, format);
  errno = 0;
  if (std::vfprintf(stdout, format, arguments) < 0) g_output_error = errno != 0 ? errno : EIO;
  va_end(arguments);
}

void PrintJson(const nlohmann::ordered_json& value) {
  Print(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

Status FlushOutput(Diagnostic* diagnostic) {
  errno = 0;
  if (g_output_error == 0 && std::fflush(stdout) != 0) g_output_error = errno != 0 ? errno : EIO;
  if (g_output_error == 0) return Status::Ok();
  return Fail(diagnostic, StatusCode::kIoError, "cannot write", "standard output: %s", std::strerror(g_output_error));
}

void Note(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fputs("linnet: ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
  va_end(arguments);
}

Status CheckOutputIsNot(const std::string& input, const std::string& output, Diagnostic* diagnostic) {
  if (!platform::IsSameFile(input, output)) return Status::Ok();
  return Fail(diagnostic, StatusCode::kInvalidArgument, "the output is the input",
              "%s: expected another file than the input %s", output.c_str(), input.c_str());
}

std::string HumanBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  char text[32];
  if (bytes < 1024) {
    std::snprintf(text, sizeof(text), "%u B", static_cast<unsigned>(bytes));
    return text;
  }
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  std::snprintf(text, sizeof(text), value < 10 ? "%.2f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string HumanCount(uint64_t count) {
  static constexpr const char* kUnits[] = {"K", "M", "B", "T"};
  if (count < 1000) return std::to_string(count);
  double value = static_cast<double>(count) / 1000;
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string OneLine(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return result;
}

std::string Hex(const uint8_t* bytes, size_t count) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

Progress::Progress(std::string label)
    : label_(std::move(label)),
      start_ns_(platform::MonotonicNanoseconds()),
      terminal_(platform::IsTerminal(platform::Stream::kError)) {
  next_ns_ = start_ns_ + (terminal_ ? kQuietNs : kLineNs);
}

Progress::~Progress() { Hide(); }

void Progress::Update(uint64_t done, uint64_t total, const std::string& detail) {
  const uint64_t now = platform::MonotonicNanoseconds();
  if (now < next_ns_) return;
  next_ns_ = now + (terminal_ ? kRedrawNs : kLineNs);
  const double share = total == 0 ? 0.0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  char percent[16];
  std::snprintf(percent, sizeof(percent), "%3.0f %%", share * 100);
  if (!terminal_) {
    Note("%s: %s %s", label_.c_str(), percent, detail.c_str());
    return;
  }
  std::string line = ProgressLine(label_, share, percent + (detail.empty() ? "" : " " + detail),
                                  platform::TerminalColumns(platform::Stream::kError));
  const size_t columns = line.size();
  if (columns < shown_columns_) line.append(shown_columns_ - columns, ' ');
  shown_columns_ = columns;
  std::fprintf(stderr, "\r%s", line.c_str());
  std::fflush(stderr);
}

std::string TimeLeft::Text(const std::string& stage, uint64_t done, uint64_t total) {
  if (start_ns_ == 0 || stage != stage_) {
    stage_ = stage;
    start_ns_ = platform::MonotonicNanoseconds();
    start_done_ = done;
  }
  const double seconds = platform::SecondsSince(start_ns_);
  if (seconds < kSettleSeconds || done <= start_done_ || total < done) return "";
  const double left = seconds * static_cast<double>(total - done) / static_cast<double>(done - start_done_);
  if (left < 60.0) return ", less than a minute left";
  return ", about " + std::to_string(static_cast<int>(left / 60.0 + 0.5)) + " min left";
}

void Progress::Hide() {
  if (shown_columns_ == 0) return;
  std::fprintf(stderr, "\r%s\r", std::string(shown_columns_, ' ').c_str());
  std::fflush(stderr);
  shown_columns_ = 0;
}

}  // namespace linnet::cli
