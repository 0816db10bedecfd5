// Public header. The processor as Linnet sees it: cores, clusters, caches, features, and how many threads to use.
#ifndef LINNET_PLATFORMS_CPU_H_
#define LINNET_PLATFORMS_CPU_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::platform {

/// Cores of one kind. Clusters are listed fastest first.
struct CpuCluster {
  std::string microarchitecture;  // "Cortex-A76", "Zen 3"; "0x..." where cpuinfo has no name for it
  uint32_t cores = 0;             // physical
  uint32_t logical_cpus = 0;
  uint64_t max_frequency_hz = 0;  // 0: unknown
  bool fast = false;              // its cores count for DefaultThreadCount
};

struct CpuInfo {
  std::string name;          // the chip as it calls itself; "unknown" where it does not say
  std::string architecture;  // "x86-64", "aarch64", "armv7"
  uint32_t cores = 0;        // physical, of the whole machine
  uint32_t logical_cpus = 0;
  uint32_t allowed_cpus = 0;     // logical CPUs of this process's affinity mask
  double quota_cpus = 0.0;       // CPU time that the control groups grant, in CPUs; 0: unlimited
  uint32_t default_threads = 1;  // DefaultThreadCount()
  std::vector<CpuCluster> clusters;
  std::vector<std::string> features;  // instruction sets that matter to the kernels, "avx2", "dotprod", ...
  // Size of one instance, as seen from a fast core; 0: none or unknown.
  uint64_t l1d_bytes = 0;
  uint64_t l2_bytes = 0;
  uint64_t l3_bytes = 0;

  uint64_t last_level_cache_bytes() const { return l3_bytes != 0 ? l3_bytes : l2_bytes != 0 ? l2_bytes : l1d_bytes; }
};

/// Describes this machine. What cannot be found out stays at its default; it never fails.
CpuInfo DescribeCpu();

/// Second-level cache of one fast core in bytes: its share where cores share it; 0 where it is unknown.
uint64_t CoreCacheBytes();

/// Physical cores of the fast cluster inside the affinity mask, never more than the control groups' CPU quota; at
/// least 1. A fast core has at least 60 % of the best one's speed, so that a prime core does not stand alone.
uint32_t DefaultThreadCount();

/// `threads`, cut to the whole CPUs of the control groups' CPU quota; at least 1.
uint32_t CutToQuota(uint32_t threads);

/// Binds this thread, and those that it starts from now on, to the logical CPUs `cpus` (numbers as the system has
/// them). DefaultThreadCount counts inside them afterwards.
/// Errors: kInvalidArgument naming a CPU that does not exist or is outside of the present affinity mask.
Status BindToCpus(std::span<const uint32_t> cpus, Diagnostic* diagnostic);

}  // namespace linnet::platform

#endif  // LINNET_PLATFORMS_CPU_H_
