#include "platforms/cpu.h"

#include <cpuinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "platforms/posix/affinity.h"
#include "platforms/posix/descriptor.h"
#include "platforms/posix/microarchitecture.h"
#include "platforms/posix/topology.h"

namespace linnet::platform {
namespace {

// A core's speed beside others of this machine. The kernel's cpu_capacity (1024 for the best core) counts clock and
// design; the highest clock alone is the fallback on ARM. On x86 boost clocks differ between equal cores, so a missing
// cpu_capacity means that all are alike.
double CoreSpeed(const cpuinfo_processor& processor) {
  const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(processor.linux_id);
  const long long capacity = ParseNumber(ReadSystemFile(folder + "/cpu_capacity"));
  if (capacity > 0) return static_cast<double>(capacity);
#if CPUINFO_ARCH_ARM || CPUINFO_ARCH_ARM64
  const long long kilohertz = ParseNumber(ReadSystemFile(folder + "/cpufreq/cpuinfo_max_freq"));
  if (kilohertz > 0) return static_cast<double>(kilohertz);
  return static_cast<double>(processor.core->frequency);
#else
  return 0.0;
#endif
}

uint64_t MaxFrequencyHz(const cpuinfo_processor& processor) {
  const std::string path =
      "/sys/devices/system/cpu/cpu" + std::to_string(processor.linux_id) + "/cpufreq/cpuinfo_max_freq";
  const long long kilohertz = ParseNumber(ReadSystemFile(path));
  return kilohertz > 0 ? static_cast<uint64_t>(kilohertz) * 1000 : processor.core->frequency;
}

void AddFeatures(CpuInfo& info) {
  const auto add = [&info](bool has, const char* name) {
    if (has) info.features.emplace_back(name);
  };
#if CPUINFO_ARCH_X86 || CPUINFO_ARCH_X86_64
  add(cpuinfo_has_x86_sse2(), "sse2");
  add(cpuinfo_has_x86_ssse3(), "ssse3");
  add(cpuinfo_has_x86_sse4_1(), "sse4.1");
  add(cpuinfo_has_x86_sse4_2(), "sse4.2");
  add(cpuinfo_has_x86_avx(), "avx");
  add(cpuinfo_has_x86_f16c(), "f16c");
  add(cpuinfo_has_x86_fma3(), "fma3");
  add(cpuinfo_has_x86_avx2(), "avx2");
  add(cpuinfo_has_x86_avxvnni(), "avxvnni");
  add(cpuinfo_has_x86_avx512f(), "avx512f");
  add(cpuinfo_has_x86_avx512bw(), "avx512bw");
  add(cpuinfo_has_x86_avx512vl(), "avx512vl");
  add(cpuinfo_has_x86_avx512vbmi(), "avx512vbmi");
  add(cpuinfo_has_x86_avx512vnni(), "avx512vnni");
  add(cpuinfo_has_x86_avx512bf16(), "avx512bf16");
  add(cpuinfo_has_x86_avx512fp16(), "avx512fp16");
  add(cpuinfo_has_x86_gfni(), "gfni");
  add(cpuinfo_has_x86_amx_int8(), "amx-int8");
#elif CPUINFO_ARCH_ARM || CPUINFO_ARCH_ARM64
  add(cpuinfo_has_arm_neon(), "neon");
  add(cpuinfo_has_arm_neon_fma(), "neon-fma");
  add(cpuinfo_has_arm_neon_fp16_arith(), "fp16-arith");
  add(cpuinfo_has_arm_neon_dot(), "dotprod");
  add(cpuinfo_has_arm_i8mm(), "i8mm");
  add(cpuinfo_has_arm_bf16(), "bf16");
  add(cpuinfo_has_arm_sve(), "sve");
  add(cpuinfo_has_arm_sve2(), "sve2");
  add(cpuinfo_has_arm_sme(), "sme");
#endif
}

const char* Architecture() {
#if CPUINFO_ARCH_X86_64
  return "x86-64";
#elif CPUINFO_ARCH_X86
  return "x86";
#elif CPUINFO_ARCH_ARM64
  return "aarch64";
#elif CPUINFO_ARCH_ARM
  return "armv7";
#else
  return "unknown";
#endif
}

// What a machine without cpuinfo data still tells: the mask, or the number of CPUs that are online.
std::vector<LogicalCpu> CpusOfMask(const std::vector<bool>& allowed) {
  std::vector<LogicalCpu> cpus;
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (allowed[i]) cpus.push_back({static_cast<uint32_t>(i), 0.0, true});
  }
  if (cpus.empty()) {
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (long i = 0; i < online; ++i) cpus.push_back({static_cast<uint32_t>(i), 0.0, true});
  }
  return cpus;
}

std::vector<LogicalCpu> ReadTopology(const std::vector<bool>& allowed) {
  if (!cpuinfo_initialize()) return CpusOfMask(allowed);
  std::vector<LogicalCpu> cpus(cpuinfo_get_processors_count());
  for (uint32_t i = 0; i < cpus.size(); ++i) {
    const cpuinfo_processor& processor = *cpuinfo_get_processor(i);
    const auto id = static_cast<size_t>(processor.linux_id);
    cpus[i].core = static_cast<uint32_t>(processor.core - cpuinfo_get_cores());
    cpus[i].speed = CoreSpeed(processor);
    cpus[i].allowed = allowed.empty() || (id < allowed.size() && allowed[id]);
  }
  const bool any = std::any_of(cpus.begin(), cpus.end(), [](const LogicalCpu& cpu) { return cpu.allowed; });
  return any ? cpus : CpusOfMask(allowed);
}

// Groups logical CPUs by design and speed; fills clusters, the fastest first.
void AddClusters(CpuInfo& info) {
  struct Group {
    CpuCluster cluster;
    double speed = 0.0;
    std::vector<const cpuinfo_core*> cores;
  };
  std::map<std::pair<double, uint32_t>, Group> groups;
  double best = 0.0;
  for (uint32_t i = 0; i < cpuinfo_get_processors_count(); ++i) {
    const cpuinfo_processor& processor = *cpuinfo_get_processor(i);
    const double speed = CoreSpeed(processor);
    best = std::max(best, speed);
    Group& group = groups[{-speed, static_cast<uint32_t>(processor.core->uarch)}];
    group.speed = speed;
    group.cluster.microarchitecture = MicroarchitectureName(processor.core->uarch);
    group.cluster.max_frequency_hz = std::max(group.cluster.max_frequency_hz, MaxFrequencyHz(processor));
    ++group.cluster.logical_cpus;
    if (std::find(group.cores.begin(), group.cores.end(), processor.core) == group.cores.end()) {
      group.cores.push_back(processor.core);
      ++group.cluster.cores;
    }
  }
  for (auto& [key, group] : groups) {
    group.cluster.fast = IsFast(group.speed, best);
    info.clusters.push_back(group.cluster);
  }
}

const cpuinfo_processor* FastestProcessor() {
  const cpuinfo_processor* fastest = nullptr;
  double best = -1.0;
  for (uint32_t i = 0; i < cpuinfo_get_processors_count(); ++i) {
    const cpuinfo_processor* processor = cpuinfo_get_processor(i);
    const double speed = CoreSpeed(*processor);
    if (speed > best) {
      best = speed;
      fastest = processor;
    }
  }
  return fastest;
}

void AddCaches(CpuInfo& info) {
  const cpuinfo_processor* fastest = FastestProcessor();
  if (fastest == nullptr) return;
  if (fastest->cache.l1d != nullptr) info.l1d_bytes = fastest->cache.l1d->size;
  if (fastest->cache.l2 != nullptr) info.l2_bytes = fastest->cache.l2->size;
  if (fastest->cache.l3 != nullptr) info.l3_bytes = fastest->cache.l3->size;
}

}  // namespace

