// The main of tests that run once for each CPU level. LINNET_TEST_CPU_MASK=LEVEL in the environment masks this process
// down to a level of this CPU; where the CPU does not reach it, the program ends with kSkipped. An emulated CPU needs
// no mask: it is the level.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "examples/cli/cpu_level.h"

namespace {

constexpr int kSkipped = 77;  // ctest is told so (SKIP_RETURN_CODE)

}  // namespace

int main(int argc, char** argv) {
  if (const char* mask = std::getenv("LINNET_TEST_CPU_MASK"); mask != nullptr) {
    const auto levels = linnet::cli::CpuLevels();
    if (std::find(levels.begin(), levels.end(), mask) == levels.end()) {
      std::printf("LINNET_TEST_CPU_MASK: found %s, which is no level of this architecture\n", mask);
      return 1;
    }
    linnet::Diagnostic diagnostic;
    if (!linnet::cli::ApplyCpuLevel(mask, &diagnostic).ok()) {
      std::printf("skipped: %s\n", diagnostic.text());
      return kSkipped;
    }
  }
  return doctest::Context(argc, argv).run();
}
