#include "examples/cli/cpu_level.h"

#include <cpuinfo.h>
#include <hwy/targets.h>

#include <cstdint>

namespace linnet::cli {
namespace {

struct Level {
  const char* name;
  bool (*reached)();
  void (*drop)();           // takes what makes this level out of cpuinfo's flags, which XNNPACK reads
  int64_t highway_targets;  // that need this level
};

#if CPUINFO_ARCH_X86_64
// XNNPACK asks cpuinfo for each feature when it is first used, so clearing cpuinfo's flags before that is enough.
constexpr Level kLevels[] = {
    {"sse4", [] { return cpuinfo_has_x86_sse4_1(); }, [] {}, HWY_SSE4},
    {"avx2", [] { return cpuinfo_has_x86_avx2() && cpuinfo_has_x86_fma3(); },
     [] { cpuinfo_isa.avx = cpuinfo_isa.f16c = cpuinfo_isa.fma3 = cpuinfo_isa.avx2 = cpuinfo_isa.avxvnni = false; },
     HWY_AVX2},
    {"avx512", [] { return cpuinfo_has_x86_avx512f() && cpuinfo_has_x86_avx512bw() && cpuinfo_has_x86_avx512vl(); },
     [] { cpuinfo_isa.avx512f = cpuinfo_isa.avx512bw = cpuinfo_isa.avx512dq = cpuinfo_isa.avx512vl = false; },
     HWY_AVX3},
    {"avx512vnni", [] { return cpuinfo_has_x86_avx512vnni(); },
     [] {
       cpuinfo_isa.avx512vnni = cpuinfo_isa.avx512vbmi = cpuinfo_isa.avx512fp16 = cpuinfo_isa.avxvnni = false;
       cpuinfo_isa.gfni = cpuinfo_isa.amx_int8 = cpuinfo_isa.amx_tile = false;
     },
     HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR},
};
#elif CPUINFO_ARCH_ARM64
constexpr Level kLevels[] = {
    {"neon", [] { return true; }, [] {}, HWY_NEON_WITHOUT_AES | HWY_NEON},
    {"dotprod", [] { return cpuinfo_has_arm_neon_dot(); }, [] { cpuinfo_isa.dot = cpuinfo_isa.fp16arith = false; }, 0},
    {"i8mm", [] { return cpuinfo_has_arm_i8mm(); }, [] { cpuinfo_isa.i8mm = cpuinfo_isa.bf16 = false; }, HWY_NEON_BF16},
    // Only Highway's kernels have versions for it.
    {"sve", [] { return cpuinfo_has_arm_sve(); }, [] { cpuinfo_isa.sve = cpuinfo_isa.sve2 = cpuinfo_isa.sme = false; },
     HWY_ALL_SVE},
};
#elif CPUINFO_ARCH_ARM
// A 32-bit program on a 64-bit core may use that core's dot product.
constexpr Level kLevels[] = {
    {"neon", [] { return cpuinfo_has_arm_neon_fma(); }, [] {}, HWY_NEON_WITHOUT_AES | HWY_NEON},
    {"dotprod", [] { return cpuinfo_has_arm_neon_dot(); }, [] { cpuinfo_isa.dot = cpuinfo_isa.fp16arith = false; }, 0},
};
#endif

}  // namespace

std::vector<std::string> CpuLevels() {
  std::vector<std::string> names;
  for (const Level& level : kLevels) names.emplace_back(level.name);
  return names;
}

Status ApplyCpuLevel(const std::string& level, Diagnostic* diagnostic) {
  if (level.empty()) return Status::Ok();
  if (!cpuinfo_initialize()) {
    return Fail(diagnostic, StatusCode::kUnsupported, "the CPU cannot be described", "--cpu %s", level.c_str());
  }
  bool above = false;
  int64_t dropped_targets = 0;
  for (const Level& candidate : kLevels) {
    if (above) {
      candidate.drop();
      dropped_targets |= candidate.highway_targets;
    } else if (level == candidate.name) {
      above = true;
      if (candidate.reached()) continue;
      return Fail(diagnostic, StatusCode::kInvalidArgument, "the CPU does not reach this level",
                  "--cpu: expected at most %s, found %s", ReachedCpuLevel().c_str(), level.c_str());
    }
  }
  hwy::DisableTargets(dropped_targets);  // once: a call replaces what the one before it disabled
  if (above) return Status::Ok();
  return Fail(diagnostic, StatusCode::kInvalidArgument, "unknown CPU level", "--cpu: found %s", level.c_str());
}

std::string ReachedCpuLevel() {
  if (!cpuinfo_initialize()) return "unknown";
  std::string name = "none";
  for (const Level& level : kLevels) {
    if (!level.reached()) break;
    name = level.name;
  }
  return name;
}

std::string HighwayTargetName() {
  // Targets are bits, the best one lowest.
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

}  // namespace linnet::cli
