#include "platforms/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "core/base/checked.h"
#include "platforms/posix/descriptor.h"
#include "platforms/posix/topology.h"

namespace linnet::platform {

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
