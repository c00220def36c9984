// Every table of runs, computed again from their traces.

#include <nlohmann/json.hpp>

#include "report/testing/fake_run.h"
#include "report/testing/table_checks.h"

namespace espalier {
namespace {

using Json = nlohmann::json;

const PaperTable kPaperTable = {
    .source = "A paper, Table 1",
    .columns = {"mean", "p50", "p90", "p99"},
    .rows = {{"speed_up", {1.27, std::nullopt, 1.84, 2.46}}, {"accept_L", {3.17, 3, 6, 8}}}};
const std::map<std::string, Json> kPrinted = {{"speed-up", Json::array({1.27, nullptr, 1.84, 2.46})},
                                              {"accept_L", Json::array({3.17, 3, 6, 8})}};

// Two runs side by side; of the left one some baselines were timed once more, and one turn differs.
class TwoRuns : public ReportTest {
 public:
  TwoRuns() {
    FakeRun left = random_run(11, 23), right = random_run(70, 12);
    for (std::size_t i = 0; i < 5; ++i)
      left.turns[i].baseline->retimed = TurnSeconds{0.01, 0.5 + 0.1 * static_cast<double>(i)};
    right.turns[3].baseline->tokens.back() += 1;
    make_report({write("left", left), write("right", right)}, {.paper = {kPaperTable}});
    for (const char* label : {"left", "right"}) turns[label] = plain_turns(folder_ / label);
  }

  const std::filesystem::path& report_folder() const { return out_; }
  ByRun<std::vector<PlainTurn>> turns;

 private:
  void TestBody() override {}
};

// Of their one report, which takes seconds under sanitizers.
class RunTables : public ReportTest {
 protected:
  void SetUp() override {
    static const TwoRuns runs;
    out_ = runs.report_folder();
    turns_ = runs.turns;
  }

  template <typename Compute>
  auto of_each(const Compute& compute) const {
    ByRun<decltype(compute(std::vector<PlainTurn>{}))> all;
    for (const auto& [label, turns] : turns_) all[label] = compute(turns);
    return all;
  }

  ByRun<std::vector<PlainTurn>> turns_;
};

TEST_F(RunTables, HeadlineFiguresAreThoseOfTheTraces) {
  const auto figures = of_each(plain_figures);
  EXPECT_EQ(figures.at("left").size(), 13u);
  EXPECT_EQ(figures.at("right").size(), 12u) << "without drift";
  expect_headline(table("runs-headline"), figures, kPrinted);
}

TEST_F(RunTables, SideBySideTheyAreThoseOfTheTraces) {
  expect_side_by_side(table("runs-side-by-side"), of_each(plain_figures),
                      {{"left", "23 of 23"}, {"right", "11 of 12"}});
  EXPECT_EQ(table("runs-side-by-side")["rows"][0][1], 23);
  EXPECT_EQ(table("runs-side-by-side")["rows"][1][1], 12);
}

TEST_F(RunTables, AcceptPosIsCountedFromTheTraces) {
  expect_accept_pos(table("runs-accept-pos-table"), of_each(plain_accept_pos));
}

TEST_F(RunTables, StagesAreThoseOfTheTraces) {
  expect_stages(table("runs-stages"), of_each(plain_stages));
}

void expect_turn(const Json& row, std::size_t number, const std::string& run, const PlainTurn& turn) {
  const TracedTurn& traced = turn.traced;
  EXPECT_EQ(row[0], number);
  EXPECT_EQ(row[1], run);
  EXPECT_EQ(row[2], text_of(traced.prompt_id));
  EXPECT_EQ(row[3], traced.turn);
  EXPECT_EQ(row[5], traced.prompt.size());
  EXPECT_EQ(row[6], traced.tokens.size());
  EXPECT_EQ(row[7], traced.finish_reason);
  EXPECT_EQ(row[8], traced.rounds.size());
  double accepted = 0;
  for (const TracedRound& round : traced.rounds) accepted += static_cast<double>(round.visits.size()) - 1;
  EXPECT_EQ(row[9].is_null(), traced.rounds.empty());
  if (!row[9].is_null()) expect_number(row[9], accepted / static_cast<double>(traced.rounds.size()), "accept_L");
  expect_number(row[10], plain_baseline_speed(turn), "baseline Tok/s");
  expect_number(row[11], plain_speed(turn), "Tok/s");
  expect_number(row[12], plain_speed_up(turn), "speed-up");
  EXPECT_EQ(row[13], turn.equal.value() ? "true" : "false");
}

TEST_F(RunTables, TheListHasEveryTurnAsItsTraceHasIt) {
  const Json list = table("turns");
  ASSERT_EQ(list["columns"].size(), 14u);
  ASSERT_EQ(list["rows"].size(), 35u);
  std::size_t number = 0;
  for (const char* label : {"left", "right"})
    for (const PlainTurn& turn : turns_.at(label)) {
      const Json& row = list["rows"][number++];
      expect_turn(row, number, label, turn);
    }
}

TEST_F(RunTables, TheConfigurationIsThatOfTheManifests) {
  const Json found = table("configuration");
  EXPECT_EQ(found["columns"],
            Json::array({"run", "model", "drafters", "rows", "device", "threads", "most tokens", "start", "commit"}));
  EXPECT_EQ(found["rows"], Json::array({Json::array({"left", "tiny.gguf", "ngram", "16", "avx2", "3", "64",
                                                     "2026-01-01T00:00:00Z", "0123456789ab"}),
                                        Json::array({"right", "tiny.gguf", "ngram", "16", "avx2", "3", "64",
                                                     "2026-01-01T00:00:00Z", "0123456789ab"})}));
}

// The share of samples from `low` on, below `high`; the last range has its upper end too.
double share_between(const std::vector<double>& samples, double low, double high, bool last) {
  double inside = 0;
  for (const double sample : samples) inside += sample >= low && (sample < high || (last && sample <= high)) ? 1 : 0;
  return inside / static_cast<double>(samples.size());
}

TEST_F(RunTables, HistogramsCountTheTurnsOfTheTraces) {
  const Json chart = figure("runs-output-lengths");
  const double width = chart["bin_width"];
  ASSERT_EQ(chart["series"].size(), 2u);
  for (const Json& series : chart["series"]) {
    std::vector<double> lengths;
    for (const PlainTurn& turn : turns_.at(series["name"].get<std::string>()))
      lengths.push_back(static_cast<double>(turn.traced.tokens.size()));
    const std::size_t bins = series["points"].size();
    for (std::size_t i = 0; i < bins; ++i) {
      const double low = series["points"][i]["x"];
      expect_number(series["points"][i]["y"], share_between(lengths, low, low + width, i + 1 == bins),
                    "share of turns");
    }
  }
}

TEST_F(RunTables, FiguresShowWhatTablesSay) {
  const Json rows = table("runs-side-by-side")["rows"];
  const Json points = figure("runs-speed-up-of-runs")["series"][0]["points"];
  ASSERT_EQ(points.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(points[i]["x"], rows[i][0]);
    EXPECT_EQ(points[i]["y"], rows[i][5]["value"]);
    EXPECT_EQ(points[i]["interval"], rows[i][5]["interval"]);
  }
  const Json dots = figure("runs-speed-up-by-accept-l")["series"][0]["points"];
  std::size_t next = 0;
  for (const PlainTurn& turn : turns_.at("left"))
    if (!turn.traced.rounds.empty()) expect_number(dots.at(next++)["y"], plain_speed_up(turn), "speed-up");
  EXPECT_EQ(dots.size(), next);
}

}  // namespace
}  // namespace espalier
