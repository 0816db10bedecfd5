// The page of a bench: plots first, the numbers behind them as tables.
#include <algorithm>
#include <map>

#include "examples/cli/bench_report.h"
#include "examples/cli/output.h"
#include "examples/cli/svg_chart.h"
#include "examples/cli/svg_plot.h"

namespace linnet::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string Percent(double fraction) { return Formatted("%.1f%%", fraction * 100); }

std::string ThreadsText(uint32_t threads) { return Formatted("%u thread%s", threads, threads == 1 ? "" : "s"); }

std::string WideTable(const Rows& rows) { return "<div style=\"overflow-x:auto\">" + HtmlTable(rows) + "</div>\n"; }

RooflinePoint PointOf(const std::string& name, const StepCost& cost, double seconds) {
  RooflinePoint point;
  point.operations_per_byte = static_cast<double>(cost.multiply_adds()) / static_cast<double>(cost.memory_bytes());
  point.operations_per_s = static_cast<double>(cost.multiply_adds()) / std::max(seconds, 1e-12);
  point.tooltip = name + ": " + ShortNumber(point.operations_per_s) + " multiply-adds/s, " +
                  ShortNumber(point.operations_per_byte) + " a byte";
  return point;
}

// A test as a large mark, its steps as small ones.
void AddEntry(const BenchEntry& entry, RooflineSeries* series) {
  const std::string name = entry.result.test.Name() + ", " + ThreadsText(entry.result.threads);
  for (const ProfileRow& row : entry.profile.by_step) {
    if (row.cost.multiply_adds() == 0 || row.cost.memory_bytes() == 0 || row.seconds <= 0.0) continue;
    series->points.push_back(PointOf(name + ", " + row.step, row.cost, row.seconds));
  }
  series->points.push_back(PointOf(name, entry.result.cost, entry.result.Seconds()));
  series->points.back().label = entry.result.test.Name();
}

std::string RooflineSection(const BenchReport& report) {
  Roofline roofline;
  roofline.title = "Multiply-adds per second against multiply-adds per byte";
  roofline.x_label = "multiply-adds for each byte of weights and KV cache";
  roofline.y_label = "multiply-adds per second";
  RooflineSeries prefill = {.name = "prefill", .points = {}}, decode = {.name = "decode", .points = {}};
  std::map<uint32_t, MachinePeaks> peaks;
  for (const BenchEntry& entry : report.entries) {
    AddEntry(entry, entry.result.test.decode ? &decode : &prefill);
    if (entry.peaks) peaks[entry.result.threads] = *entry.peaks;
  }
  for (const auto& [threads, limits] : peaks) {
    roofline.roofs.push_back(
        {ThreadsText(threads), limits.bandwidth.bytes_per_s, limits.dot_product.multiply_adds_per_s});
  }
  roofline.series = {std::move(prefill), std::move(decode)};
  return "<h2>Roofline</h2>\n<p>Dashed: what the memory's read bandwidth and the int8 dot-product peak allow. Large "
         "marks "
         "are whole tests, small ones kinds of steps; point at one to read it. Weights that stay in a cache from one "
         "token "
         "to the next may lie above the slope.</p>\n" +
         SvgRoofline(roofline);
}

// Tests that differ in depth only are one line.
std::string DepthSection(const BenchReport& report, bool decode) {
  std::vector<PlotSeries> series;
  for (const BenchEntry& entry : report.entries) {
    const BenchResult& result = entry.result;
    if (result.test.decode != decode) continue;
    BenchTest at_zero = result.test;
    at_zero.depth = 0;
    const std::string name = at_zero.Name() + ", " + ThreadsText(result.threads);
    auto found = std::find_if(series.begin(), series.end(), [&](const PlotSeries& s) { return s.name == name; });
    if (found == series.end()) found = series.insert(series.end(), {.name = name, .points = {}});
    found->points.emplace_back(result.test.depth, result.Median());
  }
  if (series.empty()) return "";
  std::string html = std::string("<h2>") + (decode ? "Decode" : "Prefill") + " by depth</h2>\n";
  for (size_t first = 0; first < series.size(); first += kMaxPlotSeries) {
    Plot plot;
    plot.title = decode ? "Decode, median" : "Prefill, median";
    plot.x_label = "tokens already in the context";
    plot.y_label = "tokens per second";
    plot.series.assign(series.begin() + static_cast<ptrdiff_t>(first),
                       series.begin() + static_cast<ptrdiff_t>(std::min(first + kMaxPlotSeries, series.size())));
    for (PlotSeries& line : plot.series) std::sort(line.points.begin(), line.points.end());
    html += SvgPlot(plot);
  }
  return html;
}

