// Charts beside SvgPlot's line plots: a roofline and bars. Inline SVG in the colours of HtmlPage.
#ifndef LINNET_EXAMPLES_CLI_SVG_CHART_H_
#define LINNET_EXAMPLES_CLI_SVG_CHART_H_

#include <string>
#include <vector>

namespace linnet::cli {

/// "1.5 k", "320 G": a number with three digits and a decimal prefix.
std::string ShortNumber(double value);

/// A machine's limits.
struct Roof {
  std::string name;
  double bytes_per_s = 0.0;
  double operations_per_s = 0.0;
};

/// Work that moves and computes; both axes are logarithmic, so all values are above 0.
struct RooflinePoint {
  double operations_per_byte = 0.0;
  double operations_per_s = 0.0;
  std::string label;    // beside a large mark; empty: a small mark without
  std::string tooltip;  // where the pointer rests
};

struct RooflineSeries {
  std::string name;
  std::vector<RooflinePoint> points;
};

struct Roofline {
  std::string title, x_label, y_label;
  std::vector<Roof> roofs;
  std::vector<RooflineSeries> series;  // at most kMaxPlotSeries
};
std::string SvgRoofline(const Roofline& roofline);

struct Bar {
  std::string name, value_text, tooltip;
  double value = 0.0;  // >= 0
};
/// Horizontal bars from zero.
std::string SvgBars(const std::string& title, const std::vector<Bar>& bars);

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_SVG_CHART_H_
