#include "examples/cli/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace linnet::cli {
namespace {

// The drawing's own units; the browser scales it to the page.
constexpr double kWidth = 720, kHeight = 320;
constexpr double kLeft = 72, kRight = 16, kTop = 40, kBottom = 48;
constexpr size_t kTicks = 6;        // about as many on each axis
constexpr size_t kMaxMarkers = 80;  // with more points, only the line is drawn
constexpr double kLegendStep = 150;

constexpr char kStyle[] = R"(
:root { color-scheme: light dark; --ink: #1b1b1f; --dim: #5d5f66; --rule: #d9dade; --page: #ffffff;
  --s0: #1f6feb; --s1: #c2410c; --s2: #15803d; --s3: #7c3aed; --s4: #a16207; --s5: #be185d; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6ea; --dim: #a2a5ad; --rule: #3a3c43; --page: #17181c;
    --s0: #6ea8fe; --s1: #fb923c; --s2: #4ade80; --s3: #c4a1ff; --s4: #facc15; --s5: #f472b6; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } p { color: var(--dim); }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--rule); text-align: left; }
th { color: var(--dim); font-weight: 600; } th + th, td + td { text-align: right; }
svg { width: 100%; height: auto; display: block; margin: 1rem 0; }
svg text { fill: var(--dim); font: 12px system-ui, sans-serif; } svg .title { fill: var(--ink); font-weight: 600; }
svg .rule { stroke: var(--rule); } svg .line { fill: none; stroke-width: 2; }
.s0 { stroke: var(--s0); } .s1 { stroke: var(--s1); } .s2 { stroke: var(--s2); }
.s3 { stroke: var(--s3); } .s4 { stroke: var(--s4); } .s5 { stroke: var(--s5); }
svg .point { fill: var(--page); stroke-width: 1.5; }
)";

// The steps of an axis: 1, 2 or 5 times a power of ten.
double NiceStep(double range) {
  const double rough = range / static_cast<double>(kTicks);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10.0 * power;
}

/// From values to places on one axis.
struct Axis {
  double low = 0.0, high = 1.0, begin = 0.0, end = 1.0;
  bool log = false;
  std::vector<double> ticks;

