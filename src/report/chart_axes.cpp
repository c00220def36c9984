#include <fmt/format.h>

#include <algorithm>

#include "report/chart_parts.h"
#include "report/chart_scale.h"
#include "report/markup.h"

namespace espalier {
namespace {

constexpr double kPlotHeight = 190;

class AxesDrawing {
 public:
  AxesDrawing(const Chart& chart, double top) : chart_(chart), top_(top), bottom_(top + kPlotHeight) {
    const Interval ys = y_range(chart), xs = x_range(chart);
    y_ticks_ = round_ticks(ys.low, ys.high, 5);
    left_ = 26 + kChartCharacter * widest_tick();
    y_ = {y_ticks_.front(), y_ticks_.back(), bottom_, top_ + 6};
    x_ticks_ = round_ticks(xs.low, xs.high, 5);
    x_ = chart.x.categories.empty() ? Scale{x_ticks_.front(), x_ticks_.back(), left_, kChartWidth - kChartRight}
                                    : Scale{xs.low, xs.high, left_, kChartWidth - kChartRight};
  }

  Drawing draw() {
    std::string svg = grid() + x_labels() + titles();
    if (chart_.reference) svg += across(*chart_.reference, "reference");
    for (std::size_t i = 0; i < chart_.series.size(); ++i)
      svg += chart_.form == ChartForm::histogram ? steps(i) : marks(i);
    return {svg, kPlotHeight + kBelowChart};
  }

 private:
  double widest_tick() const {
    std::size_t widest = 3;
    for (const double tick : y_ticks_) widest = std::max(widest, y_tick_text(tick).size());
    return static_cast<double>(widest);
  }

  std::string y_tick_text(double tick) const { return tick_text(tick, y_ticks_[1] - y_ticks_[0], chart_.y.percent); }

  std::string across(double y, std::string_view kind) const {
    return fmt::format("<path class=\"{}\" d=\"M{:.1f} {:.1f}H{}\"/>", kind, left_, y_.at(y),
                       kChartWidth - kChartRight);
  }

  std::string grid() const {
    std::string svg;
    for (const double tick : y_ticks_)
      svg += across(tick, "grid") + chart_text(left_ - 6, y_.at(tick) + 4, "tick end", y_tick_text(tick));
    return svg +
           fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}H{}\"/>", left_, bottom_, kChartWidth - kChartRight);
  }

  std::string x_labels() const {
    std::string svg;
    const auto label = [&](double x, const std::string& text) {
      svg += fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}v4\"/>", x, bottom_) +
             chart_text(x, bottom_ + 17, "tick middle", text);
    };
    const auto& names = chart_.x.categories;
    for (std::size_t i = 0; i < names.size(); ++i) label(x_.at(static_cast<double>(i)), names[i]);
    if (names.empty())
      for (const double tick : x_ticks_)
        label(x_.at(tick), tick_text(tick, x_ticks_[1] - x_ticks_[0], chart_.x.percent));
    return svg;
  }

  std::string titles() const {
    const double middle = (top_ + bottom_) / 2;
    return chart_text((left_ + kChartWidth - kChartRight) / 2, bottom_ + 36, "middle", chart_.x.title) +
           fmt::format("<text class=\"middle\" transform=\"translate(12 {:.1f}) rotate(-90)\">{}</text>", middle,
                       markup_text(chart_.y.title));
  }

  // Series stand a little beside each other, so that no whisker hides another.
  double shift(std::size_t series) const {
    if (chart_.form != ChartForm::line) return 0;
    return 5 * (static_cast<double>(series) - static_cast<double>(chart_.series.size() - 1) / 2);
  }

  std::string marks(std::size_t index) const {
    const ChartSeries& series = chart_.series[index];
    std::string line, whiskers, markers;
    for (const ChartPoint& point : series.points) {
      const double x = x_.at(point.x) + shift(index), y = y_.at(point.y);
      line += fmt::format("{}{:.1f} {:.1f}", line.empty() ? "M" : "L", x, y);
      if (point.interval)
        whiskers += fmt::format("M{:.1f} {:.1f}V{:.1f}m-3 0h6M{:.1f} {:.1f}h6", x, y_.at(point.interval->low),
                                y_.at(point.interval->high), x - 3, y_.at(point.interval->low));
      markers += chart_marker(chart_, index, x, y, chart_tooltip(chart_, index, point));
    }
    std::string svg;
    if (chart_.form == ChartForm::line && !line.empty())
      svg += fmt::format("<path class=\"line {}\"{} d=\"{}\"/>", series_class(chart_, index),
                         series_strokes(chart_, index), line);
    if (!whiskers.empty())
      svg += fmt::format("<path class=\"whisker {}\" d=\"{}\"/>", series_class(chart_, index), whiskers);
    return svg + markers;
  }

  std::string steps(std::size_t index) const {
    std::string outline, hover;
    for (const ChartPoint& point : chart_.series[index].points) {
      const double left = x_.at(point.x), right = x_.at(point.x + chart_.bin_width), y = y_.at(point.y);
      outline += fmt::format("{}{:.1f} {:.1f}L{:.1f} {:.1f}",
                             outline.empty() ? fmt::format("M{:.1f} {:.1f}L", left, bottom_) : "L", left, y, right, y);
      hover += fmt::format(
          "<rect fill=\"transparent\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
          "height=\"{:.1f}\"><title>{}</title></rect>",
          left, y, right - left, bottom_ - y, markup_text(chart_tooltip(chart_, index, point)));
    }
    if (outline.empty()) return "";
    return fmt::format("<path class=\"area {}\"{} d=\"{}V{:.1f}\"/>", series_class(chart_, index),
                       series_strokes(chart_, index), outline, bottom_) +
           hover;
  }

  const Chart& chart_;
  double top_, bottom_;
  double left_ = 0;
  std::vector<double> y_ticks_, x_ticks_;
  Scale x_, y_;
};

}  // namespace

Drawing draw_axes(const Chart& chart, double top) {
  return AxesDrawing(chart, top).draw();
}

}  // namespace espalier
