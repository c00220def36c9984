#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/chart_parts.h"
#include "report/chart_scale.h"
#include "report/markup.h"

namespace espalier {
namespace {

constexpr double kBar = 13;
constexpr double kBarPitch = 18;
constexpr double kGroupGap = 10;
constexpr std::size_t kWidestRowLabel = 13;  // characters that stand left of bars; longer ones stand above

// Bars from left to right, with their values behind them.
class RowsDrawing {
 public:
  RowsDrawing(const Chart& chart, double top) : chart_(chart), top_(top) {
    std::size_t longest = 0;
    for (const std::string& category : chart.x.categories) longest = std::max(longest, category.size());
    above_ = longest > kWidestRowLabel;
    left_ = above_ ? 12 : 16 + kChartCharacter * static_cast<double>(longest);
    const Interval range = y_range(chart);
    ticks_ = round_ticks(std::min(0.0, range.low), range.high, 4);
    scale_ = {ticks_.front(), ticks_.back(), left_, kChartWidth - kChartRight - kChartCharacter * widest_value()};
  }

  Drawing draw() {
    std::string bars;
    double y = top_ + 4;
    for (std::size_t category = 0; category < chart_.x.categories.size(); ++category) bars += group(category, y);
    const std::string svg = grid(y) + bars;
    return {svg, y - top_ + kBelowChart};
  }

 private:
  double widest_value() const {
    std::size_t widest = 4;
    for (const ChartSeries& series : chart_.series)
      for (const ChartPoint& point : series.points) widest = std::max(widest, label(point).size() + 1);
    return static_cast<double>(widest);
  }

  std::string label(const ChartPoint& point) const {
    return value_text(point.y, chart_.y) + (point.note.empty() ? "" : ", " + point.note);
  }

  std::string group(std::size_t category, double& y) const {
    std::string svg;
    if (above_) svg += chart_text(left_, y + 11, "", cut_label(chart_.x.categories[category], 56)), y += 17;
    const double first = y;
    for (std::size_t i = 0; i < chart_.series.size(); ++i)
      for (const ChartPoint& point : chart_.series[i].points)
        if (static_cast<std::size_t>(point.x) == category) svg += bar(i, point, y), y += kBarPitch;
    if (!above_)
      svg += chart_text(left_ - 6, (first + y - kBarPitch + kBar) / 2 + 4, "end", chart_.x.categories[category]);
    y = std::max(y, first + kBarPitch) + kGroupGap;
    return svg;
  }

  std::string bar(std::size_t series, const ChartPoint& point, double y) const {
    const double zero = scale_.at(0), end = scale_.at(point.y);
    double right = std::max(zero, end);
    std::string svg = fmt::format(
        "<rect class=\"bar {}\"{} x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\"><title>{}</title></rect>",
        series_class(chart_, series), series_density(chart_, series), std::min(zero, end), y, std::abs(end - zero),
        kBar, markup_text(chart_tooltip(chart_, series, point)));
    if (point.interval) {
      const double low = scale_.at(point.interval->low), high = scale_.at(point.interval->high), middle = y + kBar / 2;
      svg += fmt::format(
          "<path class=\"whisker bold\" d=\"M{0:.1f} {1:.1f}H{2:.1f}M{0:.1f} {3:.1f}v6M{2:.1f} {3:.1f}v6\"/>", low,
          middle, high, middle - 3);
      right = std::max(right, high);
    }
    return svg + chart_text(right + 5, y + kBar - 2.5, "value", label(point));
  }

  std::string grid(double bottom) const {
    std::string svg;
    for (const double tick : ticks_)
      svg += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", scale_.at(tick), top_, bottom) +
             chart_text(scale_.at(tick), bottom + 15, "tick middle",
                        tick_text(tick, ticks_[1] - ticks_[0], chart_.y.percent));
    if (chart_.reference)
      svg += fmt::format("<path class=\"reference\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", scale_.at(*chart_.reference), top_,
                         bottom);
    return svg + fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", scale_.at(0), top_, bottom) +
           chart_text((scale_.from + scale_.to) / 2, bottom + 34, "middle", chart_.y.title);
  }

  const Chart& chart_;
  double top_;
  bool above_ = false;
  double left_ = 0;
  std::vector<double> ticks_;
  Scale scale_;
};

}  // namespace

Drawing draw_rows(const Chart& chart, double top) {
  return RowsDrawing(chart, top).draw();
}

}  // namespace espalier
