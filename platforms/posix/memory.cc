#include "platforms/memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

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

}  // namespace linnet::platform
