#include "report/report.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "format/testing/complaint.h"
#include "report/testing/fake_run.h"
#include "trace/failure_dump.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

using Report = ReportTest;

TEST_F(Report, TheFirstLineSaysHowManyTurnsAreIdentical) {
  const Losslessness lossless = make_report({write("run", random_run(1, 4))});
  EXPECT_TRUE(lossless.holds());
  const std::string html = page();
  const std::string body = html.substr(html.find("<main>"));
  EXPECT_THAT(body,
              StartsWith("<main>\n<p class=\"lossless holds\" id=\"lossless\">\u2714 4 of 4 turns are identical"));
  EXPECT_THAT(html, HasSubstr("4 of 4 turns have a trace; tokens, rounds, judged guesses and seconds of 4 of them"));
}

TEST_F(Report, ADifferenceIsToldInRedWithItsDump) {
  FakeRun run = random_run(2, 3);
  run.turns[1].baseline->tokens[0] += 1;
  const auto path = write("run", run);
  std::filesystem::create_directory(path / "dumps");
  FailureDump dump = mismatch_dump(run.traced[1], run.turns[1].baseline->tokens, run.turns[1].finish_reason);
  const auto dumped = write_failure_dump(dump, {}, path / "dumps");
  const Losslessness lossless = make_report({path});
  EXPECT_FALSE(lossless.holds());
  ASSERT_EQ(lossless.failures.size(), 1u);
  EXPECT_THAT(lossless.failures[0], HasSubstr(dumped.string()));
  EXPECT_THAT(page(), HasSubstr("<p class=\"lossless failed\" id=\"lossless\">FAILED: 2 of 3 turns are identical"));
  EXPECT_THAT(page(), HasSubstr("class=\"differs\""));
}

TEST_F(Report, ATurnThatCouldNotBeAnsweredIsAFailureAndInNoFigure) {
  FakeRun run = random_run(2, 3);
  run.turns[1] = {.record = 1, .set = "set", .prompt_id = "prompt 1", .finish_reason = "error", .error = "too long"};
  run.traced.erase(run.traced.begin() + 1);
  const Losslessness lossless = make_report({write("run", run)});
  EXPECT_FALSE(lossless.holds());
  EXPECT_THAT(page(),
              HasSubstr("FAILED: 2 of 2 turns are identical with and without speculation. 1 could not be answered"));
  EXPECT_THAT(page(), HasSubstr("run: prompt &quot;prompt 1&quot;, turn 1: too long"));
  EXPECT_THAT(page(), HasSubstr("<tr data-turn=\"2\" class=\"differs\">"));
  EXPECT_THAT(page(), HasSubstr("2 of 3 turns have a trace"));
  const Json points = figure("runs-output-lengths")["series"][0]["points"];
  for (const Json& point : points) EXPECT_NE(point["y"], 1.0 / 3);
}

TEST_F(Report, ATraceThatTellsAnotherStoryIsAFailure) {
  FakeRun run = random_run(2, 3);
  run.turns[2].accept_lengths.back() += 1;
  make_report({write("run", run)});
  EXPECT_THAT(page(), HasSubstr("accept_lengths in the trace is not that of turns.json"));
}

TEST_F(Report, TurnsOfTwoSetsHaveTheirOwnTracesThoughIdsAndPromptsAreTheSame) {
  FakeRun run = random_run(8, 1), other = run;
  run.traced[0].set = run.turns[0].set;
  other.traced[0].set = other.turns[0].set = "other";
  run.traced.push_back(other.traced[0]);
  run.turns.push_back(other.turns[0]);
  make_report({write("run", run)});
  EXPECT_THAT(page(), HasSubstr("2 of 2 turns have a trace"));
}

TEST_F(Report, RunsThatAnsweredInOtherCompanyDoNotStandBesideEachOther) {
  const auto alone = write("alone", random_run(1, 2)), pairs = write("pairs", random_run(1, 2));
  Json manifest = Json::parse(read_text_file(pairs / "manifest.json"));
  manifest["configuration"]["parallel"] = 2;
  std::ofstream(pairs / "manifest.json") << manifest;
  EXPECT_EQ(complaint([&] {
              read_sources({alone, pairs});
            }),
            pairs.string() + ": a run with --parallel 2, expected 1 as in " + alone.string());
  EXPECT_EQ(read_sources({pairs}).size(), 1u);
}

TEST_F(Report, EveryTableAndFigureIsAFileToo) {
  make_report({write("run", random_run(1, 6))});
  const Json sections = report()["sections"];
  for (const Json& section : sections) {
    for (const std::string id : section["tables"])
      for (const char* ending : {".csv", ".json"})
        EXPECT_TRUE(std::filesystem::exists(out_ / "tables" / (id + ending))) << id;
    for (const std::string id : section["figures"])
      for (const char* ending : {".svg", ".csv", ".json"})
        EXPECT_TRUE(std::filesystem::exists(out_ / "figures" / (id + ending))) << id;
  }
}

