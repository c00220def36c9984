// Figures of the report: a chart is a value, and an SVG image is a pure function of it. Series differ in colour, in
// lightness, in the shape of their markers and in the strokes of their lines, so that charts can be read in grey; what
// a paper printed is always hollow and dashed. Sizes fit a column of a telephone's screen.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/statistics.h"

namespace espalier {

enum class ChartForm {
  line,       // y over categories
  rows,       // a bar for each category, from left to right
  histogram,  // y over ranges of x
  scatter,    // y over x
};
std::string_view name(ChartForm form);

struct ChartPoint {
  double x = 0;  // line, rows: the index of a category; histogram: where the range begins
  double y = 0;
  std::optional<Interval> interval = {};  // of y
  std::string note = {};                  // shown beside a bar, and where a mouse points at the mark
};

struct ChartSeries {
  std::string name = {};
  std::vector<ChartPoint> points = {};
  bool paper = false;
};

struct ChartAxis {
  std::string title = {};  // with its unit: "Tok/s"
  std::vector<std::string> categories = {};
  int decimals = 2;       // of values in tooltips and beside bars
  bool from_zero = true;  // the axis begins at 0
  bool percent = false;   // values are shares
};

struct Chart {
  std::string id = {};  // a slug; unique in a report
  std::string title = {};
  ChartForm form = ChartForm::line;
  ChartAxis x = {};
  ChartAxis y = {};
  std::vector<ChartSeries> series = {};
  std::optional<double> reference = {};  // a line at this y: 1 where there is neither gain nor loss
  double bin_width = 0;                  // histogram

  bool empty() const;  // no point at all
};

// An <svg> element for a page that has chart_style() once.
std::string chart_svg(const Chart& chart);
// A file of its own.
std::string chart_document(const Chart& chart);
// Several in one file, in two columns. Requires at least one.
std::string charts_document(std::span<const Chart> charts);
std::string_view chart_style();

// A line for each point: series, category or x, y, low, high.
std::string to_csv(const Chart& chart);
nlohmann::ordered_json to_json(const Chart& chart);

// Whether these fit side by side below an axis.
bool fit_below_axis(const std::vector<std::string>& categories);

}  // namespace espalier
