// Runs a test body once for every instruction set that this build has and this CPU can run.
#ifndef LINNET_TESTS_SUPPORT_TARGETS_H_
#define LINNET_TESTS_SUPPORT_TARGETS_H_

#include <string>

#include "doctest/doctest.h"
#include "hwy/targets.h"

namespace linnet::testing {

template <typename Body>
void ForEachTarget(const Body& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    const std::string target_name = hwy::TargetName(target);
    CAPTURE(target_name);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);  // back to what the CPU has
}

/// Row widths around every vector width from 1 to 16 lanes, a prime, and more than the four vectors of an unrolled
/// loop.
inline constexpr size_t kWidths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 127, 256, 263};

}  // namespace linnet::testing

#endif  // LINNET_TESTS_SUPPORT_TARGETS_H_
