#include "bench/load/load_diagrams.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace espalier {
namespace {

std::string server_name(const LoadResult& result, std::size_t server) {
  const LoadTarget& target = result.plan.targets[server];
  const std::string draft = target.speculation.empty() ? "" : fmt::format(", draft {}", target.speculation);
  return fmt::format("[{}] {}{}", server + 1, target.owner.empty() ? target.url.authority() : target.owner, draft);
}

// The point of a server's figures; nothing where it has none.
using PointOf = std::function<std::optional<LoadPoint>(const LoadFigures&)>;

// A line for each server over the loads, so that a server has the same colour in all diagrams.
LoadDiagram over_loads(const LoadResult& result, LoadDiagram diagram, const PointOf& point_of) {
  for (const ShapeResult& shape : result.shapes)
    diagram.categories.push_back(shape.shape.rate > 0 ? fmt::format("{:g}", shape.shape.rate)
                                                      : fmt::format("{}", shape.shape.users));
  const bool open = !result.shapes.empty() && result.shapes.front().shape.rate > 0;
  diagram.axis = open ? "requests a second" : "users";
  for (std::size_t server = 0; server < result.plan.targets.size(); ++server) {
    LoadLine line{.name = server_name(result, server)};
    for (std::size_t i = 0; i < result.shapes.size(); ++i)
      if (std::optional<LoadPoint> point = point_of(result.shapes[i].figures[server])) {
        point->category = i;
        line.points.push_back(std::move(*point));
      }
    diagram.lines.push_back(std::move(line));
  }
  return diagram;
}

std::optional<LoadPoint> speed_of(const LoadFigures& figures) {
  const std::vector<double>& samples = figures.tokens_per_second;
  if (samples.empty()) return std::nullopt;
  const Spread spread = spread_of(samples);
  return LoadPoint{.value = spread.median, .spread = spread, .note = fmt::format("{} rounds", samples.size())};
}

PointOf percentile_of(const Percentiles& (*times)(const LoadFigures&), double Percentiles::*value) {
  return [=](const LoadFigures& figures) -> std::optional<LoadPoint> {
    const Percentiles& each = times(figures);
    if (each.count == 0) return std::nullopt;
    return LoadPoint{.value = 1e3 * each.*value, .note = fmt::format("of {}", each.count)};
  };
}

std::vector<LoadDiagram> diagrams_over_loads(const LoadResult& result) {
  const auto first_token = [](const LoadFigures& figures) -> const Percentiles& { return figures.first_token; };
  const auto gap = [](const LoadFigures& figures) -> const Percentiles& { return figures.gaps.per_token; };
  std::vector<LoadDiagram> diagrams = {
      over_loads(result, {"tokens-per-second", "Tokens per second in all", "tokens/s"}, speed_of)};
  const auto add = [&](std::string id, std::string title, const PointOf& point_of) {
    diagrams.push_back(over_loads(result, {std::move(id), std::move(title), "ms"}, point_of));
  };
  add("time-to-first-token-p50", "Time to first token, p50", percentile_of(first_token, &Percentiles::p50));
  add("time-to-first-token-p95", "Time to first token, p95", percentile_of(first_token, &Percentiles::p95));
  add("gap-between-tokens-p50", "Gap between tokens, p50", percentile_of(gap, &Percentiles::p50));
  add("gap-between-tokens-p95", "Gap between tokens, p95", percentile_of(gap, &Percentiles::p95));
  add("gap-between-tokens-p99", "Gap between tokens, p99", percentile_of(gap, &Percentiles::p99));
  return diagrams;
}

// The users' silences, without and with a long prompt that arrives; one diagram for each load.
LoadDiagram interrupt_diagram(const LoadResult& result, const ShapeResult& shape) {
  LoadDiagram diagram{.id = fmt::format("interrupts-{}", shape.shape.users),
                      .title = fmt::format("{} users, a prompt of {} tokens arrives", shape.shape.users,
                                           result.plan.settings.interrupt_tokens),
                      .unit = "ms",
                      .axis = "percentile of the time between events",
                      .categories = {"p50", "p95", "p99", "most"}};
  for (std::size_t server = 0; server < shape.figures.size(); ++server) {
    if (!shape.figures[server].interrupts) continue;
    const InterruptFigures& figures = *shape.figures[server].interrupts;
    for (const bool disturbed : {false, true}) {
      const Percentiles& each = (disturbed ? figures.disturbed : figures.calm).between_events;
      if (each.count == 0) continue;
      LoadLine line{.name =
                        fmt::format("{}, {}", server_name(result, server), disturbed ? "disturbed" : "undisturbed")};
      for (const double seconds : {each.p50, each.p95, each.p99, each.most})
        line.points.push_back({.category = line.points.size(), .value = 1e3 * seconds});
      diagram.lines.push_back(std::move(line));
    }
  }
  return diagram;
}

bool is_blank(const LoadDiagram& diagram) {
  return std::ranges::all_of(diagram.lines, [](const LoadLine& line) { return line.points.empty(); });
}

}  // namespace

std::vector<LoadDiagram> load_diagrams(const LoadResult& result) {
  std::vector<LoadDiagram> diagrams;
  if (result.plan.settings.interrupt_tokens == 0)
    diagrams = diagrams_over_loads(result);
  else
    for (const ShapeResult& shape : result.shapes) diagrams.push_back(interrupt_diagram(result, shape));
  std::erase_if(diagrams, is_blank);
  return diagrams;
}

}  // namespace espalier
