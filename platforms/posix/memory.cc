#include "platforms/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>

#include "core/base/checked.h"
#include "platforms/posix/descriptor.h"
#include "platforms/posix/topology.h"

namespace linnet::platform {
namespace {

constexpr size_t kMaxSmapsBytes = size_t{4} << 20;  // some thousand mappings

}  // namespace

Result<MemoryCounters> ReadMemoryCounters() {
  const std::string text = ReadSystemFile("/proc/self/status");
  MemoryCounters counters;
  counters.resident_bytes = FindKilobytes(text, "VmRSS");
  counters.anonymous_bytes = FindKilobytes(text, "RssAnon");
  counters.file_bytes = FindKilobytes(text, "RssFile");
  counters.peak_resident_bytes = FindKilobytes(text, "VmHWM");
  if (counters.resident_bytes == 0) return Status(StatusCode::kUnsupported, "the system does not count memory");
  return counters;
}

uint64_t ResidentProgramBytes() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  const std::string_view program(path, length > 0 ? static_cast<size_t>(length) : 0);
  const std::string text = ReadSystemFile("/proc/self/smaps", kMaxSmapsBytes);
  std::string_view rest = text;
  uint64_t bytes = 0;
  bool counts = false;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.find(':') < line.find(' ')) {  // "Key:   123 kB"; a mapping's first line has its colon in the device
      if (counts) bytes += FindKilobytes(line, "Rss") - FindKilobytes(line, "Anonymous");
      continue;
    }
    const size_t name = line.find('/');  // "ADDRESSES PERMISSIONS OFFSET DEVICE INODE   /PATH"
    const std::string_view file = name == std::string_view::npos ? std::string_view() : line.substr(name);
    counts = !file.empty() && (file == program || file.ends_with(".so") || file.find(".so.") != std::string_view::npos);
  }
  return bytes;
}

bool ResetPeakMemory() {
  // "5" resets VmHWM (Linux 4.0; proc_pid_clear_refs(5)).
  Descriptor file(open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC));
  return file.valid() && write(file.get(), "5", 1) == 1;
}

uint64_t AvailableMemoryBytes() { return FindKilobytes(ReadSystemFile("/proc/meminfo"), "MemAvailable"); }

Status LockMemory(std::span<const std::span<const std::byte>> regions, Diagnostic* diagnostic) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  uint64_t needed = 0;
  for (const auto region : regions) {
    const uint64_t lead = reinterpret_cast<uintptr_t>(region.data()) % page;
    needed += AlignUp(lead + region.size(), page);
  }
  int error = 0;
  for (size_t i = 0; i < regions.size() && error == 0; ++i) {
    // Whole pages are locked, whatever the address; an empty region has none.
    if (!regions[i].empty() && mlock(regions[i].data(), regions[i].size()) != 0) error = errno;
  }
  if (error == 0) return Status::Ok();
  for (const auto region : regions) munlock(region.data(), region.size());
  rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool limited = limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < needed;
  if (!limited) {
    return Fail(diagnostic, StatusCode::kOutOfMemory, "the memory cannot be locked", "lock %llu bytes: %s",
                static_cast<unsigned long long>(needed), ErrnoText(error).c_str());
  }
  return Fail(diagnostic, StatusCode::kOutOfMemory, "the memory cannot be locked",
              "RLIMIT_MEMLOCK: expected at least %llu bytes, found %llu; raise it (ulimit -l %llu, LimitMEMLOCK= of a "
              "service) or give the program CAP_IPC_LOCK",
              static_cast<unsigned long long>(needed), static_cast<unsigned long long>(limit.rlim_cur),
              static_cast<unsigned long long>(CeilDiv(needed, 1024)));
}

}  // namespace linnet::platform
