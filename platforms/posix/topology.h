// Private to platforms/posix: the decisions behind DescribeCpu, apart from the system that they are made from.
#ifndef LINNET_PLATFORMS_POSIX_TOPOLOGY_H_
#define LINNET_PLATFORMS_POSIX_TOPOLOGY_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace linnet::platform {

/// One logical CPU.
struct LogicalCpu {
  uint32_t core = 0;    // physical core, unique over the machine
  double speed = 0.0;   // relative; 0: unknown
  bool allowed = true;  // inside the affinity mask
};

/// A core counts as fast from this part of the best core's speed on. Phones have one prime core beside big ones of 70
/// to 85 % of its speed (fast), and middle or little ones at half or less (slow: they would hold up every barrier).
constexpr double kFastCoreShare = 0.6;

bool IsFast(double speed, double best_speed);

/// Distinct fast physical cores among the allowed CPUs, cut to the whole CPUs of `quota_cpus` (0: no quota); >= 1.
/// "Fast" compares with the best allowed core, so that a process that is bound to little cores uses those.
uint32_t ChooseThreadCount(std::span<const LogicalCpu> cpus, double quota_cpus);

/// `threads`, cut to the whole CPUs of `quota_cpus` (0: no quota); >= 1.
uint32_t CutToQuota(uint32_t threads, double quota_cpus);

/// The smallest CPU quota, in CPUs, that a control group (v1 or v2) of this process or one above it sets; 0: none.
/// `root` stands before every path: empty, or a test's folder.
double ReadCpuQuota(const std::string& root);

/// A line "Key:   123 kB" of /proc/self/status or /proc/meminfo, in bytes; 0 where it is absent.
uint64_t FindKilobytes(std::string_view text, std::string_view key);

/// A whole number at the start of `text`, or -1.
long long ParseNumber(std::string_view text);

}  // namespace linnet::platform

#endif  // LINNET_PLATFORMS_POSIX_TOPOLOGY_H_
