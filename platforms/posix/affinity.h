// Private to platforms/posix: the affinity mask.
#ifndef LINNET_PLATFORMS_POSIX_AFFINITY_H_
#define LINNET_PLATFORMS_POSIX_AFFINITY_H_

#include <vector>

namespace linnet::platform {

/// This thread's affinity mask, one flag a logical CPU; empty where the system does not tell.
std::vector<bool> AllowedCpus();

}  // namespace linnet::platform

#endif  // LINNET_PLATFORMS_POSIX_AFFINITY_H_
