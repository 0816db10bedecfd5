#include "platforms/posix/microarchitecture.h"

#include <cpuinfo.h>

#include <cstdio>

namespace linnet::platform {
namespace {

struct Name {
  uint32_t uarch;
  const char* text;
};

#define LINNET_UARCH(name) \
  { cpuinfo_uarch_##name, #name }
constexpr Name kNames[] = {
    LINNET_UARCH(sandy_bridge),  LINNET_UARCH(ivy_bridge),
    LINNET_UARCH(haswell),       LINNET_UARCH(broadwell),
    LINNET_UARCH(sky_lake),      LINNET_UARCH(palm_cove),
    LINNET_UARCH(sunny_cove),    LINNET_UARCH(willow_cove),
    LINNET_UARCH(nehalem),       LINNET_UARCH(conroe),
    LINNET_UARCH(penryn),        LINNET_UARCH(bonnell),
    LINNET_UARCH(saltwell),      LINNET_UARCH(silvermont),
    LINNET_UARCH(airmont),       LINNET_UARCH(goldmont),
    LINNET_UARCH(goldmont_plus), LINNET_UARCH(tremont),
    LINNET_UARCH(gracemont),     LINNET_UARCH(crestmont),
    LINNET_UARCH(darkmont),      LINNET_UARCH(knights_landing),
    LINNET_UARCH(knights_mill),  LINNET_UARCH(k8),
    LINNET_UARCH(k10),           LINNET_UARCH(bulldozer),
    LINNET_UARCH(piledriver),    LINNET_UARCH(steamroller),
    LINNET_UARCH(excavator),     LINNET_UARCH(zen),
    LINNET_UARCH(zen2),          LINNET_UARCH(zen3),
    LINNET_UARCH(zen4),          LINNET_UARCH(zen5),
    LINNET_UARCH(bobcat),        LINNET_UARCH(jaguar),
    LINNET_UARCH(puma),          LINNET_UARCH(cortex_a5),
    LINNET_UARCH(cortex_a7),     LINNET_UARCH(cortex_a8),
    LINNET_UARCH(cortex_a9),     LINNET_UARCH(cortex_a12),
    LINNET_UARCH(cortex_a15),    LINNET_UARCH(cortex_a17),
    LINNET_UARCH(cortex_a32),    LINNET_UARCH(cortex_a35),
    LINNET_UARCH(cortex_a53),    LINNET_UARCH(cortex_a55r0),
    LINNET_UARCH(cortex_a55),    LINNET_UARCH(cortex_a57),
    LINNET_UARCH(cortex_a65),    LINNET_UARCH(cortex_a72),
    LINNET_UARCH(cortex_a73),    LINNET_UARCH(cortex_a75),
    LINNET_UARCH(cortex_a76),    LINNET_UARCH(cortex_a77),
    LINNET_UARCH(cortex_a78),    LINNET_UARCH(neoverse_n1),
    LINNET_UARCH(neoverse_e1),   LINNET_UARCH(neoverse_v1),
    LINNET_UARCH(neoverse_n2),   LINNET_UARCH(neoverse_v2),
    LINNET_UARCH(cortex_x1),     LINNET_UARCH(cortex_x2),
    LINNET_UARCH(cortex_x3),     LINNET_UARCH(cortex_x4),
    LINNET_UARCH(cortex_a510),   LINNET_UARCH(cortex_a520),
    LINNET_UARCH(cortex_a710),   LINNET_UARCH(cortex_a715),
    LINNET_UARCH(cortex_a720),   LINNET_UARCH(scorpion),
    LINNET_UARCH(krait),         LINNET_UARCH(kryo),
    LINNET_UARCH(falkor),        LINNET_UARCH(saphira),
    LINNET_UARCH(oryon),         LINNET_UARCH(denver),
    LINNET_UARCH(denver2),       LINNET_UARCH(carmel),
    LINNET_UARCH(exynos_m1),     LINNET_UARCH(exynos_m2),
    LINNET_UARCH(exynos_m3),     LINNET_UARCH(exynos_m4),
    LINNET_UARCH(exynos_m5),     LINNET_UARCH(firestorm),
    LINNET_UARCH(icestorm),      LINNET_UARCH(avalanche),
    LINNET_UARCH(blizzard),      LINNET_UARCH(everest),
    LINNET_UARCH(sawtooth),      LINNET_UARCH(thunderx),
    LINNET_UARCH(thunderx2),     LINNET_UARCH(brahma_b15),
    LINNET_UARCH(brahma_b53),    LINNET_UARCH(xgene),
    LINNET_UARCH(dhyana),        LINNET_UARCH(taishan_v110),
};
#undef LINNET_UARCH

}  // namespace

std::string MicroarchitectureName(uint32_t uarch) {
  if (uarch == cpuinfo_uarch_unknown) return "unknown";
  for (const Name& name : kNames) {
    if (name.uarch == uarch) return name.text;
  }
  char text[16];
  std::snprintf(text, sizeof(text), "0x%08x", uarch);
  return text;
}

}  // namespace linnet::platform
