#include "serve/protocol/answer_object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/protocol/testing/piece_tokenizer.h"

namespace espalier {
namespace {

using nlohmann::json;

const PieceTokenizer kTokenizer({"Hi", " you", "\x01<end>"});

AnswerFrame some_frame(Api api) {
  AnswerFrame frame{.id = "x-1", .created = 12, .model = "tiny", .fingerprint = "b77", .seed = ~std::uint64_t{0}};
  frame.form.api = api;
  frame.prompts = {{0, 1, 1}};
  return frame;
}

ChoiceAnswer some_answer() {
  ChoiceAnswer answer;
  answer.piece.text = "Hi you";
  answer.piece.tokens = {{.id = 0, .logprobs = Logprobs{.chosen = {0, -0.5}, .top = {}}},
                         {.id = 1, .offset = 2, .logprobs = Logprobs{.chosen = {1, -0.25}, .top = {}}},
                         {.id = 2, .stops = true, .offset = 6, .logprobs = Logprobs{.chosen = {2, -1.5}, .top = {}}}};
  answer.end = {.reason = FinishReason::stop_token};
  answer.figures = {.prompt_tokens = 3, .completion_tokens = 3};
  answer.seed = 4;
  return answer;
}

json response_of(const AnswerFrame& frame, const std::vector<ChoiceAnswer>& choices) {
  return json::parse(response_json(frame, choices, kTokenizer));
}

TEST(AnswerObject, AChatHasAMessage) {
  json response = response_of(some_frame(Api::chat), {some_answer()});
  EXPECT_TRUE(response["timings"].is_object());
  response.erase("timings");
  EXPECT_EQ(response, json::parse(R"({"id": "x-1", "object": "chat.completion", "created": 12, "model": "tiny",
      "system_fingerprint": "b77", "seed": -1, "choices": [{"index": 0, "message": {"role": "assistant",
      "content": "Hi you"}, "logprobs": null, "finish_reason": "stop", "stop_reason": null}], "usage": {
      "prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6, "prompt_tokens_details": {"cached_tokens": 0}}})"));
}

TEST(AnswerObject, ACompletionHasAText) {
  const json response = response_of(some_frame(Api::text), {some_answer()});
  EXPECT_EQ(response["object"], "text_completion");
  EXPECT_EQ(response["choices"][0]["text"], "Hi you");
  EXPECT_FALSE(response["choices"][0].contains("message"));
}

TEST(AnswerObject, ExtrasAreThereOnlyWhereAskedFor) {
  AnswerFrame frame = some_frame(Api::chat);
  const json plain = response_of(frame, {some_answer()});
  for (const char* name : {"metrics", "prompt_token_ids"}) EXPECT_FALSE(plain.contains(name));
  for (const char* name : {"token_ids", "rounds", "receipt", "seed"}) EXPECT_FALSE(plain["choices"][0].contains(name));
  frame.form.metrics = frame.form.token_ids = frame.form.rounds = frame.form.logprobs = true;
  ChoiceAnswer answer = some_answer();
  answer.receipt = R"({"espalier_receipt":1})";
  answer.piece.rounds = {
      {.parents = {0, 0}, .tokens = {0, 1}, .scores = {0, -0.5}, .accepted = {true, false}, .drawn = 2}};
  const json asked = response_of(frame, {answer});
  EXPECT_TRUE(asked["metrics"].is_object());
  EXPECT_EQ(asked["prompt_token_ids"], json::parse("[0, 1, 1]"));
  const json& choice = asked["choices"][0];
  EXPECT_EQ(choice["token_ids"], json::parse("[0, 1, 2]"));
  EXPECT_EQ(choice["rounds"], json::parse(R"([{"parent": [0, 0], "token": [0, 1], "text": ["Hi", " you"],
      "score": [0.0, -0.5], "accepted": [true, false], "drawn": 2}])"));
  EXPECT_EQ(choice["receipt"]["espalier_receipt"], 1);
  EXPECT_EQ(choice["logprobs"]["content"].size(), 2u);
}

TEST(AnswerObject, TheStopTokenHasALogProbabilityInCompletionsOnly) {
  AnswerFrame frame = some_frame(Api::text);
  frame.form.logprobs = true;
  const json logprobs = response_of(frame, {some_answer()})["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json::parse(R"(["Hi", " you", "<end>"])"));
  EXPECT_EQ(logprobs["text_offset"], json::parse("[0, 2, 6]"));
}

TEST(AnswerObject, WhatEndedAChoiceIsNamed) {
  const auto choice_with = [&](const ChoiceEnd& end) {
    ChoiceAnswer answer = some_answer();
    answer.end = end;
    return response_of(some_frame(Api::text), {answer})["choices"][0];
  };
  EXPECT_EQ(choice_with({.reason = FinishReason::stopped, .stop_string = "\n"})["stop_reason"], "\n");
  EXPECT_EQ(choice_with({.reason = FinishReason::stopped, .stop_string = "\n"})["finish_reason"], "stop");
  EXPECT_EQ(choice_with({.reason = FinishReason::stop_token, .stop_token = 2})["stop_reason"], 2);
  EXPECT_EQ(choice_with({.reason = FinishReason::token_limit})["finish_reason"], "length");
  EXPECT_EQ(choice_with({.reason = FinishReason::context_limit})["finish_reason"], "length");
  EXPECT_TRUE(choice_with({.reason = FinishReason::token_limit})["stop_reason"].is_null());
}

TEST(AnswerObject, SeveralChoicesTellTheirSeedsAndOneUsage) {
  AnswerFrame frame = some_frame(Api::text);
  frame.form.n = 2;
  frame.form.prompts = 2;
  frame.form.token_ids = true;
  frame.prompts = {{0}, {1, 1}};
  const json response = response_of(frame, {some_answer(), some_answer(), some_answer(), some_answer()});
  EXPECT_EQ(response["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(response["usage"]["completion_tokens"], 12);
  EXPECT_EQ(response["choices"][3]["index"], 3);
  EXPECT_EQ(response["choices"][3]["seed"], 4);
  EXPECT_EQ(response["choices"][1]["prompt_token_ids"], json::parse("[0]"));
  EXPECT_EQ(response["choices"][2]["prompt_token_ids"], json::parse("[1, 1]"));
}

TEST(AnswerObject, AnEmptyAnswerHasEmptyListsOfLogProbabilities) {
  AnswerFrame frame = some_frame(Api::chat);
  frame.form.logprobs = true;
  EXPECT_EQ(response_of(frame, {ChoiceAnswer()})["choices"][0]["logprobs"]["content"], json::array());
}

}  // namespace
}  // namespace espalier
