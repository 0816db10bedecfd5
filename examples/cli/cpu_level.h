// Instruction-set levels by name, and masking this process down to one.
#ifndef LINNET_EXAMPLES_CLI_CPU_LEVEL_H_
#define LINNET_EXAMPLES_CLI_CPU_LEVEL_H_

#include <string>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::cli {

/// The levels of this architecture, lowest first.
std::vector<std::string> CpuLevels();

/// Makes Highway and XNNPACK choose kernels of at most `level` (empty: leaves them). Must come before the first kernel
/// runs. Errors: kInvalidArgument for an unknown name or a level that this CPU does not reach.
Status ApplyCpuLevel(const std::string& level, Diagnostic* diagnostic);

/// The highest level that this CPU reaches, masks counted.
std::string ReachedCpuLevel();

/// Name of the Highway target that kernels run on.
std::string HighwayTargetName();

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_CPU_LEVEL_H_
