#include "report/histogram.h"

#include <algorithm>
#include <cmath>

#include "report/chart_scale.h"

namespace espalier {
namespace {

constexpr int kBins = 20;

std::vector<double> edges_of(const std::vector<NamedSamples>& series) {
  double low = INFINITY, high = -INFINITY;
  for (const auto& [name, samples] : series)
    for (const double sample : samples) low = std::min(low, sample), high = std::max(high, sample);
  return round_ticks(low, high, kBins);
}

// A sample on the last edge belongs to the last range.
std::size_t bin_of(double sample, const std::vector<double>& edges) {
  const auto above = std::ranges::upper_bound(edges, sample) - edges.begin();
  return static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(above - 1, 0, std::ssize(edges) - 2));
}

ChartSeries counted(const NamedSamples& samples, const std::vector<double>& edges) {
  ChartSeries series{.name = samples.first};
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) series.points.push_back({.x = edges[i]});
  for (const double sample : samples.second)
    series.points[bin_of(sample, edges)].y += 1 / static_cast<double>(samples.second.size());
  return series;
}

}  // namespace

Chart histogram_of(std::string title, ChartAxis x, const std::vector<NamedSamples>& series) {
  std::vector<NamedSamples> shown;
  std::ranges::copy_if(series, std::back_inserter(shown), [](const auto& one) { return !one.second.empty(); });
  const bool all_alike =
      std::ranges::all_of(shown, [&](const auto& one) { return one.second == shown.front().second; });
  if (shown.size() > 1 && all_alike) shown = {{"all runs", shown.front().second}};
  Chart chart{.title = std::move(title), .form = ChartForm::histogram, .x = std::move(x)};
  chart.y = {.title = "share of turns", .percent = true};
  if (shown.empty()) return chart;
  const std::vector<double> edges = edges_of(shown);
  chart.bin_width = edges[1] - edges[0];
  for (const NamedSamples& samples : shown) chart.series.push_back(counted(samples, edges));
  return chart;
}

}  // namespace espalier
