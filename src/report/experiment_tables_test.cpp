// Every table of a suite's experiments, computed again: from the traces of the runs behind its settings, and, where a
// number has no trace by its nature (logits compared, answers judged, attention by distance), from the counts of
// result.json.
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "eval/summary.h"
#include "experiments/attention_profile.h"
#include "experiments/experiment_result.h"
#include "experiments/round_figures.h"
#include "report/testing/fake_run.h"
#include "report/testing/table_checks.h"

namespace espalier {
namespace {

using Json = nlohmann::json;

class ExperimentTables : public ReportTest {
 protected:
  // A setting with its run on disk; its figures are those of the turns that count.
  SettingResult measured(const std::string& experiment, const std::string& name, const FakeRun& run,
                         const std::vector<TurnRecord>& counting) const {
    SettingResult setting{.name = name, .drafter = "eagle3", .run = experiment + "/" + name};
    write("suite/" + setting.run, run);
    setting.identity = identity_of(summarize(run.turns));
    setting.figures = run_figures(counting).dump();
    return setting;
  }
  SettingResult measured(const std::string& experiment, const std::string& name, const FakeRun& run) const {
    return measured(experiment, name, run, run.turns);
  }
  static SettingResult counted(const std::string& name, const nlohmann::ordered_json& figures) {
    return {.name = name, .drafter = "eagle3", .figures = figures.dump()};
  }

  std::vector<PlainTurn> turns_of(const std::string& run) const { return plain_turns(folder_ / "suite" / run); }

  // The report of a suite with this experiment alone.
  void report_of(const Experiment& experiment, std::vector<SettingResult> settings) const {
    std::filesystem::create_directories(folder_ / "suite" / experiment.id);
    std::ofstream(folder_ / "suite/suite.json")
        << R"({"kind": "suite", "experiments": [{"id": ")" << experiment.id << R"("}]})";
    std::ofstream(folder_ / "suite" / experiment.id / "result.json")
        << to_json(experiment, ExperimentResult{.settings = std::move(settings)});
    make_report({folder_ / "suite"});
  }

