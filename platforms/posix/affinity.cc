#include "platforms/posix/affinity.h"

#include <sched.h>

#include <cerrno>
#include <string>

#include "platforms/cpu.h"
#include "platforms/posix/descriptor.h"

namespace linnet::platform {
namespace {

constexpr size_t kMaxCpus = 8192;  // Linux's own largest NR_CPUS

// "0-3,6": the CPUs of a mask as the command line takes them.
std::string RangesOf(const std::vector<bool>& cpus) {
  std::string text;
  for (size_t first = 0; first < cpus.size(); ++first) {
    if (!cpus[first]) continue;
    size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1]) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (last > first) text += '-' + std::to_string(last);
    first = last;
  }
  return text;
}

}  // namespace

std::vector<bool> AllowedCpus() {
  std::vector<bool> allowed;
  for (size_t count = 1024; count <= kMaxCpus; count *= 2) {  // EINVAL: the kernel's mask is larger than ours
    cpu_set_t* set = CPU_ALLOC(count);
    if (set == nullptr) return allowed;
    const size_t bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes, set);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    if (known) {
      allowed.resize(count);
      for (size_t i = 0; i < count; ++i) allowed[i] = CPU_ISSET_S(i, bytes, set);
    }
    CPU_FREE(set);
    if (known) return allowed;
  }
  return allowed;
}

Status BindToCpus(std::span<const uint32_t> cpus, Diagnostic* diagnostic) {
  const std::vector<bool> allowed = AllowedCpus();
  if (cpus.empty()) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "no CPU was named", "CPUs: expected at least one");
  }
  for (const uint32_t cpu : cpus) {
    if (cpu < allowed.size() && allowed[cpu]) continue;
    return Fail(diagnostic, StatusCode::kInvalidArgument, "a CPU that this process may not use",
                "CPUs: expected some of %s, found %u", RangesOf(allowed).c_str(), cpu);
  }
  cpu_set_t* set = CPU_ALLOC(allowed.size());
  if (set == nullptr) return {StatusCode::kOutOfMemory, "no memory for an affinity mask"};
  const size_t bytes = CPU_ALLOC_SIZE(allowed.size());
  CPU_ZERO_S(bytes, set);
  for (const uint32_t cpu : cpus) CPU_SET_S(cpu, bytes, set);
  const int error = sched_setaffinity(0, bytes, set) == 0 ? 0 : errno;
  CPU_FREE(set);
  if (error == 0) return Status::Ok();
  return Fail(diagnostic, StatusCode::kInvalidArgument, "the CPUs cannot be chosen", "affinity mask: %s",
              ErrnoText(error).c_str());
}

}  // namespace linnet::platform