  double At(double value) const {
    const double v = log ? std::log10(value) : value;
    return begin + (v - low) / (high - low) * (end - begin);
  }
};

bool Drawable(const std::pair<double, double>& point, bool log_y) {
  return std::isfinite(point.first) && std::isfinite(point.second) && (!log_y || point.second > 0.0);
}

// Linear from the lowest to the highest value; the axis of heights begins at 0.
Axis LinearAxis(double low, double high, bool from_zero) {
  Axis axis;
  if (from_zero) low = std::min(low, 0.0);
  if (!(high > low)) high = low + 1.0;
  const double step = NiceStep(high - low);
  axis.low = from_zero ? std::floor(low / step) * step : low;
  axis.high = from_zero ? std::ceil(high / step) * step : high;
  for (double tick = std::ceil(axis.low / step) * step; tick <= axis.high + step * 1e-9; tick += step) {
    axis.ticks.push_back(std::abs(tick) < step * 1e-9 ? 0.0 : tick);
  }
  return axis;
}

// Whole decades around the values.
Axis LogAxis(double low, double high) {
  Axis axis;
  axis.log = true;
  axis.low = std::floor(std::log10(low));
  axis.high = std::max(std::ceil(std::log10(high)), axis.low + 1.0);
  const double step = std::ceil((axis.high - axis.low) / static_cast<double>(kTicks));
  for (double decade = axis.low; decade <= axis.high; decade += step) axis.ticks.push_back(std::pow(10.0, decade));
  return axis;
}

struct Axes {
  Axis x, y;
};

Axes MakeAxes(const Plot& plot) {
  double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
  for (const PlotSeries& series : plot.series) {
    for (const auto& point : series.points) {
      if (!Drawable(point, plot.log_y)) continue;
      x_low = std::min(x_low, point.first);
      x_high = std::max(x_high, point.first);
      y_low = std::min(y_low, point.second);
      y_high = std::max(y_high, point.second);
    }
  }
  if (x_low > x_high) x_low = 0.0, x_high = 1.0, y_low = plot.log_y ? 0.1 : 0.0, y_high = 1.0;  // nothing to draw
  Axes axes;
  axes.x = LinearAxis(x_low, x_high, false);
  axes.y = plot.log_y ? LogAxis(y_low, y_high) : LinearAxis(y_low, y_high, true);
  axes.x.begin = kLeft;
  axes.x.end = kWidth - kRight;
  axes.y.begin = kHeight - kBottom;
  axes.y.end = kTop;
  return axes;
}

std::string Text(double x, double y, const char* anchor, const std::string& text, const char* extra = "") {
  return Formatted("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor, extra) + HtmlEscape(text) +
         "</text>\n";
}

std::string Frame(const Plot& plot, const Axes& axes) {
  std::string svg;
  for (const double tick : axes.y.ticks) {
    const double y = axes.y.At(tick);
    svg += Formatted("<line class=\"rule\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", axes.x.begin, y,
                     axes.x.end, y);
    svg += Text(axes.x.begin - 8, y + 4, "end", Formatted("%.3g", tick));
  }
  for (const double tick : axes.x.ticks) {
    svg += Text(axes.x.At(tick), axes.y.begin + 18, "middle", Formatted("%.6g", tick));
  }
  svg += Text(kLeft, 16, "start", plot.title, " class=\"title\"");
  svg += Text((axes.x.begin + axes.x.end) / 2, kHeight - 8, "middle", plot.x_label);
  svg += Text(16, (axes.y.begin + axes.y.end) / 2, "middle", plot.y_label,
              Formatted(" transform=\"rotate(-90 16 %.1f)\"", (axes.y.begin + axes.y.end) / 2).c_str());
  return svg;
}

std::string Curve(const Plot& plot, const Axes& axes, size_t index) {
  const PlotSeries& series = plot.series[index];
  std::string line, markers;
  for (const auto& point : series.points) {
    if (!Drawable(point, plot.log_y)) continue;
    const double x = axes.x.At(point.first), y = axes.y.At(point.second);
    line += Formatted("%s%.1f,%.1f", line.empty() ? "" : " ", x, y);
    markers += Formatted("<circle class=\"point s%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>", index, x, y) +
               HtmlEscape(series.name) + Formatted(": %.6g, %.6g</title></circle>\n", point.first, point.second);
  }
  std::string svg = Formatted("<polyline class=\"line s%zu\" points=\"", index) + line + "\"/>\n";
  if (series.points.size() <= kMaxMarkers) svg += markers;
  if (plot.series.size() == 1) return svg;
  const double x = kLeft + kLegendStep * static_cast<double>(index);
  return svg +
         Formatted("<line class=\"line s%zu\" x1=\"%.1f\" y1=\"28\" x2=\"%.1f\" y2=\"28\"/>\n", index, x, x + 20) +
         Text(x + 26, 32, "start", series.name);
}

}  // namespace

std::string Formatted(const char* format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  std::string text(static_cast<size_t>(std::max(std::vsnprintf(nullptr, 0, format, arguments), 0)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  va_end(arguments);
  return text;
}

std::string HtmlEscape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string SvgPlot(const Plot& plot) {
  const Axes axes = MakeAxes(plot);
  std::string svg = Formatted("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", kWidth, kHeight);
  svg += HtmlEscape(plot.title) + "\">\n" + Frame(plot, axes);
  for (size_t i = 0; i < std::min(plot.series.size(), kMaxPlotSeries); ++i) svg += Curve(plot, axes, i);
  return svg + "</svg>\n";
}

std::string HtmlTable(const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<table>\n";
  for (size_t r = 0; r < rows.size(); ++r) {
    const char* tag = r == 0 ? "th" : "td";
    html += "<tr>";
    for (const std::string& cell : rows[r]) {
      html += Formatted("<%s>", tag) + HtmlEscape(cell) + Formatted("</%s>", tag);
    }
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string HtmlPage(std::string_view title, std::string_view body) {
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" + HtmlEscape(title);
  html += "</title>\n<style>";
  html += kStyle;
  html += "</style>\n</head>\n<body>\n<h1>" + HtmlEscape(title) + "</h1>\n";
  html += body;
  return html + "</body>\n</html>\n";
}

}  // namespace linnet::cli
