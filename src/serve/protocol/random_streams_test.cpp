// Random answers of half characters, control tokens and stop strings, in random rounds and at random company: a stream
// says what the whole response says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/testing/sanitized.h"
#include "serve/protocol/answer_events.h"
#include "serve/protocol/json_writer.h"
#include "serve/protocol/testing/joined_stream.h"
#include "serve/protocol/testing/piece_tokenizer.h"
#include "serve/protocol/testing/told_answer.h"

namespace espalier {
namespace {

using nlohmann::json;

const std::vector<std::string> kStreamPieces = {"\x01<end>", "a",    "b",    "\n",      " stop", "st",   "op",
                                                "\xC3",      "\xA9", "\xE2", "\x82",    "\xAC",  "€",    "\xF0\x9F",
                                                "\x98\x80",  "é!",   "\xFF", "\x01<x>", "ab",    " end", "a\xE2"};
constexpr TokenId kStreamEnd = 0;

constexpr int kStreams = kSanitized ? 20 : 150;

// Everything that a choice's tokens say, with empty members left out as the joined stream leaves them out.
json without_empty_lists(json response) {
  for (json& choice : response["choices"]) {
    if (choice["logprobs"].is_object()) {
      choice["logprobs"].erase("refusal");
      if (choice["logprobs"].begin()->empty()) choice.erase("logprobs");
    } else {
      choice.erase("logprobs");
    }
    for (const char* list : {"token_ids", "rounds"})
      if (choice.contains(list) && choice[list].empty()) choice.erase(list);
  }
  return response;
}

class RandomStreams : public ::testing::Test {
 protected:
  static AnswerFrame frame(Api api) {
    AnswerFrame made{.id = "x-1", .created = 12, .model = "tiny", .fingerprint = "b77", .seed = 5};
    made.form.api = api;
    made.form.stream = true;
    made.prompts = {{1, 2}};
    return made;
  }
  std::vector<TokenId> random_tokens() {
    std::vector<TokenId> tokens(1 + random_() % 30);
    for (TokenId& token : tokens)
      token = static_cast<TokenId>(random_() % 40 == 0 ? kStreamEnd : 1 + random_() % (kStreamPieces.size() - 1));
    return tokens;
  }
  std::vector<int> random_rounds() {
    std::vector<int> rounds(1 + random_() % 4);
    for (int& size : rounds) size = 1 + static_cast<int>(random_() % 6);
    return rounds;
  }
  TextOptions random_options(bool logprobs) {
    static const std::vector<std::string> kStops = {" stop", "stop", "b\n", "€é", "\uFFFD", "aab", "op s", "😀"};
    TextOptions options;
    for (std::size_t i = random_() % 4; i > 0; --i) options.stop.push_back(kStops[random_() % kStops.size()]);
    options.include_stop = random_() % 2 == 0;
    options.generate.min_tokens = random_() % 3 == 0 ? static_cast<std::int64_t>(random_() % 8) : 0;
    options.generate.logprobs = logprobs ? static_cast<std::int64_t>(random_() % 4) : -1;
    return options;
  }
  AnswerFrame random_frame() {
    AnswerFrame made = frame(random_() % 2 == 0 ? Api::chat : Api::text);
    made.form.n = 1 + static_cast<int>(random_() % 3);
    if (made.form.api == Api::text) made.form.prompts = 1 + static_cast<int>(random_() % 2);
    made.prompts.assign(static_cast<std::size_t>(made.form.prompts), {1, 2});
    made.form.logprobs = random_() % 2 == 0;
    made.form.token_ids = random_() % 2 == 0;
    made.form.rounds = random_() % 2 == 0;
    made.form.include_usage = true;
    made.form.continuous_usage = random_() % 2 == 0;
    made.form.timings_per_token = random_() % 2 == 0;
    made.form.metrics = random_() % 2 == 0;
    return made;
  }
  // The choices' pieces, interleaved at random.
  std::string streamed(const AnswerFrame& asked, const std::vector<ToldAnswer>& told) {
    AnswerEvents events(asked, *text_.tokenizer);
    std::string all = events.begin();
    std::vector<std::size_t> next(told.size());
    while (!events.ended()) {
      const std::size_t i = random_() % told.size();
      if (next[i] > told[i].pieces.size()) continue;
      const auto choice = static_cast<int>(i);
      ChoiceAnswer rest{.end = told[i].whole.end, .figures = told[i].whole.figures, .seed = i};
      all += next[i] < told[i].pieces.size() ? events.piece(choice, told[i].pieces[next[i]], told[i].whole.figures)
                                             : events.end(choice, rest);
      ++next[i];
    }
    return all + events.done();
  }

