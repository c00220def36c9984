#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <random>

#include "bench/load/load_benchmark.h"
#include "bench/load/load_diagrams.h"
#include "bench/load/load_report.h"
#include "bench/load/load_texts.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/interrupt.h"
#include "cli/load_flags.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "engine/answer_json.h"
#include "eval/prompt_set.h"
#include "report/chart.h"

namespace espalier {
namespace {

constexpr std::uint32_t kSeeds = 100'000;  // few digits: prompts begin with them

LoadResult measure(const LoadPlan& plan, const LoadPrompts& prompts) {
  Screen screen(false);
  const InterruptGuard interrupt;
  return run_load_benchmark(plan, prompts,
                            {.cancelled = [&] { return interrupt.interrupted(); },
                             .progress = [&](std::string_view work, double share) { screen.progress(work, share); }});
}

std::optional<Interval> interval_of(const std::optional<Spread>& spread) {
  return spread ? std::optional(Interval{spread->lower, spread->upper}) : std::nullopt;
}

Chart chart_of(LoadDiagram diagram) {
  Chart chart{.id = std::move(diagram.id), .title = std::move(diagram.title), .form = ChartForm::line};
  chart.x = {.title = std::move(diagram.axis), .categories = std::move(diagram.categories)};
  chart.y = {.title = std::move(diagram.unit), .decimals = 1};
  for (LoadLine& line : diagram.lines) {
    ChartSeries& series = chart.series.emplace_back(ChartSeries{.name = std::move(line.name)});
    for (LoadPoint& point : line.points)
      series.points.push_back({.x = static_cast<double>(point.category),
                               .y = point.value,
                               .interval = interval_of(point.spread),
                               .note = std::move(point.note)});
  }
  return chart;
}

void write_results(const LoadFlags& flags, const LoadResult& result) {
  if (flags.json != "-" && flags.chart != "-") {
    print(load_text(result));
    flush_output();
  }
  if (!flags.json.empty()) write_output(flags.json, flags.existing, json_text(load_json(result)));
  if (flags.chart.empty()) return;
  std::vector<Chart> charts;
  for (LoadDiagram& diagram : load_diagrams(result)) charts.push_back(chart_of(std::move(diagram)));
  if (charts.empty())
    Screen(false).remark(fmt::format("{}: there is nothing to draw", flags.chart));
  else
    write_output(flags.chart, flags.existing, charts_document(charts));
}

int run_bench_serve(const LoadFlags& flags) {
  const LoadPlan plan = load_plan(flags, process_environment, std::random_device()() % kSeeds);
  for (const std::string& file : {flags.json, flags.chart})
    if (!file.empty()) check_output(file, flags.existing);
  const LoadPrompts prompts(plan.prompts, read_load_texts(plan.prompts.kind, process_places(), first_turns));
  const LoadResult result = measure(plan, prompts);
  if (!result.shapes.empty()) write_results(flags, result);
  if (result.interrupted) {
    Screen(false).remark("interrupted");
    return kInterrupted;
  }
  if (!result.all_failed()) return 0;
  Screen(false).remark("all requests failed");
  return 1;
}

}  // namespace

Command add_bench_serve(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("serve", "load a server with many users (docs/load.md)");
  auto flags = std::make_shared<LoadFlags>();
  add_load_flags(*command, *flags);
  return [flags] { return run_bench_serve(*flags); };
}

}  // namespace espalier
