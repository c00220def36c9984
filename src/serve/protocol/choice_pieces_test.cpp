#include "serve/protocol/choice_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/protocol/testing/piece_tokenizer.h"
#include "serve/protocol/testing/told_answer.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// é in halves, € in thirds.
const std::vector<std::string> kHalfCharacters = {"\x01<end>", "a",    "b",    " stop",     "\xC3", "\xA9",
                                                  "\xE2",      "\x82", "\xAC", "\x01<odd>", "ab"};
enum : TokenId { kStopToken, kA, kB, kStop, kC3, kA9, kE2, k82, kAC, kOdd, kAB };

std::vector<TokenId> ids_of(const AnswerPiece& piece) {
  std::vector<TokenId> ids;
  for (const AnswerToken& token : piece.tokens) ids.push_back(token.id);
  return ids;
}

std::vector<std::int64_t> offsets_of(const AnswerPiece& piece) {
  std::vector<std::int64_t> offsets;
  for (const AnswerToken& token : piece.tokens) offsets.push_back(token.offset);
  return offsets;
}

class ChoicePiecesTest : public ::testing::Test {
 protected:
  ModelText text_ = text_of_pieces(kHalfCharacters, kStopToken);
};

TEST_F(ChoicePiecesTest, ARoundIsOnePieceWithAllItsTokens) {
  const ToldAnswer told = told_answer(text_, {kA, kB, kAB, kA}, {3}, {});
  EXPECT_EQ(told.pieces[0].text, "abab");
  EXPECT_THAT(ids_of(told.pieces[0]), ElementsAre(kA, kB, kAB));
  EXPECT_THAT(offsets_of(told.pieces[0]), ElementsAre(0, 1, 2));
  EXPECT_EQ(told.pieces[1].text, "a");
  EXPECT_THAT(offsets_of(told.pieces[1]), ElementsAre(4));
}

TEST_F(ChoicePiecesTest, AHalfCharacterWaitsForItsOtherHalf) {
  const ToldAnswer told = told_answer(text_, {kA, kC3, kA9, kB}, {2}, {});
  EXPECT_EQ(told.pieces[0].text, "a");
  EXPECT_THAT(ids_of(told.pieces[0]), ElementsAre(kA));
  EXPECT_EQ(told.pieces[1].text, "éb");
  EXPECT_THAT(ids_of(told.pieces[1]), ElementsAre(kC3, kA9, kB));
}

TEST_F(ChoicePiecesTest, OffsetsCountCharactersFromTheEchoOn) {
  const ToldAnswer told = told_answer(text_, {kA, kE2, k82, kAC, kC3, kA9, kB}, {1, 3}, {}, /*offset=*/10);
  EXPECT_EQ(told.whole.piece.text, "a€éb");
  EXPECT_THAT(offsets_of(told.whole.piece), ElementsAre(10, 11, 11, 11, 12, 12, 13));
}

TEST_F(ChoicePiecesTest, TextThatMayBeginAStopStringWaitsWithItsTokens) {
  TextOptions options;
  options.stop = {" stop it"};
  options.generate.logprobs = 0;
  const ToldAnswer told = told_answer(text_, {kA, kStop, kB, kA}, {1}, options);
  EXPECT_THAT(ids_of(told.pieces[0]), ElementsAre(kA));
  EXPECT_EQ(told.pieces[1].text, "");
  EXPECT_THAT(ids_of(told.pieces[1]), IsEmpty());
  EXPECT_EQ(told.pieces[2].text, " stopb");
  EXPECT_THAT(ids_of(told.pieces[2]), ElementsAre(kStop, kB));
  EXPECT_TRUE(told.pieces[2].tokens[0].logprobs);
}

TEST_F(ChoicePiecesTest, AStopStringTakesItsTokensWithIt) {
  TextOptions options;
  options.stop = {" stop"};
  const ToldAnswer told = told_answer(text_, {kA, kB, kStop, kA, kB}, {5}, options);
  EXPECT_EQ(told.whole.piece.text, "ab");
  EXPECT_THAT(ids_of(told.whole.piece), ElementsAre(kA, kB));
  EXPECT_EQ(told.whole.end.stop_string, " stop");
  EXPECT_EQ(finish_reason(told.whole.end), "stop");
  EXPECT_EQ(told.whole.figures.completion_tokens, 3);  // drawn, as usage counts them
}

TEST_F(ChoicePiecesTest, ATokenThatReachesAcrossTheEndStays) {
  TextOptions options;
  options.stop = {"b stop"};
  const ToldAnswer told = told_answer(text_, {kA, kAB, kStop}, {1}, options);
  EXPECT_EQ(told.whole.piece.text, "aa");
  EXPECT_THAT(ids_of(told.whole.piece), ElementsAre(kA, kAB));
}