  // The figures of a setting as result.json has them.
  Json figures_on_disk(const std::string& experiment, std::size_t setting) const {
    const Json result = Json::parse(read_text_file(folder_ / "suite" / experiment / "result.json"));
    return result.at("settings").at(setting).at("figures");
  }
};

TEST_F(ExperimentTables, ThroughputIsThatOfTheTraces) {
  Experiment experiment{.id = "e1", .title = "Throughput", .kind = ExperimentKind::throughput, .axis = "drafter"};
  experiment.paper = {{.source = "Table 1", .columns = {"mean", "p90"}, .rows = {{"speed_up", {1.27, 1.84}}}}};
  report_of(experiment, {measured("e1", "m8", random_run(5, 14)), measured("e1", "m16", random_run(40, 9))});
  ByRun<PlainFigures> figures;
  ByRun<std::map<std::int64_t, PlainDepth>> depths;
  for (const std::string name : {"m8", "m16"}) {
    figures["eagle3, " + name] = plain_figures(turns_of("e1/" + name));
    depths["eagle3, " + name] = plain_accept_pos(turns_of("e1/" + name));
  }
  expect_headline(table("e1-headline"), figures, {{"speed-up", Json::array({1.27, nullptr, 1.84, nullptr})}});
  expect_side_by_side(table("e1-side-by-side"), figures, {{"eagle3, m8", "14 of 14"}, {"eagle3, m16", "9 of 9"}});
  expect_accept_pos(table("e1-accept-pos-table"), depths);
}

TEST_F(ExperimentTables, ASweepHasTheFiguresOfItsTracesWithTailAndDrift) {
  std::vector<SettingResult> settings;
  for (const std::string name : {"16", "32"}) {
    FakeRun run = random_run(name == "16" ? 3 : 90, 11);
    for (std::size_t i = 0; i < 4; ++i)
      run.turns[i].baseline->retimed = TurnSeconds{0.02, 0.5 + 0.05 * static_cast<double>(i)};
    settings.push_back(measured("nodes", name, run));
  }
  Experiment experiment{.id = "nodes", .title = "Nodes", .kind = ExperimentKind::sweep, .axis = "nodes"};
  experiment.paper = {{.source = "Table 2",
                       .columns = {"16", "32"},
                       .rows = {{"speed_up", {1.48, std::nullopt}}, {"accept_L_p90", {6, 3}}}}};
  experiment.plot = {.form = "line", .figures = {"accept_L"}};
  report_of(experiment, std::move(settings));
  const Json found = table("nodes-settings");
  EXPECT_EQ(found["columns"],
            Json::array({"nodes", "run", "identical", "baseline Tok/s", "speculative Tok/s", "speed-up", "paper",
                         "accept_L", "accept_L p90", "paper", "baseline drift"}));
  ASSERT_EQ(found["rows"].size(), 2u);
  const std::map<std::string, Json> printed[] = {{{"speed-up", 1.48}, {"accept_L p90", 6}},
                                                 {{"speed-up", nullptr}, {"accept_L p90", 3}}};
  for (std::size_t i = 0; i < 2; ++i) {
    const Json& row = found["rows"][i];
    EXPECT_EQ(row[2], "11 of 11");
    expect_setting(found, row, plain_figures(turns_of("nodes/" + row[0].get<std::string>())), printed[i]);
    EXPECT_EQ(figure("nodes-accept-l")["series"][0]["points"][i]["y"], row[7]["value"]);
    EXPECT_EQ(figure("nodes-accept-l")["series"][0]["points"][i]["interval"], row[7]["interval"]);
  }
}

// Chats of so many turns, of which the last one counts.
FakeRun chats(std::uint64_t seed, int turns) {
  FakeRun run = random_run(seed, 3 * turns);
  for (std::size_t i = 0; i < run.turns.size(); ++i) {
    const auto chat = static_cast<std::int64_t>(i) / turns, turn = static_cast<std::int64_t>(i) % turns + 1;
    run.turns[i].record = chat;
    run.turns[i].prompt_id = run.traced[i].prompt_id = chat;
    run.turns[i].turn = run.traced[i].turn = turn;
  }
  return run;
}

TEST_F(ExperimentTables, OfAHistoryOnlyTheLastTurnOfAChatCounts) {
  std::vector<SettingResult> settings;
  for (const int before : {0, 3}) {
    const FakeRun run = chats(17, before + 1);
    std::vector<TurnRecord> counting = run.turns;
    std::erase_if(counting, [&](const TurnRecord& turn) { return turn.turn != before + 1; });
    settings.push_back(measured("history", std::to_string(before), run, counting));
  }
  report_of({.id = "history", .title = "History", .kind = ExperimentKind::sensitivity, .axis = "turns before"},
            std::move(settings));
  const Json found = table("history-settings");
  EXPECT_EQ(found["columns"].back(), "TTFT, ms");
  ASSERT_EQ(found["rows"].size(), 2u);
  for (const Json& row : found["rows"]) {
    const auto before = row[0].get<std::string>();
    std::vector<PlainTurn> turns = turns_of("history/" + before);
    EXPECT_EQ(row[2], std::to_string(turns.size()) + " of " + std::to_string(turns.size())) << "all are compared";
    std::erase_if(turns, [&](const PlainTurn& turn) { return turn.traced.turn != std::stoll(before) + 1; });
    EXPECT_EQ(turns.size(), 3u);
    expect_setting(found, row, plain_figures(turns), {});
  }
}

TEST_F(ExperimentTables, MedusaIsTokensOfAStepOverItsCost) {
  std::vector<SettingResult> settings;
  for (const std::string name : {"128", "256"}) {
    const FakeRun run = random_run(name == "128" ? 29 : 61, 13);
    nlohmann::ordered_json figures = run_figures(run.turns);
    figures.update(to_json(step_economy(run.turns)));
    settings.push_back(measured("medusa", name, run));
    settings.back().figures = figures.dump();
  }
  Experiment experiment{.id = "medusa", .title = "Medusa", .kind = ExperimentKind::medusa, .axis = "decode length"};
  experiment.paper = {{.source = "Figure 3", .columns = {"128", "256"}, .rows = {{"ac", {1.78, 1.69}}}}};
  report_of(experiment, std::move(settings));
  const Json found = table("medusa-settings");
  EXPECT_EQ(found["columns"],
            Json::array({"decode length", "run", "identical", "AC, tokens a step", "paper", "overhead", "speed-up"}));
  ASSERT_EQ(found["rows"].size(), 2u);
  for (const Json& row : found["rows"]) {
    const auto name = row[0].get<std::string>();
    const PlainFigures economy = plain_economy(turns_of("medusa/" + name));
    expect_setting(found, row, economy, {{"AC, tokens a step", name == "128" ? 1.78 : 1.69}});
    EXPECT_NEAR(economy.at("speed-up").mean, economy.at("AC, tokens a step").mean / economy.at("overhead").mean, 1e-9);
  }
}

TEST_F(ExperimentTables, StagesAreThoseOfTheTracesTheyLookAt) {
  std::vector<SettingResult> settings;
  ByRun<std::map<std::string, PlainStage>> expected;
  for (const std::string name : {"m8", "m16"}) {
    const FakeRun run = random_run(name == "m8" ? 5 : 40, 8);
    StageTimes stages;
    for (const TracedTurn& turn : run.traced) stages.add(turn);
    const nlohmann::ordered_json figures = {{"rounds", stages.rounds()}, {"stages", stages.to_json()}};
    settings.push_back(measured("e3", name, run));
    settings.back().figures = figures.dump();
    expected["eagle3, " + name] = plain_stages(turns_of("e3/" + name));
  }
  report_of({.id = "e3", .title = "Stages", .kind = ExperimentKind::stages, .from = "e1"}, std::move(settings));
  expect_stages(table("e3-stages"), expected);
}

TEST_F(ExperimentTables, DistancesAreSharesOfWhatWasCounted) {
  const AttentionDistances counts{.rows = 10,
                                  .looks = 40,
                                  .top = {3, 0, 7, 1, 9, 5, 5, 6, 4},
                                  .weight = {2.5, 1.25, 8, 4, 6, 3.5, 6.75, 5, 3},
                                  .longest = 700};
  report_of({.id = "far", .title = "Distance", .kind = ExperimentKind::attention_distance},
            {counted("all", to_json(counts))});
  const Json found = table("far-distances");
  EXPECT_EQ(found["columns"], Json::array({"distance", "run", "top-1, %", "attention, %"}));
  ASSERT_EQ(found["rows"].size(), counts.top.size());
  for (std::size_t i = 0; i < counts.top.size(); ++i) {
    const Json& row = found["rows"][i];
    EXPECT_EQ(row[0], bucket_name(i));
    expect_number(row[2], 100.0 * static_cast<double>(counts.top[i]) / 40, "top-1");
    expect_number(row[3], 100.0 * counts.weight[i] / 40, "attention");
  }
}

TEST_F(ExperimentTables, LeakageIsWhatTheProbeCounted) {
  report_of({.id = "leakage", .title = "Leakage", .kind = ExperimentKind::mask_leakage, .axis = "form"},
            {counted("fused", {{"rounds", 1000},
                               {"rows", 15000},
                               {"tokens_changed", 225000},
                               {"logits", 737280000},
                               {"logits_changed", 0},
                               {"rows_changed", 0},
                               {"blind_rows", 0}})});
  const Json found = table("leakage-settings"), counts = figures_on_disk("leakage", 0);
  EXPECT_EQ(found["columns"], Json::array({"form", "run", "rounds", "rows looked at", "tokens changed",
                                           "logits compared", "logits changed", "blind rows"}));
  const char* names[] = {"rounds", "rows", "tokens_changed", "logits", "logits_changed", "blind_rows"};
  ASSERT_EQ(found["rows"].size(), 1u);
  for (std::size_t i = 0; i < std::size(names); ++i) EXPECT_EQ(found["rows"][0][2 + i], counts[names[i]]) << names[i];
}

TEST_F(ExperimentTables, PassAt1IsTheShareOfProblemsThatPassed) {
  report_of({.id = "quality", .title = "Quality", .kind = ExperimentKind::quality, .from = "e1"},
            {counted("m16", {{"problems", 80},
                             {"passed", 7},
                             {"baseline_passed", 6},
                             {"pass_at_1", 7.0 / 80},
                             {"baseline_pass_at_1", 6.0 / 80},
                             {"solved", {"HumanEval/0"}}})});
  const Json found = table("quality-settings"), counts = figures_on_disk("quality", 0);
  EXPECT_EQ(found["columns"], Json::array({"setting", "run", "problems", "pass@1 without", "pass@1 with"}));
  const double problems = counts["problems"];
  const Json& row = found["rows"][0];
  EXPECT_EQ(row[2], problems);
  expect_number(row[3], counts["baseline_passed"].get<double>() / problems, "pass@1 without");
  expect_number(row[4], counts["passed"].get<double>() / problems, "pass@1 with");
}

}  // namespace
}  // namespace espalier
