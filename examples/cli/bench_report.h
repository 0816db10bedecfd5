// Everything that one call of bench found out, and its three forms: text, JSON lines, an HTML page.
#ifndef LINNET_EXAMPLES_CLI_BENCH_REPORT_H_
#define LINNET_EXAMPLES_CLI_BENCH_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "examples/cli/bench_measure.h"
#include "examples/cli/bench_profile.h"
#include "examples/cli/memory_report.h"
#include "platforms/dot_product_peak.h"
#include "platforms/memory.h"

namespace linnet::cli {

/// What this machine can do at most with so many threads.
struct MachinePeaks {
  platform::ReadBandwidth bandwidth;
  platform::DotProductPeak dot_product;
};

struct BenchSubject {
  std::string model, model_file;
  std::string cpu, cpu_level, target;  // the chip, XNNPACK's instruction-set level, Highway's target
  std::string kv;
  uint32_t repetitions = 0;
};

struct BenchEntry {
  BenchResult result;
  std::optional<MachinePeaks> peaks;  // none with --no-peaks
  Profile profile;                    // empty without --profile
};

struct LoadFigures {
  uint32_t threads = 0;
  double load_ms = 0.0;
  double first_token_ms = 0.0;
  uint32_t first_token_prompt = 0;
  bool packed_mapped = false;
  platform::MemoryCounters counters;  // zeros where the system does not tell
  uint64_t program_bytes = 0;         // resident code, of the program and its libraries
  MemoryReport memory;

  /// Resident memory that is neither a mapped model or packed file nor in the plan. Below zero where the plan's upper
  /// bounds were not reached.
  int64_t BeyondPlan() const {
    return static_cast<int64_t>(counters.anonymous_bytes + program_bytes) - static_cast<int64_t>(memory.Anonymous()) -
           static_cast<int64_t>(packed_mapped ? 0 : memory.plan.packed_weights);
  }
};

struct BenchReport {
  BenchSubject subject;
  std::vector<BenchEntry> entries;
  LoadFigures load;
  std::optional<MachinePeaks> load_peaks;
};

/// Fractions of the machine's limits that a cost in so many seconds comes to.
struct Achieved {
  double bytes_per_s = 0.0;  // weights and KV cache
  double multiply_adds_per_s = 0.0;
  double bandwidth_fraction = 0.0;
  double peak_fraction = 0.0;  // of the int8 peak, int8 multiply-adds only
};
Achieved AchievedBy(const StepCost& cost, double seconds, const std::optional<MachinePeaks>& peaks);

// Text for people, a part at a time.
void PrintBenchHeader();
void PrintBenchEntry(const BenchEntry& entry);
void PrintProfile(const BenchEntry& entry, bool layers);
void PrintBenchLoad(const LoadFigures& load, const std::optional<MachinePeaks>& peaks);

// One JSON object a line: of a test, of each step of its profile, of loading.
void PrintBenchEntryJson(const BenchSubject& subject, const BenchEntry& entry);
void PrintProfileJson(const BenchEntry& entry, bool layers);
void PrintBenchLoadJson(const LoadFigures& load, const std::optional<MachinePeaks>& peaks);

/// One page without external resources.
std::string BenchHtml(const BenchReport& report);

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_BENCH_REPORT_H_
