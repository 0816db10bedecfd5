#include "examples/cli/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "examples/cli/svg_plot.h"

namespace linnet::cli {
namespace {

// The drawing's own units; the browser scales it to the page.
constexpr double kWidth = 720, kHeight = 380;
constexpr double kLeft = 72, kRight = 24, kTop = 44, kBottom = 48;
constexpr double kLabelHeight = 14, kCharacterWidth = 7;
constexpr double kLegendStep = 150;

/// Decades of one axis, and where values are on it.
struct LogAxis {
  double low, high;  // decimal logarithms, whole
  double begin, end;

  double At(double value) const { return begin + (std::log10(value) - low) / (high - low) * (end - begin); }
};

LogAxis MakeAxis(double lowest, double highest, double begin, double end) {
  const double low = std::floor(std::log10(lowest));
  return {low, std::max(std::ceil(std::log10(highest)), low + 1.0), begin, end};
}

struct Axes {
  LogAxis x, y;
};

Axes MakeAxes(const Roofline& roofline) {
  double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
  const auto include = [&](double x, double y) {
    x_low = std::min(x_low, x), x_high = std::max(x_high, x);
    y_low = std::min(y_low, y), y_high = std::max(y_high, y);
  };
  for (const Roof& roof : roofline.roofs) include(roof.operations_per_s / roof.bytes_per_s, roof.operations_per_s);
  for (const RooflineSeries& series : roofline.series) {
    for (const RooflinePoint& point : series.points) include(point.operations_per_byte, point.operations_per_s);
  }
  if (x_low > x_high) include(1.0, 1.0);  // nothing to draw
  return {MakeAxis(x_low, x_high, kLeft, kWidth - kRight), MakeAxis(y_low, y_high, kHeight - kBottom, kTop)};
}

std::string Text(double x, double y, const char* anchor, const std::string& text, const char* extra = "") {
  return Formatted("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor, extra) + HtmlEscape(text) +
         "</text>\n";
}

std::string Line(double x1, double y1, double x2, double y2, const char* attributes) {
  return Formatted("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, attributes);
}

std::string Open(const std::string& title, double height) {
  return Formatted("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", kWidth, height) + HtmlEscape(title) +
         "\">\n" + Text(kLeft, 16, "start", title, " class=\"title\"");
}

std::string Frame(const Roofline& roofline, const Axes& axes) {
  std::string svg;
  for (double decade = axes.y.low; decade <= axes.y.high; ++decade) {
    const double y = axes.y.At(std::pow(10.0, decade));
    svg += Line(axes.x.begin, y, axes.x.end, y, "class=\"rule\"");
    svg += Text(axes.x.begin - 8, y + 4, "end", ShortNumber(std::pow(10.0, decade)));
  }
  for (double decade = axes.x.low; decade <= axes.x.high; ++decade) {
    const double x = axes.x.At(std::pow(10.0, decade));
    svg += Line(x, axes.y.begin, x, axes.y.end, "class=\"rule\"");
    svg += Text(x, axes.y.begin + 18, "middle", ShortNumber(std::pow(10.0, decade)));
  }
  svg += Text((axes.x.begin + axes.x.end) / 2, kHeight - 8, "middle", roofline.x_label);
  return svg + Text(16, (axes.y.begin + axes.y.end) / 2, "middle", roofline.y_label,
                    Formatted(" transform=\"rotate(-90 16 %.1f)\"", (axes.y.begin + axes.y.end) / 2).c_str());
}

// The memory's slope up to the ridge, then level; both cut at the frame.
std::string DrawRoof(const Roof& roof, const Axes& axes) {
  const double ridge = roof.operations_per_s / roof.bytes_per_s;
  const double lowest_x = std::pow(10.0, axes.x.low), lowest_y = std::pow(10.0, axes.y.low);
  const double start = std::max(lowest_x, lowest_y / roof.bytes_per_s);
  const double level = axes.y.At(roof.operations_per_s);
  return Formatted(
             "<polyline style=\"fill:none;stroke:var(--dim);stroke-width:1.5;stroke-dasharray:5 4\" "
             "points=\"%.1f,%.1f %.1f,%.1f %.1f,%.1f\"/>\n",
             axes.x.At(start), axes.y.At(start * roof.bytes_per_s), axes.x.At(ridge), level, axes.x.end, level) +
         Text(axes.x.end, level - 5, "end", roof.name);
}

/// Labels that are kept apart: where one is near, the next goes below it.
class Labels {
 public:
  std::string Add(double x, double y, const std::string& text) {
    const double width = kCharacterWidth * static_cast<double>(text.size());
    if (x + width > kWidth) x -= width + 18;
    const auto meets = [&](const Box& box) {
      return x < box.x + box.width && box.x < x + width && std::abs(y - box.y) < kLabelHeight;
    };
    for (size_t tries = 0; tries < boxes_.size(); ++tries) {
      const auto met = std::find_if(boxes_.begin(), boxes_.end(), meets);
      if (met == boxes_.end()) break;
      y = met->y + kLabelHeight;
    }
    boxes_.push_back({x, y, width});
    return Text(x, y, "start", text, " style=\"fill:var(--ink)\"");
  }

 private:
  struct Box {
    double x, y, width;
  };
  std::vector<Box> boxes_;
};

std::string DrawSeries(const RooflineSeries& series, size_t colour, const Axes& axes, Labels& labels) {
  std::string small, large;
  for (const RooflinePoint& point : series.points) {
    const double x = axes.x.At(point.operations_per_byte), y = axes.y.At(point.operations_per_s);
    std::string& marks = point.label.empty() ? small : large;
    marks += Formatted("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" style=\"fill:var(--s%zu);stroke:var(--page)\"><title>",
                       x, y, point.label.empty() ? 3 : 6, colour);
    marks += HtmlEscape(point.tooltip) + "</title></circle>\n";
    if (!point.label.empty()) large += labels.Add(x + 9, y + 4, point.label);
  }
  const double legend = kLeft + kLegendStep * static_cast<double>(colour);
  return small + large +
         Formatted("<circle cx=\"%.1f\" cy=\"28\" r=\"5\" style=\"fill:var(--s%zu)\"/>\n", legend + 5, colour) +
         Text(legend + 16, 32, "start", series.name);
}

}  // namespace

std::string ShortNumber(double value) {
  constexpr std::array<const char*, 5> kPrefixes = {"", " k", " M", " G", " T"};
  size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < kPrefixes.size()) value /= 1000.0, ++prefix;
  return Formatted("%.3g%s", value, kPrefixes[prefix]);
}

std::string SvgRoofline(const Roofline& roofline) {
  const Axes axes = MakeAxes(roofline);
  std::string svg = Open(roofline.title, kHeight) + Frame(roofline, axes);
  for (const Roof& roof : roofline.roofs) svg += DrawRoof(roof, axes);
  Labels labels;
  for (size_t i = 0; i < std::min(roofline.series.size(), kMaxPlotSeries); ++i) {
    svg += DrawSeries(roofline.series[i], i, axes, labels);
  }
  return svg + "</svg>\n";
}

std::string SvgBars(const std::string& title, const std::vector<Bar>& bars) {
  constexpr double kRow = 26, kThick = 16, kNames = 180, kValues = 110, kFirst = 28;
  double largest = 1e-9;
  for (const Bar& bar : bars) largest = std::max(largest, bar.value);
  std::string svg = Open(title, kFirst + kRow * static_cast<double>(bars.size()));
  double y = kFirst;
  for (const Bar& bar : bars) {
    const double width = bar.value / largest * (kWidth - kNames - kValues);
    svg += Text(kNames - 8, y + kThick - 4, "end", bar.name);
    svg += Formatted("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" style=\"fill:var(--s0)\"><title>",
                     kNames, y, width, kThick);
    svg += HtmlEscape(bar.tooltip) + "</title></rect>\n";
    svg += Text(kNames + width + 6, y + kThick - 4, "start", bar.value_text, " style=\"fill:var(--ink)\"");
    y += kRow;
  }
  return svg + "</svg>\n";
}

}  // namespace linnet::cli
