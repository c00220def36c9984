#include "serve/answer_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "engine/testing/tiny_model.h"

namespace espalier {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class AnswerWriterTest : public ::testing::Test {
 protected:
  std::shared_ptr<AnswerWriter> writer(bool stream, int n = 1, std::size_t outbox_bytes = 1 << 20, bool echo = false) {
    return writer(stream, std::make_shared<HttpReply>(exchange_), n, outbox_bytes, echo);
  }
  std::shared_ptr<AnswerWriter> writer(bool stream, std::shared_ptr<HttpReply> reply, int n = 1,
                                       std::size_t outbox_bytes = 1 << 20, bool echo = false) {
    AnswerSheet sheet{.tokenizer = text_.tokenizer.get()};
    sheet.frame.form = {.api = Api::text, .n = n, .stream = stream, .logprobs = echo, .echo = echo};
    sheet.frame.id = "cmpl-7";
    sheet.frame.prompts = {{1, 2}};
    sheet.prompts = {{.tokens = {1, 2}}};
    for (int i = 0; i < n; ++i) sheet.choices.push_back({.index = i});
    return std::make_shared<AnswerWriter>(pool_, metrics_, std::move(sheet), std::move(reply), outbox_bytes);
  }
  HttpExchange::Step written() {
    pool_.wait_until_idle();
    return exchange_->take();
  }
  static AnswerPiece piece(const std::string& text) { return {.text = text}; }

  // Keeps the one thread that writes from writing.
  std::promise<void> hold() {
    std::promise<void> gate;
    pool_.write([opened = gate.get_future().share()] { opened.wait(); });
    return gate;
  }

  ModelText text_ = load_model_text(kTinyModel);
  Metrics metrics_;
  WorkerPool pool_{1, 10};
  std::shared_ptr<HttpExchange> exchange_ = std::make_shared<HttpExchange>(std::size_t{1} << 20, [] {});
};

TEST_F(AnswerWriterTest, AWholeAnswerIsOneObjectWhenAllChoicesHaveEnded) {
  const auto answer = writer(false, 2);
  answer->begun();
  answer->ended(1, {.rest = piece("second")});
  EXPECT_FALSE(written().whole);
  answer->ended(0, {.rest = piece("first")});
  const HttpExchange::Step step = written();
  ASSERT_TRUE(step.whole);
  EXPECT_EQ(step.whole->status, 200);
  EXPECT_THAT(step.whole->body, HasSubstr("first"));
  EXPECT_EQ(step.whole->headers, (std::vector<HttpHeader>{{"X-Request-Id", "cmpl-7"}}));
}

TEST_F(AnswerWriterTest, AStreamLeavesPieceByPieceAndEndsWithDone) {
  const auto answer = writer(true);
  answer->begun();
  EXPECT_TRUE(written().begun);
  EXPECT_TRUE(answer->piece(0, piece("once"), {}));
  EXPECT_THAT(written().bytes, StartsWith("data: {"));
  answer->ended(0, {.rest = piece(" upon")});
  const HttpExchange::Step step = written();
  EXPECT_THAT(step.bytes, HasSubstr(" upon"));
  EXPECT_THAT(step.bytes, EndsWith("data: [DONE]\n\n"));
  EXPECT_TRUE(step.last);
}

TEST_F(AnswerWriterTest, ChoicesThatAreAheadOfThePromptsScoresWaitForThem) {
  for (const bool stream : {false, true}) {
    exchange_ = std::make_shared<HttpExchange>(std::size_t{1} << 20, [] {});
    const auto answer = writer(stream, 2, std::size_t{1} << 20, /*echo=*/true);
    answer->begun();
    written();
    if (stream) answer->piece(1, piece("ahead"), {});
    answer->ended(1, {.rest = piece("ahead")});
    EXPECT_EQ(written().bytes, "");
    answer->prompt_scored(0, {{.chosen = {.token = 2, .logprob = -0.125}, .top = {}}});
    answer->ended(0, {.rest = piece("first")});
    const HttpExchange::Step step = written();
    const std::string& said = stream ? step.bytes : step.whole.value().body;
    EXPECT_TRUE(step.last);
    EXPECT_NE(said.find("-0.125", said.find("-0.125") + 1), std::string::npos) << "once for each choice: " << said;
  }
}

// As where the engine thread had no memory to tell the end with. Connections hold on to replies by on_gone().
TEST_F(AnswerWriterTest, AnAnswerThatNobodyEndsIsGivenUp) {
  for (const bool stream : {false, true}) {
    exchange_ = std::make_shared<HttpExchange>(std::size_t{1} << 20, [] {});
    const auto held = std::make_shared<HttpReply>(exchange_);
    held->on_gone([held] {});
    auto answer = writer(stream, held);
    answer->begun();
    EXPECT_FALSE(written().abandoned);
    answer.reset();
    EXPECT_TRUE(exchange_->take().abandoned) << stream;
  }
}

TEST_F(AnswerWriterTest, AFailureBeforeTheHeadIsAStatusAndBehindItAnEvent) {
  ApiError error = unavailable("too late", 5);
  writer(true)->failed(error);
  HttpExchange::Step step = written();
  ASSERT_TRUE(step.whole);
  EXPECT_EQ(step.whole->status, 503);
  EXPECT_THAT(step.whole->headers, ::testing::Contains(HttpHeader{"Retry-After", "5"}));
  exchange_ = std::make_shared<HttpExchange>(std::size_t{1} << 20, [] {});
  const auto answer = writer(true);
  answer->begun();
  answer->failed(error);
  step = written();
  EXPECT_FALSE(step.whole);
  EXPECT_THAT(step.bytes, HasSubstr("data: {\"error\""));
  EXPECT_THAT(step.bytes, EndsWith("data: [DONE]\n\n"));
  EXPECT_THAT(metrics_.text({}, {}, 0), HasSubstr("espalier_request_errors_total{status=\"503\"} 2"));
}

TEST_F(AnswerWriterTest, BehindItsLastWordNothingIsWritten) {
  const auto answer = writer(true);
  answer->begun();
  answer->failed(unavailable("over"));
  answer->piece(0, piece("late"), {});
  answer->ended(0, {});
  EXPECT_THAT(written().bytes, Not(HasSubstr("late")));
}

TEST_F(AnswerWriterTest, WhatPilesUpUnwrittenIsSaidToBeTooMuch) {
  std::promise<void> gate = hold();
  const auto answer = writer(true, 1, 4000);
  answer->begun();
  EXPECT_TRUE(answer->piece(0, piece(std::string(5000, 'x')), {})) << "where nothing waits a piece may be long";
  EXPECT_FALSE(answer->piece(0, piece("y"), {}));
  gate.set_value();
  pool_.wait_until_idle();
  EXPECT_TRUE(answer->piece(0, piece("z"), {}));
}

TEST_F(AnswerWriterTest, WhatCannotBeWrittenIsOurFault) {
  const auto answer = writer(true);
  answer->begun();
  answer->piece(7, piece("of a choice that is not there"), {});
  const HttpExchange::Step step = written();
  EXPECT_THAT(step.bytes, HasSubstr("server_error"));
  EXPECT_TRUE(step.last);
}

TEST_F(AnswerWriterTest, AClientThatHasGoneIsWrittenToWithoutHarm) {
  const auto answer = writer(true);
  answer->begun();
  written();
  exchange_->client_left();
  answer->piece(0, piece("x"), {});
  answer->ended(0, {});
  EXPECT_TRUE(written().bytes.empty());
}

}  // namespace
}  // namespace espalier
