#include "experiments/experiment_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

TurnRecord turn(std::int64_t number, std::vector<std::int32_t> tokens, std::optional<std::vector<std::int32_t>> plain) {
  TurnRecord record;
  record.prompt_id = number;
  record.prompt = {1, 2, 3};
  record.finish_reason = "length";
  record.accept_lengths = {1};
  record.seconds = {.prefill = 0.5, .decode = 0.5};
  record.tokens = std::move(tokens);
  if (plain) record.baseline = BaselineTurn{{.prefill = 0.5, .decode = 1.5}, *plain, "length"};
  return record;
}

TEST(ExperimentResult, FiguresAreThoseOfTheTurns) {
  const auto figures = run_figures(std::vector{turn(1, {4, 5, 6}, {{4, 5, 6}}), turn(2, {4, 5, 6}, {{4, 5, 6}})});
  EXPECT_EQ(figures["turns"], 2);
  EXPECT_DOUBLE_EQ(figures["tokens_per_second"]["mean"], 3);
  EXPECT_DOUBLE_EQ(figures["baseline_tokens_per_second"]["mean"], 1.5);
  EXPECT_DOUBLE_EQ(figures["speed_up"]["p50"], 2);
  EXPECT_DOUBLE_EQ(figures["accept_L"]["mean"], 1);
  EXPECT_DOUBLE_EQ(figures["prompt_tokens"]["mean"], 3);
  EXPECT_FALSE(figures.contains("drift"));
  EXPECT_FALSE(run_figures(std::vector{turn(1, {4}, std::nullopt)}).contains("speed_up"));
}

TEST(ExperimentResult, SaysFirstHowManyTurnsAreIdentical) {
  const std::vector good{turn(1, {4, 5}, {{4, 5}})}, bad{turn(2, {4, 5}, {{4, 6}}), turn(3, {4}, {{4}})};
  ExperimentResult result;
  result.settings.resize(2);
  result.settings[0].identity = identity_of(summarize(good));
  result.settings[1].identity = identity_of(summarize(bad));
  const Identity identity = result.identity();
  EXPECT_FALSE(identity.holds());
  EXPECT_THAT(identity_text(identity), HasSubstr("2 of 3 turns identical: prompt \"2\""));
  const Identity read = identity_from(nlohmann::json::parse(to_json(identity).dump()), "result.json");
  EXPECT_EQ(identity_text(read), identity_text(identity));
  EXPECT_THROW(identity_from(nlohmann::json::object(), "result.json"), InputError);
}

TEST(ExperimentResult, StandsBesideThePapersOwnFigures) {
  Experiment experiment{.id = "e2", .title = "Nodes", .kind = ExperimentKind::sweep, .axis = "nodes"};
  experiment.paper = {{.source = "Table 2", .columns = {"16", "32"}, .rows = {{"speed_up", {1.48, std::nullopt}}}}};
  ExperimentResult result;
  SettingResult setting;
  setting.name = "16";
  setting.drafter = "eagle3";
  setting.run = "e2/16";
  setting.figures = run_figures(std::vector{turn(1, {4, 5}, {{4, 5}})}).dump();
  result.settings.push_back(setting);
  const auto json = to_json(experiment, result);
  EXPECT_EQ(json["paper"][0]["rows"]["speed_up"][0], 1.48);
  EXPECT_TRUE(json["paper"][0]["rows"]["speed_up"][1].is_null());
  EXPECT_EQ(json["settings"][0]["run"], "e2/16");
  EXPECT_THAT(result_text(experiment, json), HasSubstr("16 (eagle3)"));
  EXPECT_THAT(result_text(experiment, json), HasSubstr("speed-up 2.00"));
  result.skipped = "no head";
  EXPECT_THAT(result_text(experiment, to_json(experiment, result)), HasSubstr("skipped: no head"));
}

TEST(ExperimentResult, NoLineOnTheScreenEndsInASpace) {
  const Experiment experiment{.id = "e3", .title = "Stages", .kind = ExperimentKind::stages};
  ExperimentResult result;
  result.settings.resize(2);
  for (SettingResult& setting : result.settings) {
    setting.name = "m16";
    setting.figures =
        R"({"stages": [{"stage": "draft", "per": "round", "milliseconds": {"mean": 1.5}, "p99_over_mean": 2}]})";
  }
  result.settings[0].drafter = "eagle3+ngram";
  result.settings[1].drafter = "ngram";
  EXPECT_EQ(result_text(experiment, to_json(experiment, result)),
            "e3: Stages\n"
            "  m16 (eagle3+ngram)\n"
            "    draft        1.50 ms a round, p99/mean 2.0\n"
            "  m16 (ngram)\n"
            "    draft        1.50 ms a round, p99/mean 2.0\n");
}

}  // namespace
}  // namespace espalier
