#include "report/experiment_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/figures.h"
#include "report/markup.h"
#include "report/stage_section.h"
#include "report/throughput_section.h"
#include "trace/record_json.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

// A setting of one of the suites.
struct SettingView {
  const ReportSource* source = nullptr;
  const SettingResult* setting = nullptr;
  std::string series = {};  // what it has in common with its neighbours on the axis: the drafter, the suite
  Json figures = {};
};

struct ExperimentView {
  const ReportExperiment& experiment;  // of the first suite that has it
  std::vector<SettingView> settings = {};

  bool is(ExperimentKind kind) const { return experiment.kind == name(kind); }
};

std::string series_name(const ReportSource& source, const SettingResult& setting, bool several) {
  const std::string drafter = setting.drafter.empty() ? "measured" : setting.drafter;
  return several ? source.label + ", " + drafter : drafter;
}

// Unique: drafter and setting, and the suite where there are several.
std::string full_name(const SettingView& view) {
  return view.setting->drafter.empty() ? view.setting->name : view.series + ", " + view.setting->name;
}

std::vector<std::string> column_figures(const ExperimentView& view) {
  if (view.is(ExperimentKind::medusa)) return {"ac", "overhead", "speed_up"};
  if (view.is(ExperimentKind::mask_leakage))
    return {"rounds", "rows", "tokens_changed", "logits", "logits_changed", "blind_rows"};
  if (view.is(ExperimentKind::quality)) return {"problems", "baseline_pass_at_1", "pass_at_1"};
  std::vector<std::string> figures = {"baseline_tokens_per_second", "tokens_per_second", "speed_up", "accept_L",
                                      "accept_L_p90"};
  figures.push_back(view.is(ExperimentKind::sensitivity) ? "ttft" : "drift");
  return figures;
}

bool anyone_has(const ExperimentView& view, const std::string& figure) {
  return std::ranges::any_of(view.settings,
                             [&](const SettingView& one) { return figure_value(one.figures, figure).has_value(); });
}

std::string identical_text(const Identity& identity) {
  return identity.turns == 0 ? "" : fmt::format("{} of {}", identity.identical, identity.turns);
}

Table settings_table(const ExperimentView& view) {
  const std::vector<PaperTable>& paper = view.experiment.paper;
  const bool compared =
      std::ranges::any_of(view.settings, [](const SettingView& one) { return one.setting->identity.turns > 0; });
  Table table{.columns = {view.experiment.axis, "run"}};
  if (compared) table.columns.push_back("identical");
  std::vector<std::string> figures;
  for (const std::string& figure : column_figures(view)) {
    if (!anyone_has(view, figure)) continue;
    figures.push_back(figure);
    table.columns.push_back(figure_style(figure).title);
    if (paper_has(paper, figure)) table.columns.push_back("paper");
  }
  for (const SettingView& one : view.settings) {
    std::vector<Cell> row = {text_cell(one.setting->name), text_cell(one.series)};
    if (compared) row.push_back(text_cell(identical_text(one.setting->identity)));
    for (const std::string& figure : figures) {
      const FigureStyle style = figure_style(figure);
      row.push_back(figure_cell(figure_value(one.figures, figure), style));
      if (!paper_has(paper, figure)) continue;
      const auto cited = paper_value(paper, figure, one.setting->name);
      row.push_back(cited ? paper_cell(*cited, style.decimals) : Cell{});
    }
    table.add(std::move(row));
  }
  if (table.has_intervals()) table.caption = "In brackets: 95 % confidence interval of the mean.";
  return table;
}

ChartSeries& series_of(const std::string& name, Chart& chart) {
  const auto found = std::ranges::find(chart.series, name, &ChartSeries::name);
  if (found != chart.series.end()) return *found;
  chart.series.push_back({.name = name});
  return chart.series.back();
}

void add_paper_series(const std::vector<PaperTable>& paper, const std::string& figure, Chart& chart) {
  ChartSeries cited{.name = "paper", .paper = true};
  for (std::size_t i = 0; i < chart.x.categories.size(); ++i)
    if (const auto value = paper_value(paper, figure, chart.x.categories[i]))
      cited.points.push_back({.x = static_cast<double>(i), .y = *value});
  if (!cited.points.empty()) chart.series.push_back(std::move(cited));
}

