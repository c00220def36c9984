#include "report/throughput_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "eval/summary.h"
#include "eval/turn_figures.h"
#include "report/figures.h"
#include "report/histogram.h"

namespace espalier {
namespace {

constexpr const char* kHeadline[] = {"baseline_tokens_per_second",
                                     "tokens_per_second",
                                     "speed_up",
                                     "decode_speed_up",
                                     "accept_L",
                                     "tpot",
                                     "baseline_tpot",
                                     "ttft",
                                     "baseline_ttft",
                                     "prompt_tokens",
                                     "output_tokens",
                                     "drift"};
constexpr const char* kStatistics[] = {"mean", "p50", "p90", "p99"};
constexpr const char* kSideBySide[] = {"baseline_tokens_per_second", "tokens_per_second", "speed_up", "accept_L",
                                       "tau"};
constexpr const char* kPaperLabel = "paper";

std::vector<Cell> statistics_row(const MeasuredRun& run, const std::string& figure, const FigureStyle& style) {
  std::vector<Cell> row = {text_cell(style.title), text_cell(run.label)};
  for (const char* statistic : kStatistics)
    row.push_back(figure_cell(figure_statistic(run.figures, figure, statistic), style));
  return row;
}

std::vector<Cell> paper_row(const std::vector<PaperTable>& paper, const std::string& figure, const FigureStyle& style) {
  std::vector<Cell> row = {text_cell(style.title), {.text = kPaperLabel, .paper = true}};
  for (const char* statistic : kStatistics) {
    const auto value = paper_value(paper, figure, statistic);
    row.push_back(value ? paper_cell(*value, style.decimals) : Cell{});
  }
  return row;
}

Table headline(const std::vector<MeasuredRun>& runs, const std::vector<PaperTable>& paper) {
  Table table{
      .caption =
          "Headline figures, over turns; accept_L over rounds. In brackets: 95 % confidence interval of the mean.",
      .columns = {"figure", "run", "mean", "p50", "p90", "p99"}};
  for (const char* figure : kHeadline) {
    const FigureStyle style = figure_style(figure);
    for (const MeasuredRun& run : runs)
      if (figure_statistic(run.figures, figure, "mean")) table.add(statistics_row(run, figure, style));
    if (paper_has(paper, figure)) table.add(paper_row(paper, figure, style));
  }
  if (!paper.empty()) table.caption += " In italics: what a paper printed.";
  return table;
}

std::string identical_text(std::span<const TurnRecord> turns) {
  std::int64_t compared = 0, identical = 0;
  for (const TurnRecord& turn : turns) {
    if (!turn.baseline) continue;
    ++compared;
    identical += turn.first_difference() ? 0 : 1;
  }
  return compared == 0 ? "not compared" : fmt::format("{} of {}", identical, compared);
}

std::ptrdiff_t answered(std::span<const TurnRecord> turns) {
  return std::ranges::count_if(turns, [](const TurnRecord& turn) { return !turn.error; });
}

Table side_by_side(const std::vector<MeasuredRun>& runs) {
  Table table{.caption = "Means with 95 % confidence intervals.", .columns = {"run", "turns", "identical"}};
  for (const char* figure : kSideBySide) table.columns.push_back(figure_style(figure).title);
  for (const MeasuredRun& run : runs) {
    std::vector<Cell> row = {text_cell(run.label), number_cell(static_cast<double>(answered(run.turns)), 0),
                             text_cell(identical_text(run.turns))};
    for (const char* figure : kSideBySide)
      row.push_back(figure_cell(figure_value(run.figures, figure), figure_style(figure)));
    table.add(std::move(row));
  }
  return table;
}

// A bar for each run with its interval, and the paper's.
Chart compared(const std::vector<MeasuredRun>& runs, const std::vector<PaperTable>& paper, const std::string& figure) {
  const FigureStyle style = figure_style(figure);
  Chart chart{.title = style.title + " of the runs", .form = ChartForm::rows};
  chart.x.title = "run";
  chart.y = {.title = style.title, .decimals = style.decimals};
  ChartSeries measured{.name = "measured"};
  for (const MeasuredRun& run : runs) {
    const auto value = figure_value(run.figures, figure);
    if (!value) continue;
    const FigureValue scaled = in_unit(*value, style);
    measured.points.push_back(
        {.x = static_cast<double>(chart.x.categories.size()), .y = scaled.value, .interval = scaled.interval});
    chart.x.categories.push_back(run.label);
  }
  chart.series.push_back(std::move(measured));
  if (const auto cited = paper_value(paper, figure, "mean")) {
    const auto place = static_cast<double>(chart.x.categories.size());
    chart.series.push_back({.name = kPaperLabel, .points = {{.x = place, .y = *cited}}, .paper = true});
    chart.x.categories.push_back(kPaperLabel);
  }
  if (figure == "speed_up") chart.reference = 1;
  return chart;
}

template <typename Figure>
std::vector<NamedSamples> samples(const std::vector<MeasuredRun>& runs, const Figure& figure) {
  std::vector<NamedSamples> all;
  for (const MeasuredRun& run : runs) {
    all.push_back({run.label, {}});
    for (const TurnRecord& turn : run.turns)
      if (const std::optional<double> value = figure(turn)) all.back().second.push_back(*value);
  }
  return all;
}

// Nothing where the turn could not be answered.
std::optional<double> prompt_length(const TurnRecord& turn) {
  return turn.error ? std::nullopt : std::optional(static_cast<double>(turn.prompt.size()));
}

std::optional<double> answer_length(const TurnRecord& turn) {
  return turn.error ? std::nullopt : std::optional(static_cast<double>(turn.tokens.size()));
}

std::string turn_name(const TurnRecord& turn) {
  return fmt::format("prompt {}, turn {}", text_of(turn.prompt_id), turn.turn);
}

Chart speed_up_by_accept_length(const std::vector<MeasuredRun>& runs) {
  Chart chart{.title = "Speed-up against accept_L, turn by turn", .form = ChartForm::scatter};
  chart.x = {.title = "accept_L of the turn, drafted tokens a round"};
  chart.y = {.title = "speed-up"};
  chart.reference = 1;
  for (const MeasuredRun& run : runs) {
    ChartSeries series{.name = run.label};
    for (const TurnRecord& turn : run.turns) {
      const auto gain = speed_up(turn), accepted = accept_length_of(turn);
      if (gain && accepted) series.points.push_back({.x = *accepted, .y = *gain, .note = turn_name(turn)});
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

struct AcceptPos {
  Table table = {};
  Chart chart = {};
};

AcceptPos accept_pos(const std::vector<MeasuredRun>& runs) {
  AcceptPos result;
  result.table = {.caption = "accept_pos: of the guesses of a depth that were judged, the share that was accepted.",
                  .columns = {"depth", "run", "judged", "accept_pos"},
                  .folded = true};
  result.chart = {.title = "accept_pos by depth", .form = ChartForm::line};
  result.chart.x.title = "depth of the guess";
  result.chart.y = {.title = "share accepted", .percent = true};
  for (const MeasuredRun& run : runs) {
    const Summary summary = summarize(run.turns);
    ChartSeries series{.name = run.label};
    for (std::size_t i = 0; i < summary.accept_pos.size(); ++i) {
      const std::string depth = std::to_string(i + 1);
      if (i >= result.chart.x.categories.size()) result.chart.x.categories.push_back(depth);
      const Estimate& share = summary.accept_pos[i];
      series.points.push_back({.x = static_cast<double>(i),
                               .y = share.value,
                               .interval = share.interval,
                               .note = fmt::format("{} judged", summary.reached[i])});
      result.table.add({text_cell(depth), text_cell(run.label), number_cell(static_cast<double>(summary.reached[i]), 0),
                        number_cell(share.value, share.interval, 3)});
    }
    result.chart.series.push_back(std::move(series));
  }
  return result;
}

}  // namespace

void add_throughput(const std::vector<MeasuredRun>& runs, const std::vector<PaperTable>& paper,
                    ReportSection& section) {
  const auto add_table = [&](Table table, const char* id) {
    table.id = section.id + "-" + id;
    if (!table.rows.empty()) section.tables.push_back(std::move(table));
  };
  const auto add_chart = [&](Chart chart, const char* id) {
    chart.id = section.id + "-" + id;
    section.add(std::move(chart));
  };
  if (runs.size() > 1) add_table(side_by_side(runs), "side-by-side");
  add_table(headline(runs, paper), "headline");
  if (runs.size() > 1 || !paper.empty()) {
    add_chart(compared(runs, paper, "speed_up"), "speed-up-of-runs");
    add_chart(compared(runs, paper, "accept_L"), "accept-l-of-runs");
  }
  add_chart(histogram_of("Length of prompts", {.title = "tokens", .decimals = 0}, samples(runs, prompt_length)),
            "prompt-lengths");
  add_chart(histogram_of("Length of answers", {.title = "tokens", .decimals = 0}, samples(runs, answer_length)),
            "output-lengths");
  add_chart(histogram_of("Speed-up of turns", {.title = "speed-up"}, samples(runs, speed_up)), "speed-up");
  add_chart(speed_up_by_accept_length(runs), "speed-up-by-accept-l");
  AcceptPos positions = accept_pos(runs);
  add_table(std::move(positions.table), "accept-pos-table");
  add_chart(std::move(positions.chart), "accept-pos");
}

}  // namespace espalier
