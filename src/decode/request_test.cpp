#include "decode/request.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"

namespace espalier {
namespace {

class RequestTest : public ::testing::Test {
 protected:
  const std::vector<std::int32_t> prompt_ = {1, 2, 3}, prediction_ = {4, 99};
  RequestLimits limits_{.context = 10, .vocabulary = 100, .drafters = {"ngram", "eagle3"}, .tree = TreeShape::dynamic};
  GenerateRequest request_{.prompt = prompt_, .prediction = prediction_};

  std::string refusal() const {
    try {
      check_request(request_, limits_);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(RequestTest, WhatTheBatchHasIsAccepted) {
  request_.draft = {.drafters = {"eagle3"}, .tree = TreeShape::chain};
  request_.options = {.min_tokens = 1000, .prompt_logprobs = 0};
  request_.priority = kLastPriority;
  EXPECT_EQ(refusal(), "accepted");
  request_.draft.tree = TreeShape::dynamic;
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(RequestTest, DraftersThatTheBatchHasNotAreNamed) {
  request_.draft.drafters = {"ngram", "medusa"};
  EXPECT_EQ(refusal(), "--draft: expected some of ngram, eagle3, got medusa");
  limits_.drafters.clear();
  EXPECT_EQ(refusal(), "--draft: expected some of none, got ngram");
}

TEST_F(RequestTest, ShapesOfTreesThatTheBatchDoesNotGrowAreNamed) {
  request_.draft.tree = TreeShape::fixed;
  EXPECT_EQ(refusal(), "--tree: expected dynamic or chain, got static");
  limits_.tree = TreeShape::chain;
  request_.draft.tree = TreeShape::dynamic;
  EXPECT_EQ(refusal(), "--tree: expected chain, got dynamic");
  limits_.tree = TreeShape::fixed;
  EXPECT_EQ(refusal(), "--tree: expected static or chain, got dynamic");
  request_.draft.tree = TreeShape::fixed;
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(RequestTest, NumbersOutOfRangeAreNamed) {
  request_.priority = -11;
  EXPECT_EQ(refusal(), "--priority: expected -10 to 10, got -11");
  request_.priority = 11;
  EXPECT_EQ(refusal(), "--priority: expected -10 to 10, got 11");
  request_.priority = 0;
  request_.options.min_tokens = -1;
  EXPECT_EQ(refusal(), "--min-tokens: expected 0 or more, got -1");
  request_.options = {.prompt_logprobs = 1001};
  EXPECT_EQ(refusal(), "--prompt-logprobs: expected 0 to 1000, got 1001");
  request_.options = {};
  limits_.vocabulary = 99;
  EXPECT_EQ(refusal(), "the prediction has token 99, the vocabulary has 99");
}

TEST_F(RequestTest, AnAnswerMustHaveATokenToBeginWith) {
  request_.options.min_tokens = 1;
  request_.options.stop_tokens.resize(100);
  std::iota(request_.options.stop_tokens.begin(), request_.options.stop_tokens.end(), 0);
  EXPECT_EQ(refusal(), "--min-tokens 1: every token is a stop token");
  request_.options.stop_tokens[7] = 8;
  EXPECT_EQ(refusal(), "accepted") << "7 is none";
  request_.options.stop_tokens[7] = 7;
  request_.options.min_tokens = 0;
  EXPECT_EQ(refusal(), "accepted") << "it ends with its first token";
}

TEST(GenerateResult, CountsWhatWasDraftedAndAcceptedAtEachDepth) {
  GenerateResult result;
  EXPECT_EQ(result.accept_length(), 0);
  EXPECT_TRUE(result.accepted_by_depth().empty());
  result.accept_lengths = {0, 3, 1, 1};
  result.verified_rows = 4 + 20;
  EXPECT_EQ(result.drafted_tokens(), 20);
  EXPECT_EQ(result.accepted_tokens(), 5);
  EXPECT_EQ(result.accept_length(), 1.25);
  EXPECT_EQ(result.accepted_by_depth(), (std::vector<std::int64_t>{3, 1, 1}));
}

}  // namespace
}  // namespace espalier
