// What the forms of charts are drawn of: sizes, marks, labels and ranges. Pure functions; for chart*.cpp alone.
#pragma once

#include <string>
#include <string_view>

#include "report/chart.h"

namespace espalier {

// Sizes in pixels.
inline constexpr double kChartWidth = 400;
inline constexpr double kChartRight = 14;
inline constexpr double kBelowChart = 44;       // ticks and the axis' title
inline constexpr double kChartCharacter = 6.6;  // of a 12 pixel font, on average and a bit more

// How a series is told from others: the class that colours it, and the strokes of its lines (an attribute, or nothing).
std::string series_class(const Chart& chart, std::size_t series);
std::string series_strokes(const Chart& chart, std::size_t series);
// How densely bars, and marks that may overlap, are filled (an attribute, or nothing): neighbours differ in grey too.
std::string series_density(const Chart& chart, std::size_t series);

// The series' marker around (x, y).
std::string chart_marker(const Chart& chart, std::size_t series, double x, double y, std::string_view tooltip);
std::string chart_text(double x, double y, std::string_view kind, std::string_view text);
// At most so many characters, the last of them an ellipsis.
std::string cut_label(const std::string& text, std::size_t most);

std::string value_text(double value, const ChartAxis& axis);
// "eagle3, 16: 1.48 [1.40, 1.56]; 20 turns"
std::string chart_tooltip(const Chart& chart, std::size_t series, const ChartPoint& point);

// Of all points, intervals and the reference included.
Interval y_range(const Chart& chart);
Interval x_range(const Chart& chart);

// A part of an image, and how high it became.
struct Drawing {
  std::string svg = {};
  double height = 0;
};
Drawing draw_axes(const Chart& chart, double top);  // line, histogram, scatter
Drawing draw_rows(const Chart& chart, double top);

}  // namespace espalier
