#include "eval/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace espalier {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Seven tokens: the prompt's, then rounds that accept 2, 0 and 1 guesses.
TurnRecord turn(std::int64_t id, double prefill, double decode) {
  return {.prompt_id = id,
          .tokens = {1, 2, 3, 4, 5, 6, 7},
          .finish_reason = "length",
          .accept_lengths = {2, 0, 1},
          .reached = {3, 2, 1},
          .seconds = {prefill, decode},
          .stages = {.draft = 0.25, .verify = 1}};
}

TurnRecord compared(TurnRecord record, double prefill, double decode) {
  record.baseline = BaselineTurn{{prefill, decode}, record.tokens, record.finish_reason};
  return record;
}

TEST(Summary, TauIsTokensOverVerifyStepsWithoutTheFirstTokenOfAnAnswer) {
  const std::vector turns = {turn(1, 1, 2), turn(2, 1, 2)};
  const Summary summary = summarize(turns);
  EXPECT_EQ(summary.turns, 2);
  EXPECT_EQ(summary.tokens, 14);
  EXPECT_EQ(summary.rounds, 6);
  EXPECT_THAT(summary.tau.value, DoubleEq(12.0 / 6));
  EXPECT_THAT(summary.accept_length.mean, DoubleEq(1));
  EXPECT_THAT(summary.tokens_per_second.value, DoubleEq(14.0 / 6));
  EXPECT_THAT(summary.decode_tokens_per_second.value, DoubleEq(12.0 / 4));
  EXPECT_THAT(summary.stages.draft, DoubleEq(0.5));
  EXPECT_FALSE(summary.compared);
}

TEST(Summary, TokensPerSecondInAllAreShownWhereTheyAreKnown) {
  Summary summary = summarize(std::vector{turn(1, 1, 2)});
  EXPECT_THAT(to_json(summary).dump(), HasSubstr("\"tokens_per_second_in_all\":null"));
  EXPECT_THAT(summary_text(summary), ::testing::Not(HasSubstr("in all")));
  summary.tokens_per_second_in_all = 12.5;
  EXPECT_THAT(to_json(summary).dump(), HasSubstr("\"tokens_per_second_in_all\":12.5"));
  EXPECT_THAT(summary_text(summary), HasSubstr("in all                12.5 tokens per second\n"));
}

TEST(Summary, AcceptPosIsTheShareOfJudgedGuessesThatWereAccepted) {
  // Depth 1 was judged in all three rounds and accepted in two; depth 2 in two and one; depth 3 once, in vain.
  std::vector<double> shares;
  for (const Estimate& share : summarize(std::vector{turn(1, 1, 1)}).accept_pos) shares.push_back(share.value);
  EXPECT_THAT(shares, ElementsAre(2.0 / 3, 0.5, 0));
}

TEST(Summary, SpeedUpIsTheMeanOfTheTurnsRatiosNotTheRatioOfSums) {
  const Summary summary = summarize(std::vector{compared(turn(1, 1, 1), 1, 3), compared(turn(2, 0, 10), 0, 10)});
  ASSERT_TRUE(summary.compared);
  EXPECT_THAT(summary.compared->speed_up.mean, DoubleEq((2.0 + 1) / 2));
  EXPECT_THAT(summary.compared->decode_speed_up.mean, DoubleEq((3.0 + 1) / 2));
  EXPECT_THAT(summary.compared->tokens_per_second, DoubleEq(14.0 / 14));
  EXPECT_THAT(summary.compared->decode_tokens_per_second, DoubleEq(12.0 / 13));
}

TEST(Summary, TheFirstLineSaysHowManyTurnsAreIdentical) {
  std::vector turns = {compared(turn(81, 1, 1), 1, 3), compared(turn(82, 1, 1), 1, 3), compared(turn(83, 1, 1), 1, 3)};
  EXPECT_THAT(summary_text(summarize(turns)), StartsWith("3 of 3 turns identical\n"));
  turns[1].tokens[4] = 99;
  turns[2].tokens[0] = 99;
  const Summary summary = summarize(turns);
  EXPECT_EQ(summary.compared->identical, 1);
  EXPECT_THAT(summary_text(summary),
              StartsWith("1 of 3 turns identical: prompt \"82\", turn 1 differs at position 4: 5 without, 99 with "
                         "speculation\n"));
  EXPECT_THAT(to_json(summary).dump(), HasSubstr("\"identical\":1,\"first_difference\":\"prompt"));
}

TEST(Summary, TurnsThatPartAtNearTiesAreCountedApart) {
  std::vector turns = {compared(turn(81, 1, 1), 1, 3), compared(turn(82, 1, 1), 1, 3), compared(turn(83, 1, 1), 1, 3)};
  turns[1].tokens[4] = turns[2].tokens[3] = 99;
  turns[1].baseline->margin = 0.02;
  turns[2].baseline->margin = -0.03;
  EXPECT_THAT(summary_text(summarize(turns)),
              StartsWith("1 of 3 turns identical, 2 part at near-ties (margins 0.0200, -0.0300)\n"));
  EXPECT_THAT(to_json(summarize(turns)).dump(),
              HasSubstr("\"near_ties\":{\"turns\":2,\"largest_margin\":0.03,\"margins\":[0.02,-0.03]}"));
  const std::vector many(9, turns[1]);
  EXPECT_THAT(summary_text(summarize(many)),
              StartsWith("0 of 9 turns identical, 9 part at near-ties (margins up to 0.0200)\n"));
  EXPECT_THAT(summary_text(summarize(std::span(turns).first(2))),
              StartsWith("1 of 2 turns identical, 1 parts at a near-tie (margin 0.0200)\n"));
  turns[2].baseline->margin = 0.5;
  EXPECT_THAT(summary_text(summarize(turns)), HasSubstr("turn 1 differs at position 3"));
}