std::string MemorySection(const LoadFigures& load) {
  std::vector<Bar> bars;
  for (const MemoryReport::Class& part : load.memory.Classes()) {
    bars.push_back({.name = part.name,
                    .value_text = HumanBytes(part.bytes),
                    .tooltip = std::string(part.meaning) + ": " + std::to_string(part.bytes) + " bytes",
                    .value = static_cast<double>(part.bytes)});
  }
  return "<h2>Memory by class</h2>\n<p>Planned " + HumanBytes(load.memory.Total()) + "; peak resident " +
         HumanBytes(load.counters.peak_resident_bytes) + "; packed weights " +
         (load.packed_mapped ? "mapped" : "in anonymous memory") + ".</p>\n" + SvgBars("Planned bytes", bars);
}

std::string ResultsSection(const BenchReport& report) {
  Rows rows = {{"test", "threads", "tokens/s", "slowest", "fastest", "spread", "GB/s", "of bandwidth",
                "G multiply-adds/s", "of int8 peak"}};
  for (const BenchEntry& entry : report.entries) {
    const BenchResult& result = entry.result;
    const Achieved achieved = AchievedBy(result.cost, result.Seconds(), entry.peaks);
    rows.push_back({result.test.Name(), std::to_string(result.threads), Formatted("%.2f", result.Median()),
                    Formatted("%.2f", result.tokens_per_s.front()), Formatted("%.2f", result.tokens_per_s.back()),
                    Percent(result.Spread()), Formatted("%.2f", achieved.bytes_per_s * 1e-9),
                    entry.peaks ? Percent(achieved.bandwidth_fraction) : "-",
                    Formatted("%.1f", achieved.multiply_adds_per_s * 1e-9),
                    entry.peaks ? Percent(achieved.peak_fraction) : "-"});
  }
  return "<h2>Results</h2>\n" + WideTable(rows);
}

std::vector<std::string> ProfileCells(const ProfileRow& row, const BenchEntry& entry) {
  const Achieved achieved = AchievedBy(row.cost, row.seconds, entry.peaks);
  const bool reads = row.cost.memory_bytes() != 0, multiplies = row.cost.multiply_adds() != 0;
  const bool int8 = row.cost.int8_multiply_adds != 0;
  return {row.step,
          Formatted("%.0f", row.calls),
          Formatted("%.3f", row.seconds * 1e3),
          Percent(row.seconds / std::max(entry.profile.seconds, 1e-12)),
          reads ? Formatted("%.2f", achieved.bytes_per_s * 1e-9) : "-",
          reads && entry.peaks ? Percent(achieved.bandwidth_fraction) : "-",
          multiplies ? Formatted("%.1f", achieved.multiply_adds_per_s * 1e-9) : "-",
          int8 && entry.peaks ? Percent(achieved.peak_fraction) : "-",
          row.kernel,
          row.instruction_set};
}

std::string ProfileSection(const BenchEntry& entry) {
  if (entry.profile.empty()) return "";
  Rows rows = {{"step", "calls", "ms", "share", "GB/s", "of bandwidth", "G multiply-adds/s", "of int8 peak", "kernel",
                "instruction set"}};
  for (const ProfileRow& row : entry.profile.by_step) rows.push_back(ProfileCells(row, entry));
  return "<details open><summary>" + entry.result.test.Name() + ", " + ThreadsText(entry.result.threads) +
         "</summary>\n" + WideTable(rows) + "</details>\n";
}

std::string Facts(const BenchReport& report) {
  const BenchSubject& subject = report.subject;
  Rows rows = {{"what", "value"},
               {"CPU", subject.cpu},
               {"kernels", "XNNPACK: " + subject.cpu_level + ", Linnet: " + subject.target},
               {"KV cache", subject.kv},
               {"repetitions", Formatted("%u of each test", subject.repetitions)},
               {"load", Formatted("%.1f ms, the first token of a prompt of %u after another %.1f ms",
                                  report.load.load_ms, report.load.first_token_prompt, report.load.first_token_ms)}};
  if (report.load_peaks) {
    const platform::ReadBandwidth& bandwidth = report.load_peaks->bandwidth;
    const platform::DotProductPeak& peak = report.load_peaks->dot_product;
    rows.push_back(
        {"read bandwidth", Formatted("%.2f GB/s by %s, spread %s", bandwidth.bytes_per_s * 1e-9,
                                     ThreadsText(bandwidth.threads).c_str(), Percent(bandwidth.spread).c_str())});
    rows.push_back(
        {"int8 peak", Formatted("%.0f G multiply-adds/s by %s with %s, spread %s", peak.multiply_adds_per_s * 1e-9,
                                ThreadsText(peak.threads).c_str(), peak.instruction, Percent(peak.spread).c_str())});
  }
  rows.push_back({"version", "linnet " LINNET_VERSION});
  return HtmlTable(rows);
}

}  // namespace

std::string BenchHtml(const BenchReport& report) {
  std::string profiles;
  for (const BenchEntry& entry : report.entries) profiles += ProfileSection(entry);
  if (!profiles.empty()) profiles = "<h2>Steps</h2>\n" + profiles;
  return HtmlPage("linnet bench: " + report.subject.model,
                  Facts(report) + ResultsSection(report) + DepthSection(report, true) + DepthSection(report, false) +
                      RooflineSection(report) + MemorySection(report.load) + profiles);
}

}  // namespace linnet::cli
