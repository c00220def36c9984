#include "report/chart_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/markup.h"

namespace espalier {
namespace {

constexpr std::size_t kColours = 6;
constexpr double kDensities[] = {0.85, 0.3, 0.6, 0.1};
constexpr std::string_view kStrokes[] = {"", "7 4", "2 3", "9 3 2 3"};

// The shape of a marker around (x, y).
std::string marker_path(std::size_t shape, double x, double y) {
  constexpr double r = 4;
  switch (shape % 6) {
    case 0:
      return fmt::format("M{:.1f} {:.1f}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z", x - r, y, fmt::arg("r", r),
                         fmt::arg("d", 2 * r));
    case 1: return fmt::format("M{:.1f} {:.1f}h7v7h-7z", x - 3.5, y - 3.5);
    case 2: return fmt::format("M{:.1f} {:.1f}l4.6 8h-9.2z", x, y - 5);
    case 3: return fmt::format("M{:.1f} {:.1f}l4.8 4.8l-4.8 4.8l-4.8 -4.8z", x, y - 4.8);
    case 4: return fmt::format("M{:.1f} {:.1f}h9M{:.1f} {:.1f}v9", x - 4.5, y, x, y - 4.5);
    default: return fmt::format("M{:.1f} {:.1f}l7 7m-7 0l7 -7", x - 3.5, y - 3.5);
  }
}

std::string place_text(const Chart& chart, const ChartPoint& point) {
  if (!chart.x.categories.empty()) return chart.x.categories[static_cast<std::size_t>(point.x)];
  if (chart.form == ChartForm::histogram)
    return fmt::format("{} to {}", value_text(point.x, chart.x), value_text(point.x + chart.bin_width, chart.x));
  return value_text(point.x, chart.x);
}

}  // namespace

std::string series_class(const Chart& chart, std::size_t series) {
  return chart.series[series].paper ? "cited" : fmt::format("s{}", series % kColours);
}

std::string series_strokes(const Chart& chart, std::size_t series) {
  const std::string_view strokes = kStrokes[series % std::size(kStrokes)];
  if (chart.series[series].paper || strokes.empty()) return "";
  return fmt::format(" stroke-dasharray=\"{}\"", strokes);
}

std::string series_density(const Chart& chart, std::size_t series) {
  if (chart.series[series].paper) return "";
  return fmt::format(" fill-opacity=\"{}\"", kDensities[series % std::size(kDensities)]);
}

std::string chart_marker(const Chart& chart, std::size_t series, double x, double y, std::string_view tooltip) {
  const std::string density = chart.form == ChartForm::scatter ? series_density(chart, series) : "";  // they overlap
  return fmt::format("<path class=\"marker {}\"{} d=\"{}\">{}</path>", series_class(chart, series), density,
                     marker_path(chart.series[series].paper ? 0 : series, x, y),
                     tooltip.empty() ? "" : fmt::format("<title>{}</title>", markup_text(tooltip)));
}

std::string chart_text(double x, double y, std::string_view kind, std::string_view text) {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", kind, x, y, markup_text(text));
}

std::string cut_label(const std::string& text, std::size_t most) {
  std::string kept;
  std::size_t characters = 0;
  for (const char c : text) {
    const bool begins = (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    if (begins && ++characters > most) return kept + "\u2026";
    kept += c;
  }
  return kept;
}

std::string value_text(double value, const ChartAxis& axis) {
  return axis.percent ? fmt::format("{:.{}f} %", 100 * value, std::max(0, axis.decimals - 1))
                      : fmt::format("{:.{}f}", value, axis.decimals);
}

std::string chart_tooltip(const Chart& chart, std::size_t series, const ChartPoint& point) {
  std::string text =
      fmt::format("{}, {}: {}", chart.series[series].name, place_text(chart, point), value_text(point.y, chart.y));
  if (point.interval)
    text +=
        fmt::format(" [{}, {}]", value_text(point.interval->low, chart.y), value_text(point.interval->high, chart.y));
  return point.note.empty() ? text : text + "; " + point.note;
}

Interval y_range(const Chart& chart) {
  Interval range{INFINITY, -INFINITY};
  const auto include = [&](double value) { range = {std::min(range.low, value), std::max(range.high, value)}; };
  if (chart.y.from_zero) include(0);
  if (chart.reference) include(*chart.reference);
  for (const ChartSeries& series : chart.series)
    for (const ChartPoint& point : series.points) {
      include(point.y);
      if (point.interval) include(point.interval->low), include(point.interval->high);
    }
  return range;
}

Interval x_range(const Chart& chart) {
  if (!chart.x.categories.empty()) return {-0.5, static_cast<double>(chart.x.categories.size()) - 0.5};
  Interval range{INFINITY, -INFINITY};
  for (const ChartSeries& series : chart.series)
    for (const ChartPoint& point : series.points)
      range = {std::min(range.low, point.x), std::max(range.high, point.x + chart.bin_width)};
  return range;
}

}  // namespace espalier