// A figure over the settings, a series for each drafter and suite.
Chart settings_chart(const ExperimentView& view, const std::string& figure) {
  const FigureStyle style = figure_style(figure);
  Chart chart{.title = fmt::format("{} by {}", style.title, view.experiment.axis)};
  chart.x.title = view.experiment.axis;
  chart.y = {.title = style.title, .decimals = style.decimals};
  if (figure == "speed_up") chart.reference = 1;
  for (const SettingView& one : view.settings)
    if (std::ranges::find(chart.x.categories, one.setting->name) == chart.x.categories.end())
      chart.x.categories.push_back(one.setting->name);
  for (const SettingView& one : view.settings) {
    const auto value = figure_value(one.figures, figure);
    if (!value) continue;
    const FigureValue scaled = in_unit(*value, style);
    const auto place = std::ranges::find(chart.x.categories, one.setting->name) - chart.x.categories.begin();
    series_of(one.series, chart)
        .points.push_back({.x = static_cast<double>(place), .y = scaled.value, .interval = scaled.interval});
  }
  add_paper_series(view.experiment.paper, figure, chart);
  const bool line = view.experiment.plot.form == "line" && fit_below_axis(chart.x.categories);
  chart.form = line ? ChartForm::line : ChartForm::rows;
  return chart;
}

void add_settings(const ExperimentView& view, ReportSection& section) {
  Table table = settings_table(view);
  table.id = section.id + "-settings";
  if (!table.rows.empty()) section.tables.push_back(std::move(table));
  for (const std::string& figure : view.experiment.plot.figures) {
    Chart chart = settings_chart(view, figure);
    chart.id = section.id + "-" + slug(figure);
    section.add(std::move(chart));
  }
}

void add_runs(const ExperimentView& view, ReportSection& section) {
  std::vector<MeasuredRun> runs;
  for (const SettingView& one : view.settings) {
    const ReportRun* run = run_of(*one.source, *one.setting);
    runs.push_back({full_name(one), one.figures, run == nullptr ? std::span<const TurnRecord>() : run->turns});
  }
  add_throughput(runs, view.experiment.paper, section);
}

NamedLists named_lists(const ExperimentView& view, const char* figure) {
  NamedLists lists;
  for (const SettingView& one : view.settings)
    if (one.figures.contains(figure)) lists.push_back({full_name(one), one.figures[figure]});
  return lists;
}

void add_words(const ReportExperiment& experiment, ReportSection& section) {
  if (!experiment.about.empty()) section.words.push_back(experiment.about);
  std::string cited;
  for (const std::string& one : experiment.reproduces) cited += (cited.empty() ? "" : "; ") + one;
  if (!cited.empty()) section.words.push_back("Stands beside: " + cited + ".");
  for (const PaperTable& table : experiment.paper) section.words.push_back("Paper: " + table.source + ".");
  if (experiment.profile) section.words.push_back("A profile: its times are no headline.");
}

void add_outcome(const ReportSource& source, const ReportExperiment& experiment, bool several, ReportSection& section) {
  const std::string prefix = several ? source.label + ": " : "";
  if (experiment.skipped) section.words.push_back(prefix + "skipped: " + *experiment.skipped);
  if (experiment.failure) section.failures.push_back(prefix + *experiment.failure);
}

void add_figures(const ExperimentView& view, ReportSection& section) {
  if (view.is(ExperimentKind::throughput)) return add_runs(view, section);
  if (view.is(ExperimentKind::stages)) return add_stages(named_lists(view, "stages"), section);
  if (view.is(ExperimentKind::attention_distance)) return add_distances(named_lists(view, "buckets"), section);
  add_settings(view, section);
}

}  // namespace

ReportSection experiment_section(const std::string& id, const std::string& section_id,
                                 std::span<const ReportSource> sources) {
  ReportSection section{.id = section_id};
  const bool several = std::ranges::count_if(sources, &ReportSource::suite) > 1;
  std::optional<ExperimentView> view;
  for (const ReportSource& source : sources)
    for (const ReportExperiment& experiment : source.experiments) {
      if (experiment.id != id) continue;
      if (!view) view.emplace(ExperimentView{experiment});
      for (const SettingResult& setting : experiment.settings)
        view->settings.push_back(
            {&source, &setting, series_name(source, setting, several), Json::parse(setting.figures)});
      add_outcome(source, experiment, several, section);
    }
  if (!view) return section;
  section.title = view->experiment.title;
  std::vector<std::string> outcome = std::move(section.words);
  section.words.clear();
  add_words(view->experiment, section);
  section.words.insert(section.words.end(), outcome.begin(), outcome.end());
  reading("the figures of experiment " + id, "result.json", [&] { add_figures(*view, section); });
  return section;
}

}  // namespace espalier
