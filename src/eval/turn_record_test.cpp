#include "eval/turn_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "format/testing/complaint.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

TurnRecord example() {
  return {.record = 7,
          .set = "humaneval",
          .prompt_id = "HumanEval/3",
          .turn = 2,
          .user = "and then?",
          .prompt = {1, 2, 3},
          .tokens = {5, 6, 7},
          .text = "abc",
          .finish_reason = "length",
          .accept_lengths = {1, 0},
          .reached = {2, 1},
          .seconds = {0.25, 0.5},
          .stages = {.draft = 1, .prepare = 2, .verify = 3, .accept = 4, .commit = 5},
          .baseline = BaselineTurn{{0.5, 1.5}, {5, 6, 7}, "length", TurnSeconds{0.75, 2}}};
}

nlohmann::json plain_json(const TurnRecord& record) {
  return nlohmann::json::parse(to_json(record).dump());
}

TEST(TurnRecord, ComesBackFromItsJsonTheSame) {
  TurnRecord differing = example(), alone = example();
  differing.prompt_id = std::int64_t{81};
  differing.baseline->tokens = {5, 9};
  alone.baseline.reset();
  for (const TurnRecord& record : {example(), differing, alone}) {
    const TurnRecord back = turn_record_from(plain_json(record), "here");
    EXPECT_EQ(to_json(back).dump(), to_json(record).dump());
    EXPECT_EQ(back.prompt_id, record.prompt_id);
    EXPECT_EQ(back.baseline.has_value(), record.baseline.has_value());
    EXPECT_EQ(back.first_difference(), record.first_difference());
  }
}

TEST(TurnRecord, TellsWhetherAndWhereItDiffersFromItsBaseline) {
  TurnRecord record = example();
  EXPECT_EQ(record.first_difference(), std::nullopt);
  EXPECT_EQ(plain_json(record).at("equal"), true);
  EXPECT_FALSE(plain_json(record).contains("baseline_tokens"));
  record.baseline->tokens = {5, 8, 7};
  EXPECT_EQ(record.first_difference(), 1);
  EXPECT_EQ(plain_json(record).at("first_difference"), 1);
  record.baseline->tokens = {5, 6};
  EXPECT_EQ(record.first_difference(), 2);
  record.baseline->tokens = {5, 6, 7};
  record.baseline->finish_reason = "stop";
  EXPECT_EQ(record.first_difference(), 3);
  record.baseline.reset();
  EXPECT_EQ(record.first_difference(), std::nullopt);
  EXPECT_TRUE(plain_json(record).at("equal").is_null());
}

TEST(TurnRecord, OneThatFailedSaysWhyAndComesBack) {
  const TurnRecord failed{.prompt_id = "p", .turn = 2, .finish_reason = "error", .error = "too long"};
  EXPECT_EQ(plain_json(failed).at("error"), "too long");
  EXPECT_EQ(turn_record_from(plain_json(failed), "here").error, "too long");
  EXPECT_FALSE(plain_json(example()).contains("error"));
  EXPECT_FALSE(turn_record_from(plain_json(example()), "here").error);
}

TEST(TurnRecord, EveryFieldThatIsMissingOrOfAnotherKindIsRefused) {
  const nlohmann::json whole = plain_json(example());
  for (const auto& [name, value] : whole.items()) {
    nlohmann::json object = whole;
    object[name] = nlohmann::json::array({nlohmann::json::object()});
    const bool derived = name == "prompt_tokens";
    EXPECT_EQ(complaint([&] { turn_record_from(object, "here"); }).starts_with("here: "), !derived) << name;
    object.erase(name);
    const bool optional = derived || name == "retimed_seconds" || name == "user";
    EXPECT_EQ(complaint([&] { turn_record_from(object, "here"); }).empty(), optional) << name;
  }
}

TEST(TurnRecord, CountsThatCannotBeAreRefused) {
  for (const char* name : {"accept_lengths", "reached"})
    for (std::int64_t count : {std::int64_t{-1}, INT64_MAX}) {
      nlohmann::json object = plain_json(example());
      object[name] = {count};
      EXPECT_THAT(complaint([&] { turn_record_from(object, "here"); }),
                  HasSubstr(std::string("here: ") + name + "[0]: expected 0 to "))
          << name;
    }
}

}  // namespace
}  // namespace espalier