TEST_F(ChoicePiecesTest, AStopStringThatIsIncludedKeepsItsTokens) {
  TextOptions options;
  options.stop = {" stop"};
  options.include_stop = true;
  const ToldAnswer told = told_answer(text_, {kA, kStop, kB}, {3}, options);
  EXPECT_EQ(told.whole.piece.text, "a stop");
  EXPECT_THAT(ids_of(told.whole.piece), ElementsAre(kA, kStop));
}

TEST_F(ChoicePiecesTest, AStopTokenComesLastWithoutText) {
  const ToldAnswer told = told_answer(text_, {kA, kC3, kStopToken}, {3}, {});
  EXPECT_EQ(told.whole.piece.text, "a\uFFFD");
  EXPECT_THAT(ids_of(told.whole.piece), ElementsAre(kA, kC3, kStopToken));
  EXPECT_TRUE(told.whole.piece.tokens.back().stops);
  EXPECT_EQ(told.whole.end.reason, FinishReason::stop_token);
  EXPECT_FALSE(told.whole.end.stop_token);  // the model's own
}

TEST_F(ChoicePiecesTest, OnlyStopTokensOfTheRequestAreNamed) {
  TextOptions options;
  options.generate.stop_tokens = {kB};
  EXPECT_EQ(told_answer(text_, {kA, kB}, {1}, options).whole.end.stop_token, kB);
  EXPECT_FALSE(told_answer(text_, {kA, kStopToken}, {1}, options).whole.end.stop_token);
}

TEST_F(ChoicePiecesTest, ControlTokensInTheMidstHaveNoText) {
  const ToldAnswer told = told_answer(text_, {kA, kOdd, kB}, {1}, {});
  EXPECT_EQ(told.whole.piece.text, "ab");
  EXPECT_THAT(ids_of(told.whole.piece), ElementsAre(kA, kOdd, kB));
}

TEST_F(ChoicePiecesTest, RoundsComeAsRows) {
  TokenTree tree(kA);
  tree.append(0, {.token = kB, .score = -1});
  tree.append(0, {.token = kAB, .score = -2});
  tree.append(1, {.token = kA, .score = -3});
  const std::vector<Visit> visits = {{0, kB}, {1, kStop}};
  ChoicePieces pieces(0);
  pieces.add(Round{.tree = tree, .visits = visits, .finish = {}, .times = {}});
  const AnswerPiece piece = pieces.take();
  ASSERT_EQ(piece.rounds.size(), 1u);
  EXPECT_THAT(piece.rounds[0].parents, ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(piece.rounds[0].tokens, ElementsAre(kA, kB, kAB, kA));
  EXPECT_THAT(piece.rounds[0].scores, ElementsAre(0, -1, -2, -3));
  EXPECT_THAT(piece.rounds[0].accepted, ElementsAre(true, true, false, false));
  EXPECT_EQ(piece.rounds[0].drawn, kStop);
  EXPECT_TRUE(pieces.take().empty());
}

TEST_F(ChoicePiecesTest, AnEchoIsThePromptWithItsTokens) {
  const PlannedPrompt prompt{.tokens = {kA, kC3, kA9, kB}, .echo = "aéb"};
  std::vector<Logprobs> logprobs;
  for (const TokenId id : {kC3, kA9, kB}) logprobs.push_back(made_up_logprobs(id, 1, 11));
  const AnswerPiece piece = echo_piece(prompt, logprobs, *text_.tokenizer);
  EXPECT_EQ(piece.text, "aéb");
  EXPECT_THAT(ids_of(piece), ElementsAre(kA, kC3, kA9, kB));
  EXPECT_THAT(offsets_of(piece), ElementsAre(0, 1, 1, 2));
  EXPECT_FALSE(piece.tokens[0].logprobs);
  EXPECT_EQ(piece.tokens[3].logprobs->chosen.token, kB);
  EXPECT_TRUE(piece.tokens[0].of_prompt);
  EXPECT_FALSE(echo_piece(prompt, {}, *text_.tokenizer).tokens[3].logprobs);
}

TEST_F(ChoicePiecesTest, ABosThatWasAddedIsNoPartOfTheEcho) {
  const PlannedPrompt prompt{.tokens = {kOdd, kA, kB}, .echo = "ab", .added_bos = true};
  EXPECT_THAT(offsets_of(echo_piece(prompt, {}, *text_.tokenizer)), ElementsAre(0, 0, 1));
  const PlannedPrompt spelled{.tokens = {kOdd, kA, kB}, .echo = "<odd>ab"};
  EXPECT_THAT(offsets_of(echo_piece(spelled, {}, *text_.tokenizer)), ElementsAre(0, 5, 6));
}

TEST(CountCharacters, CountsAsPythonDoes) {
  EXPECT_EQ(count_characters(""), 0);
  EXPECT_EQ(count_characters("aé€😀"), 4);
}

}  // namespace
}  // namespace espalier