CpuInfo DescribeCpu() {
  CpuInfo info;
  info.name = "unknown";
  info.architecture = Architecture();
  const std::vector<bool> allowed = AllowedCpus();
  const std::vector<LogicalCpu> cpus = ReadTopology(allowed);
  info.logical_cpus = static_cast<uint32_t>(cpus.size());
  info.cores = info.logical_cpus;
  info.allowed_cpus =
      static_cast<uint32_t>(std::count_if(cpus.begin(), cpus.end(), [](const LogicalCpu& cpu) { return cpu.allowed; }));
  info.quota_cpus = ReadCpuQuota("");
  info.default_threads = ChooseThreadCount(cpus, info.quota_cpus);
  if (!cpuinfo_initialize()) return info;
  info.cores = cpuinfo_get_cores_count();
  if (cpuinfo_get_packages_count() > 0 && cpuinfo_get_package(0)->name[0] != '\0') {
    info.name = cpuinfo_get_package(0)->name;
  }
  AddFeatures(info);
  AddClusters(info);
  AddCaches(info);
  return info;
}

uint64_t CoreCacheBytes() {
  if (!cpuinfo_initialize()) return 0;
  const cpuinfo_processor* fastest = FastestProcessor();
  if (fastest == nullptr || fastest->cache.l2 == nullptr || fastest->core == nullptr) return 0;
  const uint32_t sharing = std::max(1u, fastest->cache.l2->processor_count);
  const uint32_t per_core = std::max(1u, fastest->core->processor_count);
  return uint64_t{fastest->cache.l2->size} / std::max(1u, sharing / per_core);
}

uint32_t DefaultThreadCount() { return ChooseThreadCount(ReadTopology(AllowedCpus()), ReadCpuQuota("")); }

uint32_t CutToQuota(uint32_t threads) { return CutToQuota(threads, ReadCpuQuota("")); }

}  // namespace linnet::platform
