// Where the time of a run goes: every step's time beside its bytes and multiply-adds.
#ifndef LINNET_EXAMPLES_CLI_BENCH_PROFILE_H_
#define LINNET_EXAMPLES_CLI_BENCH_PROFILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/session.h"
#include "core/step_cost.h"
#include "examples/cli/bench_measure.h"

namespace linnet::cli {

/// One step, or all steps of one name and kernel; figures of one repetition of the test.
struct ProfileRow {
  std::string step;    // "attention.qkv"
  int32_t layer = -1;  // -1: of all layers, or of none
  std::string kernel;  // "xnnpack qd8_f32_qb4w_gemm_8x16c8"
  std::string instruction_set;
  double calls = 0.0;
  double seconds = 0.0;
  StepCost cost;
};

struct Profile {
  std::vector<ProfileRow> by_step;   // in the order of the plan's first of each
  std::vector<ProfileRow> by_layer;  // every step of every layer
  double seconds = 0.0;              // the sum, which is the test's time

  bool empty() const { return by_step.empty(); }
};

/// Runs the test `repetitions` more times under an observer. What a session does between two steps counts to the
/// second one; the observer itself takes a tenth of a microsecond a step, which is left out.
Result<Profile> ProfileBenchTest(Session& session, const ModelView& model, std::span<const int32_t> ids,
                                 const BenchTest& test, uint32_t repetitions);

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_BENCH_PROFILE_H_
