#include "report/stage_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/figures.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

// The category's index, added where it is new.
double place_of(const std::string& category, std::vector<std::string>& categories) {
  const auto found = std::ranges::find(categories, category);
  const auto place = static_cast<double>(found - categories.begin());
  if (found == categories.end()) categories.push_back(category);
  return place;
}

Cell share_cell(const Json& share) {
  return number_cell(100 * share.get<double>(), 1);
}

void add_stage(const std::string& run, const Json& stage, Table& table, Chart& means, ChartSeries& series) {
  const auto name = stage.at("stage").get<std::string>(), per = stage.at("per").get<std::string>();
  const Json milliseconds = {{"milliseconds", stage.at("milliseconds")}};
  const double tail = stage.at("p99_over_mean").get<double>();
  const auto mean = figure_statistic(milliseconds, "milliseconds", "mean");
  if (!mean) return;
  const auto statistic = [&](const char* which) {
    return figure_cell(figure_statistic(milliseconds, "milliseconds", which), {.decimals = 3});
  };
  table.add({text_cell(name), text_cell(run), text_cell(per), statistic("mean"), statistic("p50"), statistic("p90"),
             statistic("p99"), number_cell(tail, 1), share_cell(stage.at("share"))});
  if (per != "round") return;  // a prefill would dwarf them all
  series.points.push_back({.x = place_of(name, means.x.categories),
                           .y = mean->value,
                           .interval = mean->interval,
                           .note = fmt::format("p99/mean {:.1f}", tail)});
}

}  // namespace

void add_stages(const NamedLists& runs, ReportSection& section) {
  Table table{.id = section.id + "-stages",
              .caption =
                  "Stages, in milliseconds: prefill by turn, the others by round. In brackets: 95 % confidence "
                  "interval of the mean.",
              .columns = {"stage", "run", "per", "mean", "p50", "p90", "p99", "p99/mean", "share, %"}};
  Chart means{.id = section.id + "-stage-times", .title = "Stages of a round, mean", .form = ChartForm::rows};
  means.x.title = "stage";
  means.y = {.title = "milliseconds a round", .decimals = 3};
  for (const auto& [label, stages] : runs) {
    ChartSeries series{.name = label};
    for (const Json& stage : stages) add_stage(label, stage, table, means, series);
    means.series.push_back(std::move(series));
  }
  if (!table.rows.empty()) section.tables.push_back(std::move(table));
  section.add(std::move(means));
}

void add_distances(const NamedLists& runs, ReportSection& section) {
  Table table{
      .id = section.id + "-distances",
      .caption = "Positions between a row and the key it looks at most (top-1), and where all of its attention goes.",
      .columns = {"distance", "run", "top-1, %", "attention, %"}};
  Chart chart{.id = section.id + "-distance-shares",
              .title = "Top-1 attention of the drafter by distance",
              .form = ChartForm::rows};
  chart.x.title = "distance, positions";
  chart.y = {.title = "share of looks", .percent = true};
  for (const auto& [label, buckets] : runs) {
    ChartSeries series{.name = label};
    for (const Json& bucket : buckets) {
      const auto distance = bucket.at("distance").get<std::string>();
      table.add({text_cell(distance), text_cell(label), share_cell(bucket.at("top1_share")),
                 share_cell(bucket.at("attention_share"))});
      series.points.push_back(
          {.x = place_of(distance, chart.x.categories), .y = bucket.at("top1_share").get<double>()});
    }
    chart.series.push_back(std::move(series));
  }
  if (!table.rows.empty()) section.tables.push_back(std::move(table));
  section.add(std::move(chart));
}

}  // namespace espalier
