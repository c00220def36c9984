#include "experiments/suite_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json sweep() {
  return {{"id", "nodes"},
          {"title", "Rows of a tree"},
          {"kind", "sweep"},
          {"reproduces", {"Table 2"}},
          {"paper", {{{"source", "Table 2"}, {"columns", {"16", "32"}}, {"rows", {{"speed_up", {1.48, nullptr}}}}}}},
          {"prompts", {{{"data", "humaneval"}, {"limit", 20}}}},
          {"drafters", {"head"}},
          {"axis", "nodes"},
          {"flags", {"--draft-depth", "10"}},
          {"settings", {{{"name", "16"}, {"flags", {"--draft-nodes", "16"}}}, {{"name", "32"}, {"max_tokens", 7}}}},
          {"plot", {{"form", "line"}, {"figures", {"speed_up"}}}}};
}

std::string complaint(const Json& object) {
  try {
    experiment_from(object, "a.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

Json with(Json object, const char* pointer, Json value) {
  object[Json::json_pointer(pointer)] = std::move(value);
  return object;
}

Json without(Json object, const char* key) {
  object.erase(key);
  return object;
}

TEST(SuiteFile, AnExperimentIsReadAsItStands) {
  const Experiment experiment = experiment_from(sweep(), "a.json");
  EXPECT_EQ(experiment.kind, ExperimentKind::sweep);
  EXPECT_EQ(experiment.prompts[0].limit, 20);
  EXPECT_THAT(experiment.flags, ElementsAre("--draft-depth", "10"));
  EXPECT_EQ(experiment.settings[1].name, "32");
  EXPECT_EQ(experiment.paper[0].rows[0].values[0], 1.48);
  EXPECT_EQ(experiment.paper[0].rows[0].values[1], std::nullopt);
  EXPECT_EQ(experiment.retimed_turns, 20);
}

TEST(SuiteFile, FullRunsHaveLongerAnswersWhereTheSettingDoesNotSay) {
  const Experiment experiment = experiment_from(sweep(), "a.json");
  EXPECT_EQ(experiment.tokens(experiment.settings[0], false), 256);
  EXPECT_EQ(experiment.tokens(experiment.settings[0], true), 1024);
  EXPECT_EQ(experiment.tokens(experiment.settings[1], true), 7);
  const Experiment short_one = experiment_from(with(sweep(), "/full_max_tokens", 300), "a.json");
  EXPECT_EQ(short_one.tokens(short_one.settings[0], true), 300);
}

TEST(SuiteFile, WhatIsWrongIsNamedWithFileAndKey) {
  EXPECT_EQ(complaint(with(sweep(), "/colour", "red")), "a.json: unknown key \"colour\"");
  EXPECT_EQ(complaint(with(sweep(), "/settings/1/node", 3)), "a.json: settings[1]: unknown key \"node\"");
  EXPECT_EQ(complaint(without(sweep(), "title")), "a.json: \"title\" is missing");
  EXPECT_EQ(complaint(with(sweep(), "/title", 3)), "a.json: title: expected a string, got number");
  EXPECT_THAT(complaint(with(sweep(), "/kind", "guess")), HasSubstr("a.json: kind: expected one of throughput, sweep"));
  EXPECT_THAT(complaint(with(sweep(), "/id", "../x")), HasSubstr("a.json: id: expected small letters"));
  EXPECT_THAT(complaint(with(sweep(), "/settings/0/name", "")), HasSubstr("settings[0].name: expected small letters"));
  EXPECT_EQ(complaint(with(sweep(), "/settings/1/name", "16")), "a.json: settings: two settings are called \"16\"");
  EXPECT_EQ(complaint(with(sweep(), "/settings", Json::array())), "a.json: settings: expected one setting or more");
  EXPECT_EQ(complaint(with(sweep(), "/prompts/0/limit", 0)),
            "a.json: prompts[0].limit: expected 1 to 1073741824, got 0");
  EXPECT_EQ(complaint(with(sweep(), "/paper/0/rows/speed_up", {1})),
            "a.json: paper[0].rows.speed_up: 1 values, expected 2, one for each column");
  EXPECT_THAT(complaint(with(sweep(), "/drafters", {"psychic"})), HasSubstr("drafters[0]: expected one of head"));
  EXPECT_THAT(complaint(with(sweep(), "/flags", {1})), HasSubstr("flags[0]: expected a string"));
  EXPECT_EQ(complaint(with(sweep(), "/drafters", Json::array())), "a.json: drafters: expected one drafter or more");
  EXPECT_EQ(complaint(with(sweep(), "/drafters", {"head", "head"})), "a.json: drafters[1]: \"head\" is there already");
  EXPECT_EQ(complaint(with(sweep(), "/prompts", Json::array())), "a.json: prompts: expected one data set or more");
}

TEST(SuiteFile, WhatASuiteKeepsBesideItsExperimentsIsNoNameForOne) {
  for (const char* id : {"baselines", "ranks", "suite.json"})
    EXPECT_THAT(complaint(with(sweep(), "/id", id)), HasSubstr("a.json: id: \"" + std::string(id) + "\" is what"));
  for (const char* name : {"prompts", "result.json"})
    EXPECT_THAT(complaint(with(sweep(), "/settings/0/name", name)), HasSubstr("expected another name"));
}

TEST(SuiteFile, AKindHasItsOwnKeys) {
  EXPECT_EQ(complaint(without(sweep(), "settings")), "a.json: \"settings\" is missing, expected with kind sweep");
  EXPECT_EQ(complaint(with(sweep(), "/rounds", 3)), "a.json: \"rounds\" means nothing with kind sweep");
  EXPECT_EQ(complaint({{"id", "x"}, {"title", "t"}, {"kind", "stages"}}),
            "a.json: \"from\" is missing, expected with kind stages");
  const Json growing = {{"id", "x"},
                        {"title", "t"},
                        {"kind", "sensitivity"},
                        {"prompts", {{{"data", "humaneval"}}}},
                        {"drafters", {"head"}},
                        {"axis", "tokens"},
                        {"lengthening", {{"what", "history"}, {"lengths", {4, 2}}, {"prompts", 3}}}};
  EXPECT_EQ(complaint(growing), "a.json: lengthening.lengths: expected one length or more, ascending");
  EXPECT_EQ(complaint(with(growing, "/lengthening/lengths", {0, 2})), "");
}

class SuiteFolder : public ::testing::Test {
 protected:
  void write(const char* name, const Json& object) { folder_.write(name, object.dump()); }
  static Json stages(const char* id, const char* from) {
    return {{"id", id}, {"title", "t"}, {"kind", "stages"}, {"from", from}};
  }
  std::string refusal() const {
    try {
      read_suite(folder_.path());
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
};

TEST_F(SuiteFolder, FilesAreReadInTheOrderOfTheirNames) {
  write("20.json", stages("later", "nodes"));
  write("10.json", sweep());
  folder_.write("notes.txt", "not an experiment");
  const std::vector<Experiment> suite = read_suite(folder_.path());
  ASSERT_EQ(suite.size(), 2u);
  EXPECT_EQ(suite[0].id, "nodes");
  EXPECT_EQ(read_suite(folder_.path() / "10.json").size(), 1u);
}

TEST_F(SuiteFolder, ExperimentsThatDoNotFitTogetherAreRefused) {
  EXPECT_THAT(refusal(), HasSubstr("no *.json file, expected a folder of experiments"));
  write("10.json", sweep());
  write("20.json", sweep());
  EXPECT_THAT(refusal(), HasSubstr("20.json: id: \"nodes\" is that of"));
  write("20.json", stages("later", "never"));
  EXPECT_THAT(refusal(), HasSubstr("from: expected the id of a throughput or sweep experiment before this one"));
  folder_.write("20.json", "{\"id\": ");
  EXPECT_THAT(refusal(), HasSubstr("20.json:1:"));
}

TEST_F(SuiteFolder, OnlySomeBringThoseTheyLookAt) {
  write("10.json", sweep());
  write("20.json", stages("where-time-goes", "nodes"));
  Json other = sweep();
  other["id"] = "other";
  write("30.json", other);
  const std::vector<Experiment> chosen = only(read_suite(folder_.path()), {"where-time-goes"});
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(chosen[0].id, "nodes");
  EXPECT_EQ(only(read_suite(folder_.path()), {}).size(), 3u);
  EXPECT_THROW(only(read_suite(folder_.path()), {"nothing"}), InputError);
}

TEST(SuiteFile, ThePaperSuiteIsWellFormed) {
  const std::filesystem::path folder = std::filesystem::path(ESPALIER_TEST_DATA) / "../../data/suites/paper";
  const std::vector<Experiment> suite = read_suite(folder);
  EXPECT_GE(suite.size(), 16u);
}

}  // namespace
}  // namespace espalier
