#include "experiments/synthetic_prompts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace espalier {
namespace {

const std::vector<std::string> kTexts = {"one two three", "four five", "six seven eight nine"};

// A word is a token.
std::int64_t words(std::string_view text) {
  std::istringstream stream{std::string(text)};
  return std::distance(std::istream_iterator<std::string>(stream), {});
}

std::vector<nlohmann::json> lines(const SyntheticPrompts& prompts) {
  std::vector<nlohmann::json> all;
  std::istringstream stream(prompts.jsonl);
  for (std::string line; std::getline(stream, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

TEST(SyntheticPrompts, ATextHasAsManyWholeWordsAsFit) {
  EXPECT_EQ(text_of_length(kTexts, 0, 4, words), "one two three\n\nfour");
  EXPECT_EQ(text_of_length(kTexts, 1, 2, words), "four five");
  for (std::int64_t length : {1, 5, 9, 10, 100}) EXPECT_EQ(words(text_of_length(kTexts, 2, length, words)), length);
  EXPECT_EQ(text_of_length(kTexts, 0, 0, words), "");
}

TEST(SyntheticPrompts, APromptHasTheWantedLengthWithItsQuestion) {
  const auto prompts = lines(synthetic_prompts(Growth::prompt, 50, 3, kTexts, words));
  ASSERT_EQ(prompts.size(), 3u);
  for (const auto& prompt : prompts) EXPECT_EQ(words(prompt["turns"][0].get<std::string>()), 50);
  EXPECT_EQ(prompts[1]["id"], "prompt-50-2");
  EXPECT_NE(prompts[0]["turns"], prompts[1]["turns"]);
}

TEST(SyntheticPrompts, AHistoryHasSoManyTurnsBeforeTheLast) {
  const SyntheticPrompts prompts = synthetic_prompts(Growth::history, 2, 2, kTexts, words);
  EXPECT_EQ(prompts.turns_each, 3);
  EXPECT_EQ(lines(prompts)[0]["turns"], nlohmann::json(kTexts));
}

TEST(SyntheticPrompts, APrefixIsTheSameForAllAndNoneWhereItsLengthIsNought) {
  const SyntheticPrompts prompts = synthetic_prompts(Growth::prefix, 7, 2, kTexts, words);
  EXPECT_EQ(words(prompts.system), 7);
  EXPECT_EQ(lines(prompts)[1]["turns"], nlohmann::json({"four five"}));
  EXPECT_EQ(synthetic_prompts(Growth::prefix, 0, 2, kTexts, words).system, "");
}

TEST(SyntheticPrompts, TheSameTextsGiveTheSamePrompts) {
  for (Growth growth : {Growth::prompt, Growth::history, Growth::prefix})
    EXPECT_EQ(synthetic_prompts(growth, 9, 4, kTexts, words).jsonl,
              synthetic_prompts(growth, 9, 4, kTexts, words).jsonl);
}

}  // namespace
}  // namespace espalier
