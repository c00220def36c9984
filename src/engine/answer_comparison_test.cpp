#include "engine/answer_comparison.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "engine/testing/tiny_model.h"
#include "text/model_text.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TextResult answer_of(std::vector<TokenId> tokens, double seconds) {
  TextResult answer;
  answer.generated.tokens = std::move(tokens);
  answer.generated.decode_seconds = seconds;
  return answer;
}

class AnswerComparisonTest : public ::testing::Test {
 protected:
  // Where they part, at the second token, the plain answer liked its own 20 better than 21 by so much.
  void part(double margin) {
    plain_.logprobs = {{}, {.chosen = {20, -0.5}, .top = {{20, -0.5}, {21, -0.5 - margin}}}, {}};
    drafted_.generated.tokens[1] = 21;
  }
  AnswerComparison compared(ComparedDevice device = {}) const { return {plain_, drafted_, *text_.tokenizer, device}; }

  const ModelText text_ = load_model_text(kTinyModel);
  TextResult plain_ = answer_of({10, 20, 30}, 2), drafted_ = answer_of({10, 20, 30}, 1);
};

TEST_F(AnswerComparisonTest, EqualAnswersHaveARatioOfTheirSpeeds) {
  EXPECT_TRUE(compared().equal() && compared().holds());
  EXPECT_THAT(compared().text(), StartsWith("tokens equal: 3; 1.0 tokens/s without, 2.0 with speculation: 2.00x; "));
  const nlohmann::ordered_json json = compared().json({{"a", 1}}, {{"b", 2}});
  EXPECT_EQ(json["ratio"], 2);
  EXPECT_EQ(json["first_difference"], nullptr);
  EXPECT_FALSE(json.contains("margin")) << "there are no near-ties";
  EXPECT_EQ(json["without"]["a"], 1);
  EXPECT_EQ(json["with"]["b"], 2);
}

TEST_F(AnswerComparisonTest, WhatStandsInForADeviceHasNoSpeed) {
  EXPECT_THAT(compared({.timed = false}).text(), StartsWith("tokens equal: 3; accept_L"));
  EXPECT_EQ(compared({.timed = false}).json({}, {})["ratio"], nullptr);
}

TEST_F(AnswerComparisonTest, ADifferenceNamesBothTokensOrTheEnd) {
  part(0.01);
  EXPECT_FALSE(compared().holds()) << "nearly equal is not equal on a device that is row independent";
  EXPECT_THAT(compared().text(), StartsWith("tokens DIFFER at position 1: 20 \""));
  drafted_.generated.tokens = {10, 20};
  drafted_.generated.finish_reason = FinishReason::stop_token;
  EXPECT_THAT(compared().text(), HasSubstr("at position 2: 30 \""));
  EXPECT_THAT(compared().text(), HasSubstr("the end (stop) with;"));
  EXPECT_EQ(compared().json({}, {})["first_difference"]["position"], 2);
}

TEST_F(AnswerComparisonTest, AnotherReasonToEndIsADifferenceTooBehindTheLastToken) {
  drafted_.generated.finish_reason = FinishReason::stop_token;
  EXPECT_FALSE(compared().holds());
  EXPECT_THAT(compared().text(), StartsWith("tokens DIFFER at position 3: the end (length) without, the end (stop)"));
}

TEST_F(AnswerComparisonTest, WhereRowsAreNotIndependentANearTieHoldsAndMoreDoesNot) {
  const ComparedDevice device{.row_independent = false};
  part(0.05);
  EXPECT_TRUE(!compared(device).equal() && compared(device).holds());
  EXPECT_THAT(compared(device).text(),
              StartsWith("tokens equal outside near-ties: one difference, margin 0.0500, at "));
  EXPECT_EQ(compared(device).json({}, {})["equal_outside_near_ties"], true);
  part(0.5);
  EXPECT_FALSE(compared(device).holds());
  EXPECT_THAT(compared(device).text(), StartsWith("tokens DIFFER, margin 0.5000, at position 1: 20"));
  plain_.logprobs.clear();
  EXPECT_THAT(compared(device).text(), StartsWith("tokens DIFFER, margin unknown, at "));
  EXPECT_EQ(compared(device).json({}, {})["margin"], nullptr);
}

}  // namespace
}  // namespace espalier
