#include "report/load_charts.h"

#include <fmt/format.h>

#include "bench/figures.h"
#include "report/markup.h"

namespace espalier {
namespace {

std::string server_name(const LoadResult& result, std::size_t server) {
  const LoadTarget& target = result.plan.targets[server];
  const std::string draft = target.speculation.empty() ? "" : fmt::format(", draft {}", target.speculation);
  return fmt::format("[{}] {}{}", server + 1, target.owner.empty() ? target.url.authority() : target.owner, draft);
}

// y over the loads.
Chart over_loads(const LoadResult& result, std::string id, std::string title, std::string unit) {
  Chart chart{.id = std::move(id), .title = std::move(title), .form = ChartForm::line};
  for (const ShapeResult& shape : result.shapes)
    chart.x.categories.push_back(shape.shape.rate > 0 ? fmt::format("{:g}", shape.shape.rate)
                                                      : fmt::format("{}", shape.shape.users));
  const bool open = !result.shapes.empty() && result.shapes.front().shape.rate > 0;
  chart.x.title = open ? "requests a second" : "users";
  chart.y = {.title = std::move(unit), .decimals = 1};
  return chart;
}

Chart speed_chart(const LoadResult& result) {
  Chart chart = over_loads(result, "tokens-per-second", "Tokens per second in all", "tokens/s");
  for (std::size_t server = 0; server < result.plan.targets.size(); ++server) {
    ChartSeries series{.name = server_name(result, server)};
    for (std::size_t i = 0; i < result.shapes.size(); ++i) {
      const std::vector<double>& samples = result.shapes[i].figures[server].tokens_per_second;
      if (samples.empty()) continue;
      const Spread spread = spread_of(samples);
      series.points.push_back({.x = static_cast<double>(i),
                               .y = spread.median,
                               .interval = Interval{spread.lower, spread.upper},
                               .note = fmt::format("{} rounds", samples.size())});
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

using PercentilesOf = const Percentiles& (*)(const LoadFigures&);

const Percentiles& first_token_of(const LoadFigures& figures) {
  return figures.first_token;
}

const Percentiles& gap_of(const LoadFigures& figures) {
  return figures.gaps.per_token;
}

// One chart for each percentile, so that a server has the same colour in all charts.
Chart percentile_chart(const LoadResult& result, const std::string& what, const std::string& percentile,
                       double Percentiles::*value, PercentilesOf of) {
  Chart chart =
      over_loads(result, fmt::format("{}-{}", slug(what), percentile), fmt::format("{}, {}", what, percentile), "ms");
  for (std::size_t server = 0; server < result.plan.targets.size(); ++server) {
    ChartSeries series{.name = server_name(result, server)};
    for (std::size_t i = 0; i < result.shapes.size(); ++i) {
      const Percentiles& each = of(result.shapes[i].figures[server]);
      if (each.count == 0) continue;
      const std::string note = fmt::format("of {}", each.count);
      series.points.push_back({.x = static_cast<double>(i), .y = 1e3 * each.*value, .note = note});
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

std::vector<Chart> charts_over_loads(const LoadResult& result) {
  return {speed_chart(result),
          percentile_chart(result, "Time to first token", "p50", &Percentiles::p50, first_token_of),
          percentile_chart(result, "Time to first token", "p95", &Percentiles::p95, first_token_of),
          percentile_chart(result, "Gap between tokens", "p50", &Percentiles::p50, gap_of),
          percentile_chart(result, "Gap between tokens", "p95", &Percentiles::p95, gap_of),
          percentile_chart(result, "Gap between tokens", "p99", &Percentiles::p99, gap_of)};
}

// The users' silences, without and with a long prompt that arrives; one chart for each load.
Chart interrupt_chart(const LoadResult& result, const ShapeResult& shape) {
  Chart chart{.id = fmt::format("interrupts-{}", shape.shape.users),
              .title = fmt::format("{} users, a prompt of {} tokens arrives", shape.shape.users,
                                   result.plan.settings.interrupt_tokens),
              .form = ChartForm::line};
  chart.x = {.title = "percentile of the time between events", .categories = {"p50", "p95", "p99", "most"}};
  chart.y = {.title = "ms", .decimals = 1};
  for (std::size_t server = 0; server < shape.figures.size(); ++server) {
    if (!shape.figures[server].interrupts) continue;
    const InterruptFigures& figures = *shape.figures[server].interrupts;
    for (const bool disturbed : {false, true}) {
      const Percentiles& each = (disturbed ? figures.disturbed : figures.calm).between_events;
      if (each.count == 0) continue;
      ChartSeries series{
          .name = fmt::format("{}, {}", server_name(result, server), disturbed ? "disturbed" : "undisturbed")};
      for (const double seconds : {each.p50, each.p95, each.p99, each.most})
        series.points.push_back({.x = static_cast<double>(series.points.size()), .y = 1e3 * seconds});
      chart.series.push_back(std::move(series));
    }
  }
  return chart;
}

}  // namespace

std::vector<Chart> load_charts(const LoadResult& result) {
  std::vector<Chart> charts;
  if (result.plan.settings.interrupt_tokens == 0)
    charts = charts_over_loads(result);
  else
    for (const ShapeResult& shape : result.shapes) charts.push_back(interrupt_chart(result, shape));
  std::erase_if(charts, [](const Chart& chart) { return chart.empty(); });
  return charts;
}

}  // namespace espalier
