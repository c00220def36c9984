#include "bench/load/load_figures.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

AnswerRecord answer_of(double sent, std::vector<HeardPiece> pieces, double ended) {
  AnswerRecord answer{
      .sent = sent, .ended = ended, .pieces = std::move(pieces), .tokens_known = true, .usage_known = true};
  for (const HeardPiece& piece : answer.pieces) answer.tokens += piece.tokens;
  return answer;
}

TEST(Percentiles, AreThoseOfTheSortedSamplesInterpolated) {
  std::vector<double> samples;
  for (int i = 100; i >= 0; --i) samples.push_back(i);
  const Percentiles each = percentiles_of(samples);
  EXPECT_EQ(each.count, 101);
  EXPECT_DOUBLE_EQ(each.p50, 50);
  EXPECT_DOUBLE_EQ(each.p95, 95);
  EXPECT_DOUBLE_EQ(each.p99, 99);
  EXPECT_DOUBLE_EQ(each.most, 100);
  EXPECT_EQ(percentiles_of({}).count, 0);
}

TEST(GapFigures, ATokenHasItsShareOfTheGapAndCountsOnce) {
  const std::vector<AnswerGap> gaps = {{0, 1, 1}, {1, 5, 4}, {5, 15, 1}};
  const GapFigures figures = gap_figures(gaps);
  EXPECT_EQ(figures.between_events.count, 3);
  EXPECT_DOUBLE_EQ(figures.between_events.p50, 4);
  EXPECT_EQ(figures.per_token.count, 6);  // 1, 1, 1, 1, 1, 10
  EXPECT_DOUBLE_EQ(figures.per_token.p50, 1);
  EXPECT_DOUBLE_EQ(figures.per_token.most, 10);
}

TEST(LoadFigures, RoundsHaveARateEachAndTheirTimesAreTakenTogether) {
  const LoadRun first{.seconds = 2, .answers = {answer_of(0, {{0.5, 1}, {1, 3}}, 1), answer_of(1, {{1.5, 4}}, 2)}};
  const LoadRun second{.seconds = 4, .answers = {answer_of(0, {{3, 4}}, 4)}};
  const LoadFigures figures = figures_of(std::vector{first, second}, 4);
  EXPECT_EQ(figures.tokens_per_second, (std::vector<double>{4, 1}));
  EXPECT_EQ(figures.first_token.count, 3);
  EXPECT_DOUBLE_EQ(figures.first_token.p50, 0.5);
  EXPECT_EQ(figures.requests, 3);
  EXPECT_EQ(figures.failed, 0);
  EXPECT_EQ(figures.short_answers, 0);
  EXPECT_FALSE(figures.interrupts);
}

TEST(LoadFigures, WhatFailedIsCountedAndNothingElse) {
  AnswerRecord failed = answer_of(0, {{1, 9}}, 2);
  failed.problem = "the stream ended before the answer";
  const LoadRun round{.seconds = 2, .answers = {failed, answer_of(0, {{1, 2}}, 2), failed}};
  const LoadFigures figures = figures_of(std::vector{round}, 4);
  EXPECT_EQ(figures.requests, 3);
  EXPECT_EQ(figures.failed, 2);
  EXPECT_EQ(figures.problem, failed.problem);
  EXPECT_EQ(figures.tokens_per_second, std::vector<double>{1});
  EXPECT_EQ(figures.short_answers, 1);
  EXPECT_TRUE(figures_of(std::vector{LoadRun{.seconds = 1, .answers = {failed}}}, 4).tokens_per_second.empty());
}

TEST(LoadFigures, GapsThatTouchADisturbingPromptAreSetApart) {
  const AnswerRecord user = answer_of(0, {{1, 1}, {2, 1}, {4, 1}, {7, 1}, {8, 1}, {9, 1}}, 9);
  AnswerRecord prompt = answer_of(3, {{7.5, 1}}, 7.6);
  prompt.prompt_tokens = 4000;
  const LoadFigures figures =
      figures_of(std::vector{LoadRun{.seconds = 9, .answers = {user}, .interrupts = {prompt}}}, 6);
  ASSERT_TRUE(figures.interrupts);
  EXPECT_EQ(figures.interrupts->prompts, 1);
  EXPECT_EQ(figures.interrupts->prompt_tokens, 4000);
  EXPECT_DOUBLE_EQ(figures.interrupts->first_token.p50, 4.5);
  EXPECT_EQ(figures.interrupts->disturbed.between_events.count, 3);  // 2 to 4, 4 to 7, 7 to 8
  EXPECT_DOUBLE_EQ(figures.interrupts->disturbed.between_events.most, 3);
  EXPECT_EQ(figures.interrupts->calm.between_events.count, 2);
}

}  // namespace
}  // namespace espalier
