// Private to platforms/posix: names of core designs.
#ifndef LINNET_PLATFORMS_POSIX_MICROARCHITECTURE_H_
#define LINNET_PLATFORMS_POSIX_MICROARCHITECTURE_H_

#include <cstdint>
#include <string>

namespace linnet::platform {

/// The name of a cpuinfo_uarch value as cpuinfo spells it ("cortex_a76", "zen3"), or its number in hexadecimal.
std::string MicroarchitectureName(uint32_t uarch);

}  // namespace linnet::platform

#endif  // LINNET_PLATFORMS_POSIX_MICROARCHITECTURE_H_
