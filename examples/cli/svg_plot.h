// Line plots as SVG, and the page around them: one HTML file without scripts or anything from elsewhere.
#ifndef LINNET_EXAMPLES_CLI_SVG_PLOT_H_
#define LINNET_EXAMPLES_CLI_SVG_PLOT_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace linnet::cli {

struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y; x ascending. Points that are not finite are left out
};

struct Plot {
  std::string title, x_label, y_label;
  bool log_y = false;              // points at or below zero are left out
  std::vector<PlotSeries> series;  // at most kMaxPlotSeries
};

constexpr size_t kMaxPlotSeries = 6;  // colours of HtmlPage

/// One <svg> element as wide as its surroundings. Colours are classes that HtmlPage defines for light and dark; every
/// point tells its values where the pointer rests on it.
std::string SvgPlot(const Plot& plot);

/// A table; the first row is the head. Cells are texts, and are escaped; all but the first of a row
/// stand right.
std::string HtmlTable(const std::vector<std::vector<std::string>>& rows);

/// Text as it may stand in HTML.
std::string HtmlEscape(std::string_view text);

/// The whole document; `body` is HTML.
std::string HtmlPage(std::string_view title, std::string_view body);

/// printf into a string.
std::string Formatted(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_SVG_PLOT_H_
