#include "examples/cli/bench_measure.h"

#include <algorithm>

#include "platforms/clock.h"

namespace linnet::cli {
std::string BenchTest::Name() const {
  std::string name = (decode ? "tg" : "pp") + std::to_string(tokens);
  if (depth != 0) name += "@" + std::to_string(depth);
  return name;
}

double BenchResult::Median() const { return MedianOfSorted(tokens_per_s); }
double BenchResult::Spread() const { return (tokens_per_s.back() - tokens_per_s.front()) / Median(); }
double BenchResult::Seconds() const { return test.tokens / Median(); }

double MedianOfSorted(std::span<const double> sorted) {
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : 0.5 * (sorted[middle - 1] + sorted[middle]);
}

std::vector<int32_t> RandomIds(size_t count, uint32_t vocab_size) {
  std::vector<int32_t> ids(count);
  uint64_t state = 1;
  for (int32_t& id : ids) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    id = static_cast<int32_t>((state >> 33) % vocab_size);
  }
  return ids;
}

Status PrepareBenchTest(Session& session, std::span<const int32_t> ids, const BenchTest& test) {
  if (session.position() >= test.depth && session.Rewind(test.depth).ok()) return Status::Ok();
  // Window layers may have lost what a rewind needs: then from the start.
  LINNET_RETURN_IF_ERROR(session.Rewind(0));
  return test.depth == 0 ? Status::Ok() : session.Prefill(ids.first(test.depth));
}

Status RunPreparedBenchTest(Session& session, std::span<const int32_t> ids, const BenchTest& test) {
  const auto work = ids.subspan(test.depth, test.tokens);
  if (!test.decode) return session.Prefill(work);
  for (const int32_t id : work) LINNET_RETURN_IF_ERROR(session.Decode(id));
  return Status::Ok();
}

Result<BenchResult> MeasureBenchTest(Session& session, const ModelView& model, std::span<const int32_t> ids,
                                     const BenchTest& test, const BenchRuns& runs, Progress& progress) {
  BenchResult result;
  result.test = test;
  result.threads = session.plan().options.n_threads;
  const auto cost = test.decode ? CostOfDecode : CostOfPrefill;
  result.cost = cost(model, session.plan(), test.depth, test.tokens);
  for (uint32_t i = 0; i < runs.warm_up + runs.repetitions; ++i) {
    progress.Update(i, runs.warm_up + runs.repetitions, test.Name());
    LINNET_RETURN_IF_ERROR(PrepareBenchTest(session, ids, test));
    const uint64_t start = platform::MonotonicNanoseconds();
    LINNET_RETURN_IF_ERROR(RunPreparedBenchTest(session, ids, test));
    const double seconds = platform::SecondsSince(start);
    if (i >= runs.warm_up) result.tokens_per_s.push_back(test.tokens / std::max(seconds, 1e-9));
  }
  std::sort(result.tokens_per_s.begin(), result.tokens_per_s.end());
  return result;
}

}  // namespace linnet::cli
