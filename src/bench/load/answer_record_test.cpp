#include "bench/load/answer_record.h"

#include <gmock/gmock.h>

#include <random>

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TimedStream stream_of(std::vector<TimedEvent> events) {
  return {.sent = 1, .ended = 9, .status = 200, .events = std::move(events)};
}

const TimedEvent kRole{1.1, R"({"choices":[{"delta":{"role":"assistant","content":null},"finish_reason":null}]})"};
const TimedEvent kEnd{8, R"({"choices":[{"delta":{},"finish_reason":"length"}]})"};
const TimedEvent kDone{8.1, "[DONE]"};

TimedEvent words(double at, const std::string& text) {
  return {at, R"({"choices":[{"delta":{"content":")" + text + R"("},"finish_reason":null}],"usage":null})"};
}
TimedEvent ids(double at, const std::string& list) {
  return {at, R"({"choices":[{"delta":{"content":"x"},"token_ids":[)" + list + "]}]}"};
}
TimedEvent usage(int tokens) {
  return {8, R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":)" + std::to_string(tokens) +
                 R"(,"prompt_tokens_details":{"cached_tokens":3}}})"};
}

TEST(AnswerRecord, TheFirstTokenIsTheFirstWithTextAndNotTheRole) {
  const AnswerRecord answer = read_answer(stream_of({kRole, words(2, "a"), words(4, "b"), kEnd, usage(2), kDone}));
  EXPECT_TRUE(answer.complete()) << answer.problem;
  EXPECT_EQ(first_token_seconds(answer), 1);
  EXPECT_EQ(answer.tokens, 2);
  EXPECT_EQ(answer.prompt_tokens, 7);
  EXPECT_EQ(answer.cached_tokens, 3);
  ASSERT_EQ(gaps_of(answer).size(), 1u);
  EXPECT_EQ(gaps_of(answer)[0].seconds(), 2);
  EXPECT_EQ(gaps_of(answer)[0].tokens, 1);
  EXPECT_TRUE(answer.tokens_known);  // as many events as tokens
}

TEST(AnswerRecord, AnEventHasAsManyTokensAsItHasIds) {
  const AnswerRecord answer =
      read_answer(stream_of({kRole, ids(2, "5"), ids(3, "6,7,8"), ids(5, "9,9"), kEnd, usage(6), kDone}));
  EXPECT_TRUE(answer.complete()) << answer.problem;
  EXPECT_TRUE(answer.tokens_known);
  EXPECT_EQ(gaps_of(answer)[0].tokens, 3);
  EXPECT_EQ(gaps_of(answer)[1].tokens, 2);
}

TEST(AnswerRecord, WithoutIdsAllEventsHaveTheSameShare) {
  const AnswerRecord answer = read_answer(stream_of({words(2, "ab"), words(3, "cd"), kEnd, usage(6), kDone}));
  EXPECT_EQ(gaps_of(answer)[0].tokens, 3);
  EXPECT_FALSE(answer.tokens_known);
  const AnswerRecord unknown = read_answer(stream_of({words(2, "ab"), words(3, "cd"), kEnd, kDone}));
  EXPECT_FALSE(unknown.usage_known);
  EXPECT_EQ(unknown.tokens, 2);
}

TEST(AnswerRecord, EventsOfOneMomentAreOnePieceAndAMomentEnds) {
  const AnswerRecord answer = read_answer(stream_of({words(2, "a"), words(2.0001, "b"), words(2.0004, "c"),
                                                     words(2.0006, "d"), words(2.0009, "e"), kEnd, usage(5), kDone}));
  ASSERT_EQ(answer.pieces.size(), 2u);
  EXPECT_EQ(answer.pieces[0].tokens, 3);
  EXPECT_EQ(answer.pieces[1].tokens, 2);
}

