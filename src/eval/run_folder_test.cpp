#include "eval/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "format/complaint.h"
#include "format/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::ordered_json;

class RunFolderTest : public ::testing::Test {
 protected:
  static Json manifest(int seed = 0) {
    return {{"schema", 1},
            {"version", "0.1"},
            {"commit", nullptr},
            {"configuration", {{"sampling", {{"seed", seed}}}}},
            {"end", nullptr}};
  }
  static TurnRecord turn(std::int64_t id) {
    return {.prompt_id = id, .prompt = {1}, .tokens = {2, 3}, .text = "x\ny", .finish_reason = "length"};
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

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "run";
  std::filesystem::path journal_ = path_ / "turns.partial.jsonl";
};

TEST_F(RunFolderTest, FinishedTurnsSurviveAProcessThatEndsAnywhere) {
  {
    RunFolder run = RunFolder::create(path_, manifest());
    run.add(turn(1));
    run.add(turn(2));
  }
  std::ofstream(journal_, std::ios::app) << "{\"prompt_id\": 3, \"tur";  // the line in flight
  RunFolder run = RunFolder::open(path_, manifest());
  ASSERT_EQ(run.turns().size(), 2u);
  EXPECT_EQ(run.turns()[1].prompt_id, PromptId(std::int64_t{2}));
  run.add(turn(3));
  run.finish(ended(manifest()), summarize(run.turns()));
  EXPECT_TRUE(run.finished());
  EXPECT_THAT(names(), UnorderedElementsAre("manifest.json", "turns.json", "summary.json"));
  const Json turns = Json::parse(read_text_file(path_ / "turns.json"));
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_EQ(turns[2].at("prompt_id"), 3);
  EXPECT_EQ(turns[2].at("text"), "x\ny");
  EXPECT_EQ(Json::parse(read_text_file(path_ / "summary.json")).at("turns"), 3);
}

TEST_F(RunFolderTest, AFinishedRunOpensWithItsTurnsAndTakesNoMore) {
  {
    RunFolder run = RunFolder::create(path_, manifest());
    run.add(turn(1));
    run.finish(ended(manifest()), summarize(run.turns()));
  }
  RunFolder run = RunFolder::open(path_, manifest());
  EXPECT_TRUE(run.finished());
  EXPECT_EQ(run.turns().size(), 1u);
  EXPECT_THROW(run.add(turn(2)), std::logic_error);
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

TEST_F(RunFolderTest, ASecondProcessIsRefused) {
  RunFolder run = RunFolder::create(path_, manifest());
  EXPECT_THAT(refusal(manifest()), HasSubstr("another process is writing to this run"));
}

TEST_F(RunFolderTest, DamagedFilesAreRefusedAndNamed) {
  { RunFolder::create(path_, manifest()).add(turn(1)); }
  std::ofstream(journal_, std::ios::app) << "{\"prompt_id\": 3}\n";
  EXPECT_THAT(refusal(manifest()), HasSubstr("turns.partial.jsonl: turn 2: expected a turn of an evaluation"));
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
