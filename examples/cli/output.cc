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
constexpr int kBarColumns = 24;

int g_output_error = 0;  // errno of the first failed write

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
  const int filled = static_cast<int>(share * kBarColumns);
  std::string line = label_ + " [" + std::string(static_cast<size_t>(filled), '#') +
                     std::string(static_cast<size_t>(kBarColumns - filled), '.') + "] " + percent;
  if (!detail.empty()) line += " " + detail;
  const size_t columns = line.size();
  if (columns < shown_columns_) line.append(shown_columns_ - columns, ' ');
  shown_columns_ = columns;
  std::fprintf(stderr, "\r%s", line.c_str());
  std::fflush(stderr);
}

void Progress::Hide() {
  if (shown_columns_ == 0) return;
  std::fprintf(stderr, "\r%s\r", std::string(shown_columns_, ' ').c_str());
  std::fflush(stderr);
  shown_columns_ = 0;
}

}  // namespace linnet::cli
