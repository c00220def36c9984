#include "report/experiment_section.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"

namespace espalier {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

nlohmann::json result(std::string_view kind, std::string_view settings, std::string_view paper = "[]",
                      std::string_view plot = R"({"form": "line", "figures": ["speed_up"]})") {
  return parse_json(
      fmt::format(R"({{"kind": "experiment", "schema": 1, "id": "e2", "title": "Sweep", "about": "About it.",
      "experiment": "{}", "reproduces": ["Table 2"], "axis": "nodes", "skipped": null, "failure": null, "profile": false,
      "settings": {}, "paper": {}, "plot": {}}})",
                  kind, settings, paper, plot),
      "result.json");
}

constexpr std::string_view kSettings = R"([
  {"name": "16", "drafter": "eagle3", "flags": [], "run": null,
   "identical": {"turns": 20, "identical": 20, "first_difference": null},
   "figures": {"speed_up": {"count": 20, "mean": 1.5, "interval": [1.4, 1.6], "p50": 1.4, "p90": 2, "p99": 3},
               "accept_L": {"count": 90, "mean": 2.5, "interval": [2, 3], "p50": 2, "p90": 5, "p99": 7},
               "ttft": {"count": 20, "mean": 0.25, "interval": [0.2, 0.3], "p50": 0.2, "p90": 0.3, "p99": 0.4}}},
  {"name": "32", "drafter": "eagle3", "flags": [], "run": null,
   "identical": {"turns": 20, "identical": 19, "first_difference": "prompt 3"}, "figures": {"speed_up": {"count": 0, "mean": 0}}}])";
constexpr std::string_view kPaper =
    R"([{"source": "Table 2", "columns": ["16", "32"], "rows": {"speed_up": [1.48, null], "accept_L_p90": [6, 3]}}])";

std::vector<ReportSource> suite(const nlohmann::json& object) {
  return {{.label = "suite", .suite = true, .experiments = {report_experiment_from(object, "result.json")}}};
}

TEST(ExperimentSection, SettingsStandBesideThePaper) {
  const ReportSection section = experiment_section("e2", "e2", suite(result("sweep", kSettings, kPaper)));
  ASSERT_EQ(section.tables.size(), 1u);
  const Table& table = section.tables[0];
  EXPECT_EQ(table.id, "e2-settings");
  EXPECT_THAT(table.columns, ::testing::ElementsAre("nodes", "run", "identical", "speed-up", "paper", "accept_L",
                                                    "accept_L p90", "paper"));
  EXPECT_EQ(table.rows[0][2].text, "20 of 20");
  EXPECT_EQ(table.rows[0][3].number, 1.5);
  EXPECT_EQ(table.rows[0][3].interval, (Interval{1.4, 1.6}));
  EXPECT_EQ(table.rows[0][4].number, 1.48);
  EXPECT_TRUE(table.rows[0][4].paper);
  EXPECT_EQ(table.rows[0][6].number, 5);
  EXPECT_EQ(table.rows[0][7].number, 6);
  EXPECT_FALSE(table.rows[1][3].number) << "no samples, no figure";
  EXPECT_FALSE(table.rows[1][4].number) << "the paper gives none";
}

TEST(ExperimentSection, CurvesHaveIntervalsAndThePaperBesideThem) {
  const ReportSection section = experiment_section("e2", "e2", suite(result("sweep", kSettings, kPaper)));
  ASSERT_EQ(section.charts.size(), 1u);
  const Chart& chart = section.charts[0];
  EXPECT_EQ(chart.form, ChartForm::line);
  ASSERT_EQ(chart.series.size(), 2u);
  EXPECT_EQ(chart.series[0].points[0].interval, (Interval{1.4, 1.6}));
  EXPECT_TRUE(chart.series[1].paper);
  EXPECT_EQ(chart.series[1].points[0].y, 1.48);
}

TEST(ExperimentSection, SecondsAreShownAsMilliseconds) {
  const ReportSection section = experiment_section("e2", "e2", suite(result("sensitivity", kSettings)));
  const auto& columns = section.tables[0].columns;
  const auto place = static_cast<std::size_t>(std::ranges::find(columns, "TTFT, ms") - columns.begin());
  ASSERT_LT(place, columns.size());
  EXPECT_DOUBLE_EQ(*section.tables[0].rows[0][place].number, 250);
}

TEST(ExperimentSection, SuitesAreCompared) {
  std::vector<ReportSource> sources = suite(result("sweep", kSettings, kPaper));
  sources.push_back(sources[0]);
  sources[1].label = "other";
  const ReportSection section = experiment_section("e2", "e2", sources);
  EXPECT_EQ(section.tables[0].rows.size(), 4u);
  EXPECT_EQ(section.tables[0].rows[2][1].text, "other, eagle3");
  EXPECT_EQ(section.charts[0].series.size(), 3u);
}

TEST(ExperimentSection, StagesHaveTheirTails) {
  const ReportSection section = experiment_section("e2", "e2", suite(result("stages", R"([
    {"name": "m16", "drafter": "eagle3", "flags": [], "run": null, "identical": {"turns": 0, "identical": 0, "first_difference": null},
     "figures": {"rounds": 9, "stages": [{"stage": "verify", "per": "round", "share": 0.5, "p99_over_mean": 3.5,
       "milliseconds": {"count": 9, "mean": 12.5, "interval": [12, 13], "p50": 12, "p90": 20, "p99": 43.75}}]}}])")));
  ASSERT_EQ(section.tables.size(), 1u);
  EXPECT_EQ(section.tables[0].rows[0][3].number, 12.5);
  EXPECT_EQ(section.tables[0].rows[0][7].number, 3.5);
  EXPECT_EQ(section.charts[0].series[0].points[0].note, "p99/mean 3.5");
}

TEST(ExperimentSection, AttentionIsShownByDistance) {
  const ReportSection section = experiment_section("e2", "e2", suite(result("attention-distance", R"([
    {"name": "all", "drafter": "eagle3", "flags": [], "run": null, "identical": {"turns": 0, "identical": 0, "first_difference": null},
     "figures": {"buckets": [{"distance": "256-511", "top1_share": 0.25, "attention_share": 0.125}]}}])")));
  EXPECT_EQ(section.tables[0].rows[0][2].number, 25);
  EXPECT_EQ(section.charts[0].series[0].points[0].y, 0.25);
}

TEST(ExperimentSection, WhatWentWrongIsSaid) {
  nlohmann::json object = result("mask-leakage", "[]");
  object["failure"] = "3 logits know of tokens they must not see";
  EXPECT_THAT(experiment_section("e2", "e2", suite(object)).failures,
              Contains("3 logits know of tokens they must not see"));
  object["failure"] = nullptr;
  object["skipped"] = "no head";
  EXPECT_THAT(experiment_section("e2", "e2", suite(object)).words, Contains("skipped: no head"));
}

TEST(ExperimentSection, AResultThatIsNoneIsRefusedInOneLine) {
  for (const char* field : {"id", "settings", "paper", "plot", "schema"}) {
    nlohmann::json object = result("sweep", kSettings);
    object.erase(field);
    EXPECT_THROW(report_experiment_from(object, "result.json"), InputError) << field;
  }
  try {
    experiment_section("e2", "e2", suite(result("stages", R"([{"name": "a", "drafter": "", "flags": [], "run": null,
        "identical": {"turns": 0, "identical": 0, "first_difference": null}, "figures": {"stages": [{"stage": 3}]}}])")));
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the figures of experiment e2"));
  }
}

}  // namespace
}  // namespace espalier