TEST(AnswerRecord, CompletionsAreReadAsChatsAre) {
  const AnswerRecord answer = read_answer(stream_of({{2, R"({"choices":[{"text":"a","finish_reason":null}]})"},
                                                     {3, R"({"choices":[{"text":"b","finish_reason":"length"}]})"}}));
  EXPECT_TRUE(answer.complete()) << answer.problem;
  EXPECT_EQ(answer.pieces.size(), 2u);
}

TEST(AnswerRecord, WhatIsNoAnswerHasAProblemInOneLine) {
  const auto problem = [](const TimedStream& stream) { return read_answer(stream).problem; };
  EXPECT_THAT(problem({.status = 503, .body = R"({"error":{"message":"loading\nmodel"}})"}),
              HasSubstr("status 503: \"loading\\x0amodel\""));
  EXPECT_THAT(problem({.status = 500, .body = "<html>"}), HasSubstr("status 500: \"<html>\""));
  EXPECT_THAT(problem({.status = 404}), HasSubstr("status 404: no explanation"));
  EXPECT_EQ(problem({.problem = "Connection refused"}), "Connection refused");
  EXPECT_EQ(problem(stream_of({})), "no event stream");
  EXPECT_EQ(problem(stream_of({words(2, "a")})), "the stream ended before the answer");
  EXPECT_EQ(problem(stream_of({kRole, kEnd, kDone})), "an answer without a token");
  EXPECT_THAT(problem(stream_of({{2, "garbage\x01"}})), HasSubstr("no JSON object: \"garbage\\x01\""));
  EXPECT_THAT(problem(stream_of({{2, "[1]"}})), HasSubstr("no JSON object"));
  EXPECT_THAT(problem(stream_of({words(2, "a"), {3, R"({"error":{"message":"out of luck"}})"}, kDone})),
              HasSubstr("an error in the stream: \"out of luck\""));
  EXPECT_THAT(problem(stream_of({{3, R"({"error":7})"}})), HasSubstr("\"7\""));
}

TEST(AnswerRecord, AnAnswerThatWeBrokeOffHasNoProblemAndKeepsItsPieces) {
  TimedStream stream = stream_of({kRole, ids(2, "5"), ids(3, "6,7")});
  stream.broken_off = true;
  stream.problem = "broken off";
  const AnswerRecord answer = read_answer(stream);
  EXPECT_EQ(answer.problem, "");
  EXPECT_FALSE(answer.complete());
  EXPECT_EQ(answer.tokens, 3);
}

TEST(AnswerRecord, FieldsOfOtherTypesAreNotThere) {
  const char* events[] = {R"({"choices":7,"usage":[]})",
                          R"({"choices":[7],"usage":{"completion_tokens":-3}})",
                          R"({"choices":[{"delta":5,"text":{},"token_ids":"x"}]})",
                          R"({"choices":[[]]})",
                          R"({"usage":{"completion_tokens":1e300,"prompt_tokens":99999999999999999999}})",
                          R"({"choices":[{"delta":{"content":[1]}}],"usage":{"prompt_tokens_details":3}})"};
  for (const char* event : events) {
    const AnswerRecord answer = read_answer(stream_of({{2, event}, words(3, "a"), kEnd, kDone}));
    EXPECT_TRUE(answer.complete()) << event << ": " << answer.problem;
    EXPECT_EQ(answer.tokens, 1) << event;
    EXPECT_EQ(answer.prompt_tokens, 0) << event;
  }
}

TEST(AnswerRecord, DamagedEventsNeverDoMoreThanFail) {
  const std::vector<TimedEvent> whole = {kRole, ids(2, "5"), words(3, "b"), kEnd, usage(2), kDone};
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    std::vector<TimedEvent> events = whole;
    std::string& data = events[random() % events.size()].data;
    for (int i = 0; i < 3; ++i) data[random() % data.size()] = static_cast<char>(random());
    const AnswerRecord answer = read_answer(stream_of(events));
    EXPECT_THAT(answer.problem, Not(HasSubstr("\n"))) << "seed " << seed;
    EXPECT_GE(answer.tokens, 0) << "seed " << seed;
  }
}

}  // namespace
}  // namespace espalier