  ModelText text_ = text_of_pieces(kStreamPieces, kStreamEnd);
  std::mt19937_64 random_{11};
};

TEST_F(RandomStreams, JoinToTheObjectThatWouldHaveComeWithoutAStream) {
  for (int trial = 0; trial < kStreams; ++trial) {
    SCOPED_TRACE(trial);
    const AnswerFrame asked = random_frame();
    std::vector<ToldAnswer> told;
    std::vector<ChoiceAnswer> whole;
    for (int i = 0; i < asked.form.choices(); ++i) {
      told.push_back(told_answer(text_, random_tokens(), random_rounds(), random_options(asked.form.logprobs)));
      whole.push_back(told.back().whole);
      whole.back().seed = static_cast<std::uint64_t>(i);
    }
    const JoinedStream joined = joined_stream(streamed(asked, told));
    ASSERT_EQ(joined.complaint, "");
    EXPECT_EQ(json::parse(joined.object),
              without_empty_lists(json::parse(response_json(asked, whole, *text_.tokenizer))));
  }
}

TEST_F(RandomStreams, RoundsDoNotChangeWhatIsSaid) {
  for (int trial = 0; trial < 100; ++trial) {
    SCOPED_TRACE(trial);
    const std::vector<TokenId> tokens = random_tokens();
    const TextOptions options = random_options(true);
    AnswerFrame asked = frame(Api::text);
    asked.form.logprobs = asked.form.token_ids = true;
    const ToldAnswer one = told_answer(text_, tokens, {1}, options),
                     many = told_answer(text_, tokens, random_rounds(), options);
    EXPECT_EQ(response_json(asked, std::span(&one.whole, 1), *text_.tokenizer),
              response_json(asked, std::span(&many.whole, 1), *text_.tokenizer));
  }
}

TEST_F(RandomStreams, JoinedTokensOfWholeCharactersAreTheText) {
  AnswerFrame asked = frame(Api::chat);
  asked.form.logprobs = true;
  TextOptions options;
  options.generate.logprobs = 0;
  const std::vector<TokenId> whole_characters = {1, 2, 3, 4, 5, 6, 12, 15, 18, 19};
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<TokenId> tokens(1 + random_() % 20);
    for (TokenId& token : tokens) token = whole_characters[random_() % whole_characters.size()];
    if (random_() % 2 == 0) tokens.push_back(kStreamEnd);
    const ToldAnswer told = told_answer(text_, tokens, random_rounds(), options);
    const json choice = json::parse(response_json(asked, std::span(&told.whole, 1), *text_.tokenizer))["choices"][0];
    std::string joined;
    for (const json& entry : choice["logprobs"]["content"]) joined += entry["token"].get<std::string>();
    EXPECT_EQ(joined, choice["message"]["content"]);
  }
}

TEST_F(RandomStreams, JoinedBytesAreTheTextWhereNoStopStringCutsIt) {
  AnswerFrame asked = frame(Api::chat);
  asked.form.logprobs = true;
  TextOptions options;
  options.generate.logprobs = 0;
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<TokenId> tokens = random_tokens();
    std::erase(tokens, 17);  // a control token has bytes and is not shown
    if (tokens.empty()) continue;
    const ToldAnswer told = told_answer(text_, tokens, random_rounds(), options);
    const json choice = json::parse(response_json(asked, std::span(&told.whole, 1), *text_.tokenizer))["choices"][0];
    std::string bytes;
    for (const json& entry : choice["logprobs"]["content"])
      for (const json& byte : entry["bytes"]) bytes += static_cast<char>(byte.get<int>());
    EXPECT_EQ(json::parse(json_string(bytes)),
              json::parse(json_string(choice["message"]["content"].get<std::string>())));
  }
}

}  // namespace
}  // namespace espalier
