// What bench measures of one loaded model: prefill and decode speed, and the cost that they are compared with.
#ifndef LINNET_EXAMPLES_CLI_BENCH_MEASURE_H_
#define LINNET_EXAMPLES_CLI_BENCH_MEASURE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/session.h"
#include "core/step_cost.h"
#include "examples/cli/output.h"

namespace linnet::cli {

struct BenchTest {
  bool decode = false;
  uint32_t tokens = 0;
  uint32_t depth = 0;  // tokens already in the context

  /// "pp128", "tg64@4096".
  std::string Name() const;
};

struct BenchRuns {
  uint32_t warm_up = 1;
  uint32_t repetitions = 5;
};

struct BenchResult {
  BenchTest test;
  uint32_t threads = 0;
  std::vector<double> tokens_per_s;  // of every repetition, sorted
  StepCost cost;                     // of one repetition

  double Median() const;
  double Spread() const;   // (fastest - slowest) / median
  double Seconds() const;  // of one repetition, at the median
};

/// The middle of sorted values; the mean of the two middle ones where their number is even. Not of an empty list.
double MedianOfSorted(std::span<const double> sorted);

/// Ids without structure, the same in every run.
std::vector<int32_t> RandomIds(size_t count, uint32_t vocab_size);

/// Leaves the session with `test.depth` tokens. `ids` are at least depth + tokens.
/// Errors: as Session's.
Status PrepareBenchTest(Session& session, std::span<const int32_t> ids, const BenchTest& test);
/// Runs the test once from there.
Status RunPreparedBenchTest(Session& session, std::span<const int32_t> ids, const BenchTest& test);

/// Warms up, repeats, and computes the cost.
Result<BenchResult> MeasureBenchTest(Session& session, const ModelView& model, std::span<const int32_t> ids,
                                     const BenchTest& test, const BenchRuns& runs, Progress& progress);

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_BENCH_MEASURE_H_
