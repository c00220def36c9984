#include "serve/protocol/answer_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/protocol/testing/piece_tokenizer.h"
#include "serve/protocol/testing/told_answer.h"

namespace espalier {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kPieces = {"\x01<end>", "a",    "b",    "\n",      " stop", "st",   "op",
                                          "\xC3",      "\xA9", "\xE2", "\x82",    "\xAC",  "€",    "\xF0\x9F",
                                          "\x98\x80",  "é!",   "\xFF", "\x01<x>", "ab",    " end", "a\xE2"};
constexpr TokenId kEnd = 0;

std::vector<json> parsed_events(std::string_view text) {
  std::vector<json> events;
  while (!text.empty()) {
    const std::size_t end = text.find("\n\n");
    EXPECT_NE(end, std::string_view::npos);
    if (text.substr(0, end) != "data: [DONE]") events.push_back(json::parse(text.substr(6, end - 6)));
    text.remove_prefix(end + 2);
  }
  return events;
}

class AnswerEventsTest : public ::testing::Test {
 protected:
  AnswerFrame frame(Api api) const {
    AnswerFrame made{.id = "x-1", .created = 12, .model = "tiny", .fingerprint = "b77", .seed = 5};
    made.form.api = api;
    made.form.stream = true;
    made.prompts = {{1, 2}};
    return made;
  }
  static AnswerPiece piece(std::string text) {
    AnswerPiece made;
    made.text = std::move(text);
    return made;
  }

  ModelText text_ = text_of_pieces(kPieces, kEnd);
};

TEST_F(AnswerEventsTest, AChatBeginsWithARoleAndEndsWithAnEmptyDelta) {
  AnswerEvents events(frame(Api::chat), *text_.tokenizer);
  const std::string begin = events.begin();
  EXPECT_EQ(begin,
            "data: {\"id\":\"x-1\",\"object\":\"chat.completion.chunk\",\"created\":12,\"model\":\"tiny\","
            "\"system_fingerprint\":\"b77\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
            "\"content\":null},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
  const json middle = parsed_events(events.piece(0, piece("a\nb"), {}))[0]["choices"][0];
  EXPECT_EQ(middle,
            json::parse(R"({"index": 0, "delta": {"content": "a\nb"}, "logprobs": null, "finish_reason": null})"));
  const json last = parsed_events(events.end(0, {.end = {.reason = FinishReason::token_limit}}))[0];
  EXPECT_EQ(last["choices"][0]["delta"], json::object());
  EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(last["seed"], 5);
  EXPECT_TRUE(last["timings"].is_object());
  EXPECT_EQ(events.done(), "data: [DONE]\n\n");
}

TEST_F(AnswerEventsTest, ACompletionHasNoFirstDelta) {
  AnswerEvents events(frame(Api::text), *text_.tokenizer);
  EXPECT_EQ(events.begin(), "");
  EXPECT_EQ(parsed_events(events.piece(0, piece("a"), {}))[0]["object"], "text_completion");
  const std::vector<json> rest = parsed_events(events.end(0, {.piece = piece("b")}));
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0]["choices"][0]["text"], "b");
  EXPECT_TRUE(rest[0]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(rest[1]["choices"][0]["text"], "");
}

TEST_F(AnswerEventsTest, TokensWithoutTextTravelWithTheNextEvent) {
  AnswerFrame asked = frame(Api::chat);
  asked.form.token_ids = true;
  AnswerEvents events(asked, *text_.tokenizer);
  events.begin();
  AnswerPiece control, word;
  control.tokens = {{.id = 17}};
  word.text = "a";
  word.tokens = {{.id = 1}};
  EXPECT_EQ(events.piece(0, control, {}), "");
  EXPECT_EQ(parsed_events(events.piece(0, word, {}))[0]["choices"][0]["token_ids"], json::parse("[17, 1]"));
  EXPECT_EQ(parsed_events(events.end(0, {.piece = control}))[0]["choices"][0]["token_ids"], json::parse("[17]"));
}

TEST_F(AnswerEventsTest, UsageComesOnceBehindTheChoicesAndIsNullBefore) {
  AnswerFrame asked = frame(Api::chat);
  asked.form.include_usage = true;
  AnswerEvents events(asked, *text_.tokenizer);
  const ChoiceFigures figures{.prompt_tokens = 2, .completion_tokens = 1};
  std::string all = events.begin();  // one after the other: what is added up may be computed in any order
  all += events.piece(0, piece("a"), figures);
  all += events.end(0, {.figures = figures});
  for (const json& event : parsed_events(all)) EXPECT_TRUE(event.at("usage").is_null());
  const std::vector<json> last = parsed_events(events.done());
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0]["choices"], json::array());
  EXPECT_EQ(last[0]["usage"]["total_tokens"], 3);
  AnswerEvents without(frame(Api::chat), *text_.tokenizer);
  EXPECT_FALSE(parsed_events(without.begin())[0].contains("usage"));
}

TEST_F(AnswerEventsTest, UsageMayComeWithEveryEvent) {
  AnswerFrame asked = frame(Api::chat);
  asked.form.include_usage = asked.form.continuous_usage = true;
  AnswerEvents events(asked, *text_.tokenizer);
  EXPECT_EQ(parsed_events(events.begin())[0]["usage"]["prompt_tokens"], 2);
  const json event = parsed_events(events.piece(0, piece("a"), {.prompt_tokens = 2, .completion_tokens = 7}))[0];
  EXPECT_EQ(event["usage"]["total_tokens"], 9);
}

