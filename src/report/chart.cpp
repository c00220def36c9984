#include "report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "eval/turn_table.h"
#include "report/assets.h"
#include "report/chart_parts.h"
#include "report/markup.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kTitle = 30;  // pixels
constexpr double kLegendLine = 19;
constexpr double kWidestLeft = 70;  // of an axis with long numbers

// What a series looks like in this form.
std::string sample(const Chart& chart, std::size_t series, double x, double y) {
  const std::string kind = series_class(chart, series);
  if (chart.form == ChartForm::rows || chart.form == ChartForm::histogram)
    return fmt::format("<rect class=\"{} {}\"{} x=\"{:.1f}\" y=\"{:.1f}\" width=\"20\" height=\"10\"/>",
                       chart.form == ChartForm::rows ? "bar" : "area", kind,
                       chart.form == ChartForm::rows ? series_density(chart, series) : series_strokes(chart, series), x,
                       y - 9);
  std::string svg;
  if (chart.form == ChartForm::line)
    svg = fmt::format("<path class=\"line {}\"{} d=\"M{:.1f} {:.1f}h20\"/>", kind, series_strokes(chart, series), x,
                      y - 4);
  return svg + chart_marker(chart, series, x + 10, y - 4, "");
}

Drawing legend(const Chart& chart) {
  const bool needless = chart.series.size() == 1 && !chart.series[0].paper;
  if (needless) return {};
  std::string svg;
  double x = 12, y = kTitle + 12;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const std::string text = cut_label(chart.series[i].name, 52);
    const double width = 26 + kChartCharacter * static_cast<double>(text.size()) + 14;
    if (x > 12 && x + width > kChartWidth) x = 12, y += kLegendLine;
    svg += sample(chart, i, x, y) + chart_text(x + 26, y, "", text);
    x += width;
  }
  return {svg, y - kTitle + 10};
}

Drawing body(const Chart& chart) {
  check(!chart.empty(), "chart {} has no points", chart.id);
  const Drawing key = legend(chart);
  const double top = kTitle + key.height;
  const Drawing plot = chart.form == ChartForm::rows ? draw_rows(chart, top) : draw_axes(chart, top);
  return {chart_text(12, 19, "title", cut_label(chart.title, 54)) + key.svg + plot.svg, top + plot.height};
}

std::string svg_element(const Chart& chart, const Drawing& inner, std::string_view attributes, std::string_view style) {
  return fmt::format(
      "<svg class=\"chart\" role=\"img\" viewBox=\"0 0 {0} {1:.0f}\" {2}>\n<title>{3}</title>\n{4}{5}\n</svg>\n",
      kChartWidth, inner.height, attributes, markup_text(chart.title), style, inner.svg);
}

constexpr std::string_view kXml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

// What a file needs that a page has already: the style, and what lies behind the chart.
std::string file_style() {
  return fmt::format(
      "<style>\n{}svg.chart rect.page {{ fill: #ffffff; }}\n"
      "@media (prefers-color-scheme: dark) {{ svg.chart rect.page {{ fill: #17191c; }} }}\n</style>\n"
      "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
      kChartStyle);
}

}  // namespace

std::string_view name(ChartForm form) {
  switch (form) {
    case ChartForm::line: return "line";
    case ChartForm::rows: return "rows";
    case ChartForm::histogram: return "histogram";
    default: return "scatter";
  }
}

bool Chart::empty() const {
  return std::ranges::all_of(series, [](const ChartSeries& one) { return one.points.empty(); });
}

std::string_view chart_style() {
  return kChartStyle;
}

std::string chart_svg(const Chart& chart) {
  return svg_element(chart, body(chart), "", "");
}

std::string chart_document(const Chart& chart) {
  return std::string(kXml) +
         svg_element(chart, body(chart), "xmlns=\"http://www.w3.org/2000/svg\" width=\"600\"", file_style());
}

std::string charts_document(std::span<const Chart> charts) {
  check(!charts.empty(), "a file without charts");
  std::string inner;
  double top = 0, row = 0;
  for (std::size_t i = 0; i < charts.size(); ++i) {
    const bool left = i % 2 == 0;
    if (left) top += std::exchange(row, 0);
    const Drawing chart = body(charts[i]);
    inner += svg_element(charts[i], chart,
                         fmt::format("x=\"{}\" y=\"{:.0f}\" width=\"{}\" height=\"{:.0f}\"", left ? 0 : kChartWidth,
                                     top, kChartWidth, chart.height),
                         "");
    row = std::max(row, chart.height);
  }
  const double width = charts.size() > 1 ? 2 * kChartWidth : kChartWidth;
  return fmt::format(
      "{}<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {:.0f}\" "
      "width=\"{}\">\n{}{}</svg>\n",
      kXml, width, top + row, 1.5 * width, file_style(), inner);
}

std::string to_csv(const Chart& chart) {
  std::string csv = fmt::format("series,{},{},low,high\n", csv_field(chart.x.title), csv_field(chart.y.title));
  for (const ChartSeries& series : chart.series)
    for (const ChartPoint& point : series.points) {
      const std::string x = chart.x.categories.empty()
                                ? fmt::format("{}", point.x)
                                : csv_field(chart.x.categories[static_cast<std::size_t>(point.x)]);
      csv += fmt::format("{},{},{},{}\n", csv_field(series.name), x, point.y,
                         point.interval ? fmt::format("{},{}", point.interval->low, point.interval->high) : ",");
    }
  return csv;
}

Json to_json(const Chart& chart) {
  Json list = Json::array();
  for (const ChartSeries& series : chart.series) {
    Json points = Json::array();
    for (const ChartPoint& point : series.points) {
      Json x = point.x;
      if (!chart.x.categories.empty()) x = chart.x.categories[static_cast<std::size_t>(point.x)];
      points.push_back({{"x", x}, {"y", point.y}});
      if (point.interval) points.back()["interval"] = to_json(*point.interval);
    }
    list.push_back({{"name", series.name}, {"paper", series.paper}, {"points", points}});
  }
  return {{"id", chart.id},     {"title", chart.title}, {"form", name(chart.form)},
          {"x", chart.x.title}, {"y", chart.y.title},   {"bin_width", chart.bin_width},
          {"series", list}};
}

bool fit_below_axis(const std::vector<std::string>& categories) {
  std::size_t characters = 0;
  for (const std::string& category : categories) characters = std::max(characters, category.size() + 1);
  return static_cast<double>(characters * categories.size()) * kChartCharacter <=
         kChartWidth - kWidestLeft - kChartRight;
}

}  // namespace espalier
