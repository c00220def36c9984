#include "eval/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "eval/rank_folder.h"
#include "format/testing/complaint.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::ordered_json;

class RunFolderTest : public ::testing::Test {
 protected:
  static Json manifest(int seed = 0, int threads = 2, int world = 1) {
    return {{"schema", 1},
            {"version", "0.1"},
            {"commit", nullptr},
            {"configuration", {{"arithmetic", 2}, {"sampling", {{"seed", seed}}}, {"engine", {{"threads", threads}}}}},
            {"world", world},
            {"end", nullptr}};
  }
  static TurnRecord turn(std::int64_t id) {
    return {.record = id, .prompt_id = id, .prompt = {1}, .tokens = {2, 3}, .text = "x\ny", .finish_reason = "length"};
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename());
    return names;
  }
  std::string refusal(const Json& manifest) const {
    return complaint([&] { RunFolder::open(path_, manifest); });
  }
  static Json ended(Json manifest) {
    manifest["end"] = "now";
    return manifest;
  }
  // What a rank of a run leaves, whatever becomes of it.
  void answer(const RunFolder& run, int rank, std::vector<std::int64_t> ids) const {
    RankFolder folder(run.rank_path(rank), {.rank = rank, .world = 2}, /*resume=*/true);
    for (std::int64_t id : ids) folder.add(turn(id));
  }
  static std::vector<std::int64_t> records(const RunFolder& run) {
    std::vector<std::int64_t> found;
    for (const TurnRecord& turn : run.turns()) found.push_back(turn.record);
    return found;
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "run";
  std::filesystem::path journal_ = path_ / "ranks/0000/turns.jsonl";
};