TEST(Summary, AnAnswerThatEndsEarlyIsToldByItsEnd) {
  TurnRecord shorter = compared(turn(1, 1, 1), 1, 1);
  shorter.tokens.resize(3);
  shorter.finish_reason = "stop";
  EXPECT_THAT(summary_text(summarize(std::vector{shorter})),
              HasSubstr("differs at position 3: 4 without, the end (stop) with speculation\n"));
}

TEST(Summary, NothingAtAllHasFiguresOfZero) {
  const Summary summary = summarize({});
  EXPECT_EQ(summary.tau.value, 0);
  EXPECT_EQ(summary.tokens_per_second.value, 0);
  EXPECT_TRUE(to_json(summary).at("baseline").is_null());
  EXPECT_THAT(summary_text(summary), StartsWith("0 turns, not compared"));
}

TEST(Summary, AnAnswerOfOneTokenHasNoRatioAfterTheFirstToken) {
  TurnRecord single = compared(turn(1, 1, 0), 2, 0);
  single.tokens = single.baseline->tokens = {1};
  single.accept_lengths.clear();
  const Summary summary = summarize(std::vector{single, compared(turn(2, 1, 1), 1, 3)});
  EXPECT_THAT(summary.compared->speed_up.mean, DoubleEq(2));
  EXPECT_THAT(summary.compared->decode_speed_up.mean, DoubleEq(3));
}

// Two turns that differ, so that an interval has two ends.
std::vector<TurnRecord> two_turns() {
  TurnRecord slow = turn(2, 2, 4);
  slow.accept_lengths = {0, 0, 0, 0, 0, 0};
  slow.reached = {6};
  return {compared(turn(1, 1, 1), 1, 3), compared(slow, 2, 4)};
}

TEST(Summary, EveryFigureOfATurnHasItsDistribution) {
  const Summary summary = summarize(two_turns());
  EXPECT_THAT(summary.speeds.tokens_per_second.mean, DoubleEq((7.0 / 2 + 7.0 / 6) / 2));
  EXPECT_THAT(summary.speeds.tpot.mean, DoubleEq((1.0 / 6 + 4.0 / 6) / 2));
  EXPECT_THAT(summary.speeds.ttft.mean, DoubleEq(1.5));
  EXPECT_THAT(summary.speeds.ttft.p50, DoubleEq(1.5));
  EXPECT_EQ(summary.speeds.ttft.interval, (Interval{1, 2}));
  EXPECT_EQ(summary.compared->speed_up.interval, (Interval{1, 2}));
  EXPECT_THAT(summary.compared->speeds.ttft.mean, DoubleEq(1.5));
  EXPECT_EQ(summary.compared->drift.count, 0);
}

TEST(Summary, TurnsThatFailedAreToldAndInNoOtherFigure) {
  TurnRecord failed{.prompt_id = "p", .turn = 2, .finish_reason = "error", .error = "too long"};
  std::vector<TurnRecord> turns = two_turns();
  const nlohmann::ordered_json whole = to_json(summarize(turns));
  EXPECT_EQ(whole.at("failed"), 0);
  EXPECT_TRUE(whole.at("first_failure").is_null());
  turns.insert(turns.begin() + 1, failed);
  failed.turn = 3;
  turns.push_back(failed);
  nlohmann::ordered_json some = to_json(summarize(turns));
  EXPECT_EQ(some.at("failed"), 2);
  EXPECT_EQ(some.at("first_failure"), "prompt \"p\", turn 2: too long");
  EXPECT_THAT(
      summary_text(summarize(turns)),
      StartsWith("2 of 2 turns identical\nfailed turns          2; the first: prompt \"p\", turn 2: too long\n"));
  some["failed"] = 0;
  some["first_failure"] = nullptr;
  EXPECT_EQ(some, whole);
}

TEST(Summary, RoundsAreFlattenedAndTheirIntervalIsDrawnFromTurns) {
  const Summary summary = summarize(two_turns());
  EXPECT_EQ(summary.accept_length.count, 9);
  EXPECT_THAT(summary.accept_length.mean, DoubleEq(3.0 / 9));
  EXPECT_EQ(summary.accept_length.p50, 0);
  EXPECT_EQ(summary.accept_length.interval, (Interval{0, 1}));
  EXPECT_EQ(summary.tau.interval, (Interval{1, 2}));
  EXPECT_EQ(summary.accept_pos[0].interval, (Interval{0, 2.0 / 3}));
}

TEST(Summary, ABaselineThatWasTimedAgainTellsItsDrift) {
  std::vector<TurnRecord> turns = two_turns();
  turns[0].baseline->retimed = TurnSeconds{1, 4};
  const Summary summary = summarize(turns);
  EXPECT_EQ(summary.compared->drift.count, 1);
  EXPECT_THAT(summary.compared->drift.mean, DoubleEq(1.25));
  EXPECT_THAT(summary_text(summary), HasSubstr("baseline drift"));
  EXPECT_EQ(to_json(summary).at("baseline").at("drift").at("count"), 1);
}

}  // namespace
}  // namespace espalier
