#include "examples/cli/bench_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "examples/cli/output.h"

namespace linnet::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f %%", fraction * 100);
  return text;
}

void AddCost(const StepCost& cost, double seconds, const std::optional<MachinePeaks>& peaks, Json& json) {
  const Achieved achieved = AchievedBy(cost, seconds, peaks);
  json["weight_bytes"] = cost.weight_bytes;
  json["kv_bytes"] = cost.kv_bytes;
  json["activation_bytes"] = cost.activation_bytes;
  json["int8_multiply_adds"] = cost.int8_multiply_adds;
  json["float_multiply_adds"] = cost.float_multiply_adds;
  json["bytes_per_s"] = achieved.bytes_per_s;
  json["multiply_adds_per_s"] = achieved.multiply_adds_per_s;
  if (!peaks) return;
  json["bandwidth_fraction"] = achieved.bandwidth_fraction;
  json["peak_fraction"] = achieved.peak_fraction;
}

const std::vector<ProfileRow>& RowsOf(const Profile& profile, bool layers) {
  return layers ? profile.by_layer : profile.by_step;
}

void AddPeaks(const MachinePeaks& peaks, Json& json) {
  json["read_bandwidth_bytes_per_s"] = peaks.bandwidth.bytes_per_s;
  json["read_bandwidth_threads"] = peaks.bandwidth.threads;
  json["read_bandwidth_spread"] = peaks.bandwidth.spread;
  json["dot_product_peak_per_s"] = peaks.dot_product.multiply_adds_per_s;
  json["dot_product_peak_spread"] = peaks.dot_product.spread;
  json["dot_product_instruction"] = peaks.dot_product.instruction;
}

}  // namespace

Achieved AchievedBy(const StepCost& cost, double seconds, const std::optional<MachinePeaks>& peaks) {
  const double time = std::max(seconds, 1e-12);
  Achieved achieved;
  achieved.bytes_per_s = static_cast<double>(cost.memory_bytes()) / time;
  achieved.multiply_adds_per_s = static_cast<double>(cost.multiply_adds()) / time;
  if (peaks) {
    achieved.bandwidth_fraction = achieved.bytes_per_s / peaks->bandwidth.bytes_per_s;
    achieved.peak_fraction =
        static_cast<double>(cost.int8_multiply_adds) / time / peaks->dot_product.multiply_adds_per_s;
  }
  return achieved;
}

void PrintBenchHeader() {
  PrintFormat("%-14s %7s %12s %8s %9s %10s %9s %9s\n", "test", "threads", "tokens/s", "spread", "GB/s", "of memory",
              "Gmac/s", "of int8");
}

void PrintBenchEntry(const BenchEntry& entry) {
  const BenchResult& result = entry.result;
  const Achieved achieved = AchievedBy(result.cost, result.Seconds(), entry.peaks);
  PrintFormat("%-14s %7u %12.2f %7.1f%% %9.2f %10s %9.1f %9s\n", result.test.Name().c_str(), result.threads,
              result.Median(), result.Spread() * 100, achieved.bytes_per_s * 1e-9,
              entry.peaks ? Percent(achieved.bandwidth_fraction).c_str() : "-", achieved.multiply_adds_per_s * 1e-9,
              entry.peaks ? Percent(achieved.peak_fraction).c_str() : "-");
}

void PrintProfile(const BenchEntry& entry, bool layers) {
  const Profile& profile = entry.profile;
  PrintFormat("  %s, %u threads: %.3f ms in steps (without the observer: %.3f ms)\n", entry.result.test.Name().c_str(),
              entry.result.threads, profile.seconds * 1e3, entry.result.Seconds() * 1e3);
  PrintFormat("  %-22s %5s %7s %10s %6s %9s %8s %9s %8s  %s\n", "step", "layer", "calls", "ms", "share", "GB/s",
              "of mem.", "Gmac/s", "of int8", "kernel");
  for (const ProfileRow& row : RowsOf(profile, layers)) {
    const Achieved achieved = AchievedBy(row.cost, row.seconds, entry.peaks);
    const bool reads = row.cost.memory_bytes() != 0, multiplies = row.cost.multiply_adds() != 0;
    const bool int8 = row.cost.int8_multiply_adds != 0;
    char bytes[32] = "-", products[32] = "-";
    if (reads) std::snprintf(bytes, sizeof(bytes), "%.2f", achieved.bytes_per_s * 1e-9);
    if (multiplies) std::snprintf(products, sizeof(products), "%.1f", achieved.multiply_adds_per_s * 1e-9);
    PrintFormat("  %-22s %5s %7.0f %10.3f %5.1f%% %9s %8s %9s %8s  %s [%s]\n", row.step.c_str(),
                row.layer < 0 ? "" : std::to_string(row.layer).c_str(), row.calls, row.seconds * 1e3,
                100.0 * row.seconds / std::max(profile.seconds, 1e-12), bytes,
                reads && entry.peaks ? Percent(achieved.bandwidth_fraction).c_str() : "-", products,
                int8 && entry.peaks ? Percent(achieved.peak_fraction).c_str() : "-", row.kernel.c_str(),
                row.instruction_set.c_str());
  }
}