TEST_F(Report, HostileTextStaysText) {
  FakeRun run = random_run(8, 2);
  const std::string hostile = "</script><script>alert(1)</script><!--\"'&\x01\u2028";
  for (std::size_t i = 0; i < 2; ++i) run.turns[i].prompt_id = run.traced[i].prompt_id = hostile + std::to_string(i);
  run.turns[0].user = hostile;
  const ReportOptions options{.words = [&](const auto&) {
    return TokenWords{.word = [&](std::int32_t) { return hostile + "\xff"; }, .drafters = {hostile}};
  }};
  make_report({write("<b>run", run)}, options);
  const std::string html = page();
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("<!--")));
  EXPECT_THAT(html, Not(HasSubstr("<b>run")));
  EXPECT_THAT(html, Not(HasSubstr("\x01")));
  EXPECT_THAT(html, HasSubstr("\\u003c/script\\u003e"));
  const std::string trees = html.substr(html.find("type=\"application/json\""));
  EXPECT_THAT(trees.substr(0, trees.find("</script>")), Not(HasSubstr("\u2028")));
  EXPECT_EQ(table("turns")["rows"][0][2], hostile + "0") << "in files it stays what it is";
}

TEST_F(Report, TheListOfTurnsShowsTheBeginningOfEachPromptOnOneLine) {
  FakeRun run = random_run(8, 3);
  run.turns[0].user = "  Write\n\n\ta   poem. ";
  run.turns[1].user = std::string(30, 'a') + " " + std::string(30, 'b');
  run.turns[2].user.clear();
  make_report({write("run", run)});
  const Json list = table("turns");
  ASSERT_EQ(list["columns"][4], "begins with");
  EXPECT_EQ(list["rows"][0][4], "Write a poem.");
  EXPECT_EQ(list["rows"][1][4], std::string(30, 'a') + " " + std::string(8, 'b') + "\u2026");
  EXPECT_TRUE(list["rows"][2][4].is_null()) << "a run of an earlier version";
  EXPECT_THAT(page(), HasSubstr("<td class=\"text\">Write a poem.</td>"));
}

TEST_F(Report, TurnsBeyondTheBoundLieInFilesBesideThePage) {
  make_report({write("run", random_run(8, 5))}, {.embedded_bytes = 0});
  EXPECT_THAT(page(), Not(HasSubstr("turn-data-1")));
  EXPECT_THAT(page(), HasSubstr("The trees of 5 of 5 turns lie in the folder turns beside this page"));
  for (int turn = 1; turn <= 5; ++turn)
    EXPECT_THAT(read_text_file(out_ / "turns" / (std::to_string(turn) + ".js")),
                StartsWith("espalierTurn(" + std::to_string(turn) + ", {"));
}

TEST_F(Report, TurnsWithinTheBoundLieInThePageAlone) {
  make_report({write("run", random_run(8, 5))});
  EXPECT_THAT(page(), HasSubstr("turn-data-5"));
  EXPECT_THAT(page(), Not(HasSubstr("lie in the folder turns")));
  EXPECT_FALSE(std::filesystem::exists(out_ / "turns"));
}

TEST_F(Report, ExperimentsThatWantTheSameNameInThePageGetTheirOwn) {
  const std::string result = R"({"kind": "experiment", "schema": 1, "id": "@", "title": "t", "about": "",
      "experiment": "quality", "reproduces": [], "axis": null, "skipped": null, "failure": null, "profile": false,
      "settings": [{"name": "n", "drafter": "", "flags": [], "run": null, "figures": {"problems": 1},
                    "identical": {"turns": 0, "identical": 0, "first_difference": null}}],
      "paper": [], "plot": {"form": "", "figures": []}})";
  std::filesystem::create_directory(folder_ / "suite");
  folder_.write("suite/suite.json", "{}");
  for (const std::string id : {"a b", "a-b", "turns"}) {
    std::filesystem::create_directory(folder_ / ("suite/" + id));
    std::string text = result;
    folder_.write("suite/" + id + "/result.json", text.replace(text.find('@'), 1, id));
  }
  make_report({folder_ / "suite"});
  std::vector<std::string> ids;
  const Json sections = report()["sections"];
  for (const Json& section : sections) ids.push_back(section["id"]);
  EXPECT_THAT(ids, ::testing::ElementsAre("a-b", "a-b-2", "turns-2"));
  EXPECT_EQ(table("a-b-2-settings")["rows"].size(), 1u);
}

TEST_F(Report, ARunOfASingleTurnHasAReport) {
  make_report({write("one", random_run(4, 1))});
  EXPECT_THAT(page(), HasSubstr("1 of 1 turns are identical"));
}

TEST_F(Report, ARunWithoutTracesAndBaselineHasAReport) {
  FakeRun run = random_run(4, 1);
  for (TurnRecord& turn : run.turns) turn.baseline.reset();
  run.traced.clear();
  make_report({write("alone", run)});
  EXPECT_THAT(page(), HasSubstr("No turn was compared"));
}

TEST_F(Report, ARunWithoutTurnsHasAReport) {
  make_report({write("empty", {})});
  EXPECT_THAT(page(), HasSubstr("No turn was compared: 0 turns"));
}

}  // namespace
}  // namespace espalier