TEST_F(AnswerEventsTest, TimingsMayComeWithEveryEvent) {
  AnswerFrame asked = frame(Api::chat);
  asked.form.timings_per_token = true;
  AnswerEvents events(asked, *text_.tokenizer);
  events.begin();
  EXPECT_EQ(parsed_events(events.piece(0, piece("a"), {.completion_tokens = 7}))[0]["timings"]["predicted_n"], 7);
}

TEST_F(AnswerEventsTest, TheLastChoiceToEndTellsTheTimings) {
  AnswerFrame asked = frame(Api::chat);
  asked.form.n = 2;
  asked.form.metrics = true;
  AnswerEvents events(asked, *text_.tokenizer);
  EXPECT_EQ(parsed_events(events.begin()).size(), 2u);
  const json first = parsed_events(events.end(1, {.seed = 8}))[0], last = parsed_events(events.end(0, {.seed = 5}))[0];
  EXPECT_FALSE(first.contains("timings") || first.contains("metrics") || first.contains("seed"));
  EXPECT_TRUE(last.contains("timings") && last.contains("metrics"));
  EXPECT_EQ(first["choices"][0]["seed"], 8);
  EXPECT_TRUE(events.ended());
}

TEST_F(AnswerEventsTest, PromptTokensAreToldOnce) {
  AnswerFrame asked = frame(Api::chat);
  asked.form.token_ids = true;
  AnswerEvents chat(asked, *text_.tokenizer);
  EXPECT_EQ(parsed_events(chat.begin())[0]["prompt_token_ids"], json::parse("[1, 2]"));
  EXPECT_FALSE(parsed_events(chat.piece(0, piece("a"), {}))[0].contains("prompt_token_ids"));
  asked.form.api = Api::text;
  AnswerEvents plain(asked, *text_.tokenizer);
  EXPECT_EQ(parsed_events(plain.piece(0, piece("a"), {}))[0]["choices"][0]["prompt_token_ids"], json::parse("[1, 2]"));
  EXPECT_FALSE(parsed_events(plain.piece(0, piece("a"), {}))[0]["choices"][0].contains("prompt_token_ids"));
}

TEST_F(AnswerEventsTest, AFailureBehindTheHeadersIsAnErrorAndTheEnd) {
  EXPECT_EQ(
      AnswerEvents::failure(server_fault("x-1")),
      "data: {\"error\":{\"message\":\"the server failed at request x-1\",\"type\":\"server_error\",\"param\":null,"
      "\"code\":null}}\n\ndata: [DONE]\n\n");
  EXPECT_EQ(AnswerEvents::keep_alive(), ":\n\n");
}

TEST_F(AnswerEventsTest, ARoundIsOneEventWithAllItsTokens) {
  AnswerFrame asked = frame(Api::chat);
  asked.form.logprobs = true;
  AnswerEvents events(asked, *text_.tokenizer);
  TextOptions options;
  options.generate.logprobs = 2;
  const ToldAnswer told = told_answer(text_, {1, 2, 1, 2, 1}, {5}, options);
  events.begin();
  const std::vector<json> round = parsed_events(events.piece(0, told.pieces[0], {}));
  ASSERT_EQ(round.size(), 1u);
  const json content = round[0]["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 5u);
  EXPECT_EQ(content[0]["token"], "a");
  EXPECT_EQ(content[1]["token"], "b");
  EXPECT_EQ(content[1]["top_logprobs"].size(), 2u);
}

// lm-evaluation-harness sends echo, logprobs 1 and max_tokens 1, and sums token_logprobs[context:-1].
TEST_F(AnswerEventsTest, AnEchoedPromptHasOneEntryForEachTokenAndOneForTheAnswer) {
  AnswerFrame asked = frame(Api::text);
  asked.form.logprobs = asked.form.echo = true;
  asked.prompts = {{1, 7, 8, 2}};
  const PlannedPrompt prompt{.tokens = asked.prompts[0], .echo = "aéb"};
  std::vector<Logprobs> logprobs;
  for (std::size_t i = 1; i < prompt.tokens.size(); ++i) logprobs.push_back(made_up_logprobs(prompt.tokens[i], 1, 21));
  for (const TokenId drawn : {kEnd, TokenId{1}, TokenId{7}, TokenId{17}}) {
    TextOptions options;
    options.generate.logprobs = 1;
    ToldAnswer told = told_answer(text_, {drawn}, {1}, options, count_characters(prompt.echo));
    ChoiceAnswer whole = told.whole;
    whole.piece = echo_piece(prompt, logprobs, *text_.tokenizer);
    whole.piece.append(told.whole.piece);
    const json choice = json::parse(response_json(asked, std::span(&whole, 1), *text_.tokenizer))["choices"][0];
    const json& lists = choice["logprobs"];
    ASSERT_EQ(lists["tokens"].size(), 5u) << drawn;
    EXPECT_EQ(lists["text_offset"], json::parse("[0, 1, 1, 2, 3]"));
    EXPECT_TRUE(lists["token_logprobs"][0].is_null());
    for (std::size_t i = 1; i < 4; ++i) {
      EXPECT_EQ(lists["token_logprobs"][i], logprobs[i - 1].chosen.logprob);
      double best = -1e9;
      for (const json& value : lists["top_logprobs"][i]) best = std::max(best, value.get<double>());
      EXPECT_EQ(best, logprobs[i - 1].top[0].logprob);
    }
    EXPECT_TRUE(choice["text"].get<std::string>().starts_with("aéb"));
  }
}

}  // namespace
}  // namespace espalier