void PrintBenchLoad(const LoadFigures& load, const std::optional<MachinePeaks>& peaks) {
  PrintFormat("\nload %.1f ms, first token after another %.1f ms (prompt of %u)\n", load.load_ms, load.first_token_ms,
              load.first_token_prompt);
  PrintFormat("memory: peak %s, planned %s (packed weights %s)\n",
              HumanBytes(load.counters.peak_resident_bytes).c_str(), HumanBytes(load.memory.Total()).c_str(),
              load.packed_mapped ? "mapped" : "in anonymous memory");
  PrintFormat("beyond the plan and mapped weights: %.2f MB, program code included\n",
              static_cast<double>(load.BeyondPlan()) * 1e-6);
  if (!peaks) return;
  PrintFormat("memory is read at %.2f GB/s by %u threads (spread %.1f %%)\n", peaks->bandwidth.bytes_per_s * 1e-9,
              peaks->bandwidth.threads, peaks->bandwidth.spread * 100);
  PrintFormat("int8 peak %.1f G multiply-adds/s by %u threads with %s (spread %.1f %%)\n",
              peaks->dot_product.multiply_adds_per_s * 1e-9, peaks->dot_product.threads, peaks->dot_product.instruction,
              peaks->dot_product.spread * 100);
}

void PrintBenchEntryJson(const BenchSubject& subject, const BenchEntry& entry) {
  const BenchResult& result = entry.result;
  Json json = {{"test", result.test.Name()},
               {"threads", result.threads},
               {"tokens_per_s", result.Median()},
               {"spread", result.Spread()},
               {"samples", result.tokens_per_s},
               {"repetitions", subject.repetitions},
               {"depth", result.test.depth},
               {"kv", subject.kv},
               {"model", subject.model},
               {"model_file", subject.model_file},
               {"cpu", subject.cpu},
               {"cpu_level", subject.cpu_level},
               {"target", subject.target},
               {"version", LINNET_VERSION}};
  AddCost(result.cost, result.Seconds(), entry.peaks, json);
  PrintJson(json);
}

void PrintProfileJson(const BenchEntry& entry, bool layers) {
  for (const ProfileRow& row : RowsOf(entry.profile, layers)) {
    Json json = {{"test", "profile"},
                 {"profile_of", entry.result.test.Name()},
                 {"threads", entry.result.threads},
                 {"step", row.step},
                 {"layer", row.layer},
                 {"kernel", row.kernel},
                 {"instruction_set", row.instruction_set},
                 {"calls", row.calls},
                 {"seconds", row.seconds},
                 {"share", row.seconds / std::max(entry.profile.seconds, 1e-12)},
                 {"flops", 2 * row.cost.multiply_adds()}};
    AddCost(row.cost, row.seconds, entry.peaks, json);
    PrintJson(json);
  }
}

void PrintBenchLoadJson(const LoadFigures& load, const std::optional<MachinePeaks>& peaks) {
  Json json = {{"test", "load"},
               {"threads", load.threads},
               {"load_ms", load.load_ms},
               {"first_token_ms", load.first_token_ms},
               {"first_token_prompt", load.first_token_prompt},
               {"peak_rss_bytes", load.counters.peak_resident_bytes},
               {"anonymous_bytes", load.counters.anonymous_bytes},
               {"file_bytes", load.counters.file_bytes},
               {"program_bytes", load.program_bytes},
               {"plan_bytes", load.memory.Total()},
               {"plan_anonymous_bytes", load.memory.Anonymous()},
               {"resident_beyond_plan_bytes", load.BeyondPlan()},
               {"packed_mapped", load.packed_mapped}};
  if (peaks) AddPeaks(*peaks, json);
  for (const MemoryReport::Class& part : load.memory.Classes()) json[std::string(part.name) + "_bytes"] = part.bytes;
  PrintJson(json);
}

}  // namespace linnet::cli
