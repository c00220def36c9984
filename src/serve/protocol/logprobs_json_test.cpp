#include "serve/protocol/logprobs_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "serve/protocol/testing/piece_tokenizer.h"

namespace espalier {
namespace {

using nlohmann::json;

// Two pieces are no characters, and look the same as text.
const PieceTokenizer kOddTokenizer({"a", "b", "\xC3", "\xA9", "\x01<end>", " x"}, /*dummy_prefix=*/true);

AnswerToken entry(TokenId id, double logprob, std::vector<TokenLogprob> top) {
  return {.id = id, .logprobs = Logprobs{.chosen = {id, logprob}, .top = std::move(top)}};
}

TEST(ChatLogprobs, HaveTokenBytesAndAlternatives) {
  const AnswerToken token = entry(0, -0.5, {{1, -0.25}, {0, -0.5}});
  EXPECT_EQ(json::parse(chat_logprobs_json(std::span(&token, 1), kOddTokenizer)), json::parse(R"({"content": [
      {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [
        {"token": "b", "logprob": -0.25, "bytes": [98]}, {"token": "a", "logprob": -0.5, "bytes": [97]}]}],
      "refusal": null})"));
}

TEST(ChatLogprobs, BytesThatAreNoCharacterAreShownAsOne) {
  const AnswerToken token = entry(2, -1, {});
  const json content = json::parse(chat_logprobs_json(std::span(&token, 1), kOddTokenizer))["content"];
  EXPECT_EQ(content[0]["token"], "\uFFFD");
  EXPECT_EQ(content[0]["bytes"], json::parse("[195]"));
  EXPECT_TRUE(content[0]["top_logprobs"].empty());
}

TEST(ChatLogprobs, LeaveOutTheStopToken) {
  std::vector<AnswerToken> tokens = {entry(0, -1, {}), entry(4, -2, {})};
  tokens[1].stops = true;
  EXPECT_EQ(json::parse(chat_logprobs_json(tokens, kOddTokenizer))["content"].size(), 1u);
}

TEST(TextLogprobs, AreFourListsOfOneLength) {
  std::vector<AnswerToken> tokens = {entry(0, -0.5, {{1, -0.25}}), entry(4, -2, {{4, -2}})};
  tokens[1].stops = true;
  tokens[1].offset = 1;
  EXPECT_EQ(json::parse(text_logprobs_json(tokens, kOddTokenizer)), json::parse(R"({"text_offset": [0, 1],
      "token_logprobs": [-0.5, -2.0], "tokens": ["a", "<end>"], "top_logprobs": [{"b": -0.25, "a": -0.5}, {"<end>": -2.0}]})"));
}

TEST(TextLogprobs, TheFirstOfAPromptIsNull) {
  const AnswerToken first{.id = 0, .of_prompt = true};
  const json object = json::parse(text_logprobs_json(std::span(&first, 1), kOddTokenizer));
  EXPECT_TRUE(object["token_logprobs"][0].is_null());
  EXPECT_TRUE(object["top_logprobs"][0].is_null());
}

// lm-evaluation-harness: token_logprob == max(top_logprobs.values()) where the token is the most probable.
TEST(TextLogprobs, TheMostProbableTokenIsTheSameDoubleInBothPlaces) {
  const double awkward = -0.1 - 0.2, other = -0.30000000000000004 - 1e-17;
  const AnswerToken token = entry(2, awkward, {{2, other}, {3, -0.7}});
  const json object = json::parse(text_logprobs_json(std::span(&token, 1), kOddTokenizer));
  EXPECT_EQ(object["token_logprobs"][0].get<double>(), awkward);
  EXPECT_EQ(object["top_logprobs"][0]["\uFFFD"].get<double>(), awkward);
}

TEST(TextLogprobs, OfTwoTokensWithOneTextTheBetterStays) {
  const AnswerToken token = entry(3, -0.7, {{2, -0.3}});
  const json object = json::parse(text_logprobs_json(std::span(&token, 1), kOddTokenizer));
  EXPECT_EQ(object["top_logprobs"][0], json::parse(R"({"\uFFFD": -0.3})"));
  EXPECT_EQ(object["token_logprobs"][0], -0.7);
}

TEST(Logprobs, WhatIsNotFiniteIsVeryUnlikely) {
  const AnswerToken token = entry(0, -HUGE_VAL, {{1, std::nan("")}});
  const json text = json::parse(text_logprobs_json(std::span(&token, 1), kOddTokenizer));
  EXPECT_EQ(text["token_logprobs"][0], -9999.0);
  EXPECT_EQ(text["top_logprobs"][0]["b"], -9999.0);
  const json chat = json::parse(chat_logprobs_json(std::span(&token, 1), kOddTokenizer))["content"][0];
  EXPECT_EQ(chat["logprob"], -9999.0);
}

TEST(Logprobs, TheFirstTokenOfATextIsWrittenAsItIsShown) {
  AnswerToken token = entry(5, -1, {{5, -1}});
  EXPECT_EQ(json::parse(text_logprobs_json(std::span(&token, 1), kOddTokenizer))["tokens"][0], " x");
  token.first = true;
  EXPECT_EQ(json::parse(text_logprobs_json(std::span(&token, 1), kOddTokenizer))["tokens"][0], "x");
}

}  // namespace
}  // namespace espalier