TEST_F(RunFolderTest, FinishedTurnsOfAllRanksSurviveProcessesThatEndAnywhere) {
  {
    const RunFolder run = RunFolder::create(path_, manifest());
    answer(run, 0, {0, 2});
    answer(run, 1, {3, 1});
  }
  std::ofstream(journal_, std::ios::app) << "{\"prompt_id\": 4, \"tur";  // the line in flight
  const RunFolder run = RunFolder::open(path_, manifest());
  EXPECT_FALSE(run.finished());
  EXPECT_THAT(records(run), ElementsAre(0, 1, 2, 3));
  answer(run, 0, {4});
  EXPECT_THAT(records(run), ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(RunFolderTest, AFinishedRunHasEveryFileAndItsTurnsSorted) {
  const RunFolder run = RunFolder::create(path_, manifest());
  answer(run, 1, {2, 1});
  EXPECT_THAT(complaint([&] { read_finished_turns(path_); }), HasSubstr("the run is not finished"));
  run.finish(ended(manifest()), run.turns(), summarize(run.turns()));
  EXPECT_TRUE(run.finished());
  EXPECT_THAT(names(), UnorderedElementsAre("manifest.json", "turns.json", "turns.csv", "summary.json", "ranks"));
  const auto turns = read_finished_turns(path_);
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_EQ(turns[1].prompt_id, PromptId(std::int64_t{2}));
  EXPECT_EQ(turns[1].text, "x\ny");
  EXPECT_EQ(Json::parse(read_text_file(path_ / "summary.json")).at("turns"), 2);
}

TEST_F(RunFolderTest, ATurnThatTwoRanksAnsweredCountsOnceAndMustBeTheSame) {
  const RunFolder run = RunFolder::create(path_, manifest());
  answer(run, 0, {1});
  answer(run, 1, {1});
  EXPECT_THAT(records(run), ElementsAre(1));
  TurnRecord other = turn(1);
  other.tokens = {9};
  RankFolder(run.rank_path(2), {.rank = 2, .world = 3}, false).add(other);
  EXPECT_THAT(complaint([&] { run.turns(); }), HasSubstr("prompt \"1\", turn 1: two ranks answered it differently"));
}

TEST_F(RunFolderTest, WhateverIsAlreadyThereIsRefused) {
  std::filesystem::create_directory(path_);
  EXPECT_THAT(complaint([&] { RunFolder::create(path_, manifest()); }), HasSubstr("run: exists already"));
  EXPECT_THAT(refusal(manifest()), HasSubstr("no manifest.json, expected the directory of a run"));
}

TEST_F(RunFolderTest, ARunOfAnotherConfigurationIsRefusedByTheFieldThatDiffers) {
  { RunFolder::create(path_, manifest()); }
  EXPECT_EQ(refusal(manifest()), "");
  EXPECT_THAT(refusal(manifest(1)), HasSubstr("--resume: configuration.sampling.seed is \"1\", expected \"0\" as in "));
  Json newer = manifest();
  newer["schema"] = 2;
  EXPECT_THAT(refusal(newer), HasSubstr("--resume: schema is \"2\", expected \"1\""));
  Json longer = manifest();
  longer["configuration"]["baseline"] = true;
  EXPECT_THAT(refusal(longer), HasSubstr("configuration.baseline is \"true\", expected \"null\""));
}

TEST_F(RunFolderTest, ARunOfAnotherArithmeticIsRefusedByBothNumbersWhateverElseDiffers) {
  const auto refusal_of = [&](Json then) {
    std::filesystem::remove_all(path_);
    then["commit"] = "older";
    { RunFolder::create(path_, then); }
    return refusal(manifest());
  };
  Json older = manifest();
  older["configuration"]["arithmetic"] = 1;
  EXPECT_THAT(refusal_of(older), HasSubstr("run/manifest.json: arithmetic 1, this program computes with 2: "));
  older["configuration"].erase("arithmetic");
  EXPECT_THAT(refusal_of(older), HasSubstr("run/manifest.json: arithmetic 1, this program computes with 2: "));
  EXPECT_THAT(refusal_of(manifest()), HasSubstr("commit is"));
}

TEST_F(RunFolderTest, WithAnotherNumberOfRanksTheirThreadsMayDiffer) {
  { RunFolder::create(path_, manifest()); }
  EXPECT_THAT(refusal(manifest(0, 1)), HasSubstr("configuration.engine.threads"));
  EXPECT_EQ(refusal(manifest(0, 1, 2)), "");
}

TEST_F(RunFolderTest, OtherRanksJoinTheRunOfTheirLaunchOnly) {
  const auto join = [&](const Json& manifest) { return RunFolder::join(path_, manifest, 0, {}); };
  EXPECT_THROW(join(manifest()), DeviceError) << "nobody has created it";
  EXPECT_FALSE(RunFolder::join(path_, manifest(), 60, [] { return true; }));
  const RunFolder run = RunFolder::create(path_, manifest());
  EXPECT_TRUE(join(manifest()));
  EXPECT_THAT(complaint([&] { join(manifest(1)); }), HasSubstr("configuration.sampling.seed"));
  EXPECT_THAT(complaint([&] { join(manifest(0, 2, 3)); }), HasSubstr("world is \"3\", expected \"1\""));
  run.finish(ended(manifest()), {}, {});
  EXPECT_THAT(complaint([&] { join(manifest()); }), HasSubstr("exists already"));
}

TEST_F(RunFolderTest, WhyDraftersWereChosenMayBeToldDifferently) {
  const auto found_at = [](const char* path) {
    Json found = manifest();
    found["configuration"]["draft"] = {{"drafters", "eagle3"}, {"reason", path}};
    return found;
  };
  { RunFolder::create(path_, found_at("auto: heads/a fits this model")); }
  EXPECT_EQ(refusal(found_at("auto: ../heads/a fits this model")), "");
  Json other = found_at("--draft ngram");
  other["configuration"]["draft"]["drafters"] = "ngram";
  EXPECT_THAT(refusal(other), HasSubstr("configuration.draft.drafters"));
}

TEST_F(RunFolderTest, ABuildWithoutACommitIsKnownByItsProgram) {
  Json first = manifest(), second = manifest();
  first["program"] = "a";
  second["program"] = "b";
  { RunFolder::create(path_, first); }
  EXPECT_EQ(refusal(first), "");
  EXPECT_THAT(refusal(second), HasSubstr("--resume: program is "));
}

TEST_F(RunFolderTest, RanksOfOneLaunchMayHaveDifferentThreads) {
  const RunFolder run = RunFolder::create(path_, manifest());
  EXPECT_TRUE(RunFolder::join(path_, manifest(0, 1), 0, {}));
  EXPECT_EQ(complaint([&] { RunFolder::follow(path_, manifest(0, 1)); }), "");
  for (const auto& refused : {complaint([&] { RunFolder::follow(path_, manifest(1, 1)); }),
                              complaint([&] { RunFolder::join(path_, manifest(1, 1), 0, {}); })})
    EXPECT_EQ(refused, (path_ / "manifest.json").string() +
                           ": configuration.sampling.seed is \"1\", expected \"0\", as rank 0 has it");
}

TEST_F(RunFolderTest, OfATurnThatSeveralRanksAnsweredThatOfTheLowestCounts) {
  const RunFolder run = RunFolder::create(path_, manifest());
  for (int rank = 12; rank > 0; --rank) {
    TurnRecord again = turn(1);
    again.seconds.decode = rank;
    RankFolder(run.rank_path(rank), {.rank = rank, .world = 13}, false).add(again);
  }
  std::filesystem::create_directory(path_ / "ranks/notes");
  EXPECT_THAT(run.ranks(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
  EXPECT_EQ(run.turns().front().seconds.decode, 1);
}

TEST_F(RunFolderTest, ARankThatALaterLaunchDoesNotHaveMustBeGone) {
  const RunFolder run = RunFolder::create(path_, manifest());
  {
    const RankFolder alive(run.rank_path(3), {.rank = 3, .world = 4}, false);
    EXPECT_THAT(complaint([&] { run.check_retired(2); }), HasSubstr("0003: another process is writing to this run"));
    EXPECT_EQ(complaint([&] { run.check_retired(4); }), "") << "it is of this launch";
  }
  EXPECT_EQ(complaint([&] { run.check_retired(2); }), "");
}

TEST_F(RunFolderTest, ASecondProcessIsRefused) {
  const RunFolder run = RunFolder::create(path_, manifest());
  const RankFolder rank(run.rank_path(0), {}, false);
  EXPECT_THAT(complaint([&] { RankFolder(run.rank_path(0), {}, true); }),
              HasSubstr("another process is writing to this run"));
}

TEST_F(RunFolderTest, DamagedFilesAreRefusedAndNamed) {
  const RunFolder run = RunFolder::create(path_, manifest());
  answer(run, 0, {1});
  std::ofstream(journal_, std::ios::app) << "{\"prompt_id\": 3}\n";
  EXPECT_THAT(complaint([&] { run.turns(); }), HasSubstr("turns.jsonl: turn 2: \"record\" is missing"));
  std::ofstream(path_ / "manifest.json") << "[]";
  EXPECT_THAT(refusal(manifest()), HasSubstr("manifest.json: expected a JSON object"));
  std::ofstream(path_ / "manifest.json") << "{";
  EXPECT_THAT(refusal(manifest()), HasSubstr("manifest.json:1:"));
}

TEST_F(RunFolderTest, APlaceThatCannotBeWrittenIsOneClearLineAndLeavesNothing) {
  folder_.write("file", "");
  try {
    RunFolder::create(folder_ / "file/run", manifest());
    FAIL() << "a directory below a file";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("file/run: cannot create the directory: Not a directory"));
  }
}

}  // namespace
}  // namespace espalier
