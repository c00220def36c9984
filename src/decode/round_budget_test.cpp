#include "decode/round_budget.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "decode/answer.h"
#include "decode/testing/linear_times.h"

namespace espalier {
namespace {

constexpr std::int32_t kRoot = 1;

// For two 2 of 1.78, and 2.86 of 2.56 with a usual guess; for who is alone 1 of 1, and 1.8 of 1.78 with a good one.
constexpr double kDear = 0.78;
constexpr double kModerate = 0.4;

StepTimes never_measured() {
  ADD_FAILURE() << "measured, though there are step times";
  return linear_times(0);
}

// A chain of guesses, each taken with probability q.
Candidates chain_of(int guesses, double q) {
  Candidates candidates(kRoot);
  for (int i = 1; i <= guesses; ++i) candidates.add(i - 1, {.token = 10 + i, .score = i * std::log(q), .sources = 1});
  return candidates;
}

// Two answers in the middle of a round, without a model. Every reading of the clock is a second later.
class RoundBudgetTest : public ::testing::Test {
 protected:
  RoundBudgetTest() {
    for (Answer* answer : answers_) {
      answer->path = {kRoot};
      answer->room = 64;
      answer->tree.emplace(kRoot);
    }
  }

  // Answers that decode, beside whom nobody reads a prompt.
  void begin(RoundBudget& budget, std::int64_t prompt_rows = 0) { begin(budget, answers_, prompt_rows); }
  void begin(RoundBudget& budget, const std::vector<Answer*>& answers, std::int64_t prompt_rows = 0) {
    budget.begin_round(answers, {.answers = static_cast<int>(answers.size())}, prompt_rows);
  }
  RoundBudget chosen(double slope, SourceSet networks = 0) {
    return {{.times = linear_times(slope)}, {.rows = 64, .networks = networks}, clock_, never_measured};
  }
  // Rounds that bring nothing, until who need not hear hears no more.
  void stop_hearing(RoundBudget& budget, const DraftCompany& company = {.answers = 2}) {
    for (int i = 0; i <= 32; ++i) budget.begin_round(answers_, company, 0);
  }
  // The newest was the scout and will not draft any more: the other takes its place.
  RoundBudget with_late_scout(SourceSet networks = 0) {
    RoundBudget budget = chosen(kDear, networks);
    a_.length = b_.length = 50;
    stop_hearing(budget);
    begin(budget);
    EXPECT_FALSE(a_.hearing);
    b_.request.draft.drafts = false;
    return budget;
  }
  // a_ is asked as soon as it has been told of another token.
  void expect_asked_with_the_next_token(RoundBudget& budget) {
    begin(budget);
    EXPECT_FALSE(a_.asks) << "it has not been told of the last token";
    ++a_.length;
    begin(budget);
    EXPECT_TRUE(a_.asks);
  }
  // The drafters of both say this.
  void draft(int guesses, double q, double seconds) {
    for (Answer* answer : answers_) {
      answer->drafted = true;
      answer->candidates = chain_of(guesses, q);
      answer->draft_seconds = seconds;
    }
  }
  // A round that brought a token for nothing: from now on the drafters are trusted with any tree.
  void let_win(RoundBudget& budget) {
    begin(budget);
    draft(0, 0.5, 0);
    accept(1);
    budget.end_round(answers_);
  }
  // A round of so many trees on the device was seen, whose levels take long.
  void know(RoundBudget& budget, std::int64_t trees, const ResidentChoice& most) {
    draft(1, 0.9, 0);
    a_.levels = most.depth;
    budget.observe_resident(trees, most, 100);
    budget.judge_resident(a_, trees, most);
  }
  // A round whose drafters, where they are asked, take half as long as a plain step; each answer gets so many guesses.
  void round(RoundBudget& budget, std::int64_t accepted_a, std::int64_t accepted_b) {
    begin(budget);
    draft(4, 0.5, 0.5);
    for (Answer* answer : answers_) answer->drafted = answer->asks;
    a_.result.accept_lengths.push_back(accepted_a);
    b_.result.accept_lengths.push_back(accepted_b);
    budget.end_round(answers_);
  }
  void accept(std::int64_t guesses) {
    for (Answer* answer : answers_) answer->result.accept_lengths.push_back(guesses);
  }

  double now_ = 0;
  SecondsClock clock_ = [this] { return now_ += 1; };
  Answer a_{0, {}, clock_}, b_{1, {}, clock_};
  std::vector<Answer*> answers_ = {&a_, &b_};
};

TEST_F(RoundBudgetTest, WhereNothingIsChosenDraftersAreAskedAndTreesStayAsTheyAre) {
  RoundBudget fixed;
  EXPECT_FALSE(fixed.chooses());
  EXPECT_EQ(fixed.budget(), nullptr);
  a_.tree->append(0, {.token = 7, .score = -9});
  const TokenTree tree = *a_.tree;
  const double before = now_;
  for (int round = 0; round < 100; ++round) {
    begin(fixed, 5);
    EXPECT_TRUE(a_.asks && b_.asks) << "however little it brings";
    fixed.cut(answers_, 0.5);
    fixed.observe_step(3, 10, 100.0);
    fixed.learn(a_, std::vector<Visit>{{.node = 0, .token = 9}});
    accept(0);
    fixed.end_round(answers_);
  }
  EXPECT_EQ(*a_.tree, tree);
  EXPECT_FALSE(fixed.told(a_, 3).has_value());
  EXPECT_TRUE(fixed.step_seconds(100).empty());
  EXPECT_EQ(now_, before) << "the clock was read";
}

TEST_F(RoundBudgetTest, OfWhatAllAnswersDraftedTheBestBecomesTheirTrees) {
  RoundBudget budget = chosen(0.15);
  let_win(budget);
  begin(budget);
  ASSERT_TRUE(a_.asks && b_.asks);
  draft(8, 0.9, 0);
  b_.candidates = chain_of(8, 0.1);
  budget.cut(answers_, 0);
  EXPECT_GT(a_.tree->size(), 4);
  EXPECT_EQ(b_.tree->size(), 1) << "its rows are worth more elsewhere";
}

TEST_F(RoundBudgetTest, ATreeHasNoMoreRowsThanItsAnswerHasRoomFor) {
  RoundBudget budget = chosen(0);
  a_.room = 3;
  b_.room = 1;
  begin(budget);
  draft(8, 0.9, 0);
  budget.cut(answers_, 0);
  EXPECT_EQ(a_.tree->size(), 3);
  EXPECT_EQ(b_.tree->size(), 1);
}

TEST_F(RoundBudgetTest, WhatWasSpentOnDraftingIsAReasonToVerifyMoreOfIt) {
  RoundBudget budget = chosen(0.3);
  let_win(budget);
  const double before = now_;
  const auto rows = [&](double draft_seconds) {
    begin(budget);
    draft(8, 0.8, 0);
    budget.cut(answers_, draft_seconds);
    return a_.tree->size() + b_.tree->size();
  };
  EXPECT_LT(rows(0), rows(2));
  EXPECT_EQ(now_, before) << "the clock was read";
}

TEST_F(RoundBudgetTest, TreesShareTheStepWithThePromptRowsInIt) {
  RoundBudget budget = chosen(0);
  begin(budget, 60);
  draft(8, 0.9, 0);
  budget.cut(answers_, 0);
  EXPECT_EQ(a_.tree->size() + b_.tree->size(), 4);
  begin(budget);
  budget.cut(answers_, 0);
  EXPECT_EQ(a_.tree->size() + b_.tree->size(), 18);
}

TEST_F(RoundBudgetTest, ListenersAreToldTheTimesOfTheRoundAndTheRowsOfTheStep) {
  RoundBudget budget({.times = linear_times(0.5)}, {.rows = 64, .tree_rows = 24}, clock_, never_measured);
  begin(budget);
  draft(4, 0.5, 0);
  b_.drafted = false;
  const std::optional<BudgetRound> told = budget.told(a_, 9);
  ASSERT_TRUE(told.has_value());
  EXPECT_TRUE(told->drafted);
  EXPECT_FALSE(budget.told(b_, 9)->drafted);
  EXPECT_EQ(told->step_rows, 9);
  ASSERT_EQ(told->step_seconds.size(), 24u) << "of as many rows as trees have";
  EXPECT_DOUBLE_EQ(told->step_seconds[2], 2.0);
  const std::vector<double> all = budget.step_seconds(100);
  ASSERT_EQ(all.size(), 64u) << "and whoever plans a step knows all";
  EXPECT_DOUBLE_EQ(all[2], 2.0);
}

TEST_F(RoundBudgetTest, DraftersThatBringNothingAreSoonNotAsked) {
  RoundBudget budget = chosen(0.1);
  int asked = 0;
  for (int i = 0; i < 100; ++i) {
    round(budget, 0, 0);
    asked += a_.asks ? 1 : 0;
  }
  EXPECT_LT(asked, 10);
}

TEST_F(RoundBudgetTest, DraftersThatBringTokensAreAlwaysAsked) {
  RoundBudget budget = chosen(0.1);
  for (int i = 0; i < 100; ++i) {
    round(budget, 3, 3);
    ASSERT_TRUE(a_.asks && b_.asks) << i;
  }
}

TEST_F(RoundBudgetTest, WhetherToAskIsDecidedForAllAnswersTogether) {
  RoundBudget budget = chosen(0.1);
  for (int i = 0; i < 100; ++i) {
    round(budget, 0, 3);
    ASSERT_TRUE(a_.asks && b_.asks) << i;
  }
}

TEST_F(RoundBudgetTest, APauseThatIsLongerThanAnswersAreEndsAllTheSame) {
  RoundBudget budget = chosen(0.1);
  for (int i = 0; i < 100; ++i) round(budget, 0, 0);
  int asked = 0, in_first_round = 0;
  for (RequestId id = 2; id < 22; ++id) {
    Answer fresh{id, {}, clock_}, other{id + 100, {}, clock_};
    for (int i = 0; i < 5; ++i) {
      begin(budget, {&fresh, &other});
      asked += fresh.asks ? 1 : 0;
      in_first_round += fresh.asks && i == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(asked, 0);
  EXPECT_LT(in_first_round, 20) << "it goes on in answers to come";
}

TEST_F(RoundBudgetTest, AnAnswerWithoutDraftsIsNeverAsked) {
  RoundBudget budget = chosen(0.1);
  b_.request.draft.drafts = false;
  begin(budget);
  EXPECT_TRUE(a_.asks && a_.hearing);
  EXPECT_FALSE(b_.asks || b_.hearing);
}

TEST_F(RoundBudgetTest, WhereGuessesDoNotPayOneAnswerFindsOutForAllAndOthersHearNothing) {
  RoundBudget budget = chosen(kDear);
  stop_hearing(budget);
  int asked = 0;
  for (int i = 0; i < 300; ++i) {
    round(budget, 0, 0);
    ASSERT_FALSE(a_.asks || a_.hearing);
    ASSERT_TRUE(b_.hearing) << "the newest has most to come";
    asked += b_.asks ? 1 : 0;
  }
  EXPECT_GT(asked, 2);
  EXPECT_LT(asked, 12);
  begin(budget, std::vector{&a_});
  EXPECT_TRUE(a_.hearing);
  ++a_.length;
  begin(budget, std::vector{&a_});
  EXPECT_TRUE(a_.asks) << "alone";
}

TEST_F(RoundBudgetTest, AScoutThatBeginsLateHasToHearForAWhile) {
  RoundBudget budget = with_late_scout(1);
  for (int i = 0; i < Answer::kEnoughHeard; ++i) {
    begin(budget);
    ASSERT_TRUE(a_.hearing);
    ASSERT_FALSE(a_.asks) << i;
    ++a_.length;
  }
  begin(budget);
  EXPECT_TRUE(a_.asks);
}

TEST_F(RoundBudgetTest, AScoutThatRunsNoNetworkKnowsTheTextAtOnce) {
  RoundBudget budget = with_late_scout();
  expect_asked_with_the_next_token(budget);
}

TEST_F(RoundBudgetTest, WhoHearsGoesOnToInAFewRoundsOfLargerCompany) {
  RoundBudget budget = chosen(kDear);
  begin(budget, std::vector{&a_});
  for (int i = 0; i < 20; ++i) begin(budget);
  EXPECT_TRUE(a_.hearing && b_.hearing);
  begin(budget, std::vector{&a_});
  for (int i = 0; i < 20; ++i) begin(budget);
  EXPECT_TRUE(a_.hearing && b_.hearing) << "they were not in a row";
  stop_hearing(budget);
  begin(budget);
  EXPECT_FALSE(a_.hearing);
}

TEST_F(RoundBudgetTest, WhoIsToldWhatItMaySaySpeaksForNobodyElse) {
  const auto gain = [&](RoundBudget& budget) { return budget.budget()->worth().mean(); };
  RoundBudget budget = chosen(0.1);
  draft(1, 1, 0);
  const double before = gain(budget);
  a_.prediction = {1, 2, 3};
  budget.learn(a_, std::vector<Visit>{{.node = 0, .token = 11}});
  EXPECT_EQ(gain(budget), before);
  budget.learn(b_, std::vector<Visit>{{.node = 0, .token = 11}});
  EXPECT_NE(gain(budget), before);
}

TEST_F(RoundBudgetTest, WhoHasHeardNothingYetIsNotAsked) {
  RoundBudget budget = chosen(0.1);
  a_.length = 50;
  a_.hear(false);
  expect_asked_with_the_next_token(budget);
  EXPECT_TRUE(a_.hearing);
}

TEST_F(RoundBudgetTest, WhatAScoutFindsCountsForAll) {
  RoundBudget budget = chosen(kModerate);
  draft(1, 1e-3, 0);
  for (int i = 0; i < 200; ++i) budget.learn(a_, std::vector<Visit>{{.node = 0, .token = 99}});
  for (int i = 0; i < 20; ++i) begin(budget);
  EXPECT_FALSE(a_.asks);
  ASSERT_TRUE(b_.hearing) << "the scout";
  draft(1, 0.9, 0);
  int guesses = 0;
  for (; !a_.asks && guesses < 100; ++guesses) {
    budget.learn(b_, std::vector<Visit>{{.node = 0, .token = 11}});
    for (int i = 0; i < 10; ++i) begin(budget);
  }
  EXPECT_LT(guesses, 40) << "a scout speaks for others too";
}

TEST_F(RoundBudgetTest, WhoseGuessesAreLikelyDraftsInAnyCompany) {
  RoundBudget budget = chosen(kDear);
  a_.prediction = {1, 2, 3};
  for (int i = 0; i < 10; ++i) {
    round(budget, 3, 0);
    ASSERT_TRUE(a_.asks && a_.hearing);
  }
  for (int i = 0; i < 50; ++i) round(budget, 0, 0);
  EXPECT_FALSE(a_.asks) << "if they are taken";
}

TEST_F(RoundBudgetTest, WhoReadsItsPromptIsCompany) {
  RoundBudget budget = chosen(kDear);
  budget.begin_round(answers_, {.answers = 40}, 5);
  EXPECT_FALSE(a_.asks) << "soon there will be 40";
  stop_hearing(budget, {.answers = 40});
  EXPECT_FALSE(a_.hearing);
  budget.welcome(b_, {.answers = 40});
  EXPECT_FALSE(b_.hearing) << "its prompt";
  budget.welcome(b_, {.answers = 1});
  EXPECT_TRUE(b_.hearing);
}

TEST_F(RoundBudgetTest, RoundsOfTheHostAreDecidedApartFromThoseOfTheDevice) {
  RoundBudget budget({.times = {{.rows = {1, 64}, .contexts = {64}, .seconds = {1, 1.2}}}}, {.rows = 64, .networks = 1},
                     clock_, never_measured);
  // Passes that the host drives take as long as the step.
  LevelBudget levels = budget.levels(1);
  begin(budget);
  levels.begin(0);
  const std::vector<int> root = {0};
  const Candidates candidates(kRoot);
  const Frontier frontier{0, &candidates, root};
  ASSERT_TRUE(levels.buys(std::span(&frontier, 1)));
  levels.bought(std::span(&frontier, 1));
  const DraftCompany on_device{.answers = 4, .way = DraftWay::resident, .round = DraftWay::resident};
  const DraftCompany by_host{.answers = 4, .way = DraftWay::host, .round = DraftWay::host};
  const DraftCompany with_prompt{.answers = 4, .way = DraftWay::resident, .round = DraftWay::host};
  budget.begin_round(answers_, on_device, 0);
  EXPECT_TRUE(a_.asks);
  budget.begin_round(answers_, with_prompt, 5);
  EXPECT_FALSE(a_.asks);
  EXPECT_TRUE(a_.hearing) << "it will go on";
  stop_hearing(budget, by_host);
  EXPECT_FALSE(a_.asks || a_.hearing);
}

TEST_F(RoundBudgetTest, AnAnswerThatFailedOrWasNotDraftedSettlesNothing) {
  RoundBudget budget = chosen(0.1);
  begin(budget);
  draft(4, 0.5, 10);
  a_.failure = std::make_exception_ptr(std::runtime_error("no round to count"));
  b_.drafted = false;
  b_.result.accept_lengths.push_back(0);
  budget.end_round(answers_);
  begin(budget);
  EXPECT_TRUE(a_.asks && b_.asks) << "nothing was lost";
}

TEST_F(RoundBudgetTest, LearnsOnlyOfAnswersWhoseDraftersWereAsked) {
  RoundBudget budget = chosen(0.1);
  draft(1, 0.9, 0);
  const auto belief = [&] { return budget.budget()->calibration().probability(1, 0.9); };
  const double before = belief();
  const std::vector<Visit> rejected = {{.node = 0, .token = 99}};
  a_.drafted = false;
  for (int i = 0; i < 20; ++i) budget.learn(a_, rejected);
  EXPECT_EQ(belief(), before);
  for (int i = 0; i < 20; ++i) budget.learn(b_, rejected);
  EXPECT_LT(belief(), before);
}

TEST_F(RoundBudgetTest, RoundsOfFewTreesOnTheDeviceAreAllJudgedOfManyTreesOnlySome) {
  RoundBudget budget = chosen(0.1);
  begin(budget);
  const ResidentChoice most{.rows = 16, .depth = 6};
  budget.choose_resident(10, most);
  EXPECT_TRUE(budget.judges(64)) << "nothing is known yet";
  know(budget, 10, most);
  int of_few = 0, of_ten = 0, of_many = 0, of_all_levels = 0;
  for (int round = 0; round < 160; ++round) {
    of_all_levels += budget.choose_resident(10, most).depth == most.depth ? 1 : 0;
    of_few += budget.judges(3) ? 1 : 0;
    of_ten += budget.judges(10) ? 1 : 0;
    of_many += budget.judges(64) ? 1 : 0;
  }
  EXPECT_EQ(of_few, 160);
  EXPECT_GE(of_ten, 64);
  EXPECT_LE(of_ten, 64 + of_all_levels);
  EXPECT_GE(of_many, 10);
  EXPECT_LE(of_many, 10 + of_all_levels);
  EXPECT_EQ(of_all_levels, 2);
  EXPECT_FALSE(RoundBudget().judges(1)) << "where nothing is chosen nothing is learned";
}

TEST_F(RoundBudgetTest, ARoundThatHasAllLevelsToLearnOfThemIsJudgedHoweverManyTreesItHas) {
  for (int shift = 0; shift < 70; ++shift) {
    RoundBudget budget = chosen(0.1);
    begin(budget);
    const ResidentChoice most{.rows = 16, .depth = 6};
    for (int round = 0; round <= shift; ++round) budget.choose_resident(64, most);
    know(budget, 64, most);
    int probes = 0;
    for (int round = 0; round < 130; ++round) {
      if (budget.choose_resident(64, most).depth < most.depth) continue;
      ++probes;
      ASSERT_TRUE(budget.judges(64)) << shift;
    }
    EXPECT_EQ(probes, 2);
  }
}

TEST_F(RoundBudgetTest, TreesThatPadARoundOnTheDeviceAreInItsBalance) {
  const auto wins = [&](std::int64_t trees) {
    RoundBudget budget = chosen(0.1);
    begin(budget);
    budget.choose_resident(trees, {.rows = 4, .depth = 3});
    budget.observe_resident(trees, {.rows = 4, .depth = 3}, {});
    draft(3, 0.9, 0);
    for (Answer* answer : answers_) {
      answer->resident = true;
      answer->tree = TokenTree(kRoot);
      for (int i = 0; i < 3; ++i) answer->tree->append(i, {i, -1, 1});
    }
    accept(1);
    budget.end_round(answers_);
    begin(budget);
    return a_.asks;
  };
  EXPECT_TRUE(wins(2)) << "4 tokens of 1.7 s, where 2 take 1.1";
  EXPECT_FALSE(wins(8)) << "of 4.1 s";
}

TEST_F(RoundBudgetTest, ATreeThatWasNotJudgedTeachesNothing) {
  RoundBudget budget = chosen(0.1);
  draft(1, 0.9, 0);
  a_.candidates.reset();
  const auto belief = [&] { return budget.budget()->calibration().probability(1, 0.9); };
  const double before = belief();
  const std::vector<Visit> rejected = {{.node = 0, .token = 99}};
  for (int i = 0; i < 20; ++i) budget.learn(a_, rejected);
  EXPECT_EQ(belief(), before);
}

TEST_F(RoundBudgetTest, ATableThatIsMissingOrDamagedIsMeasuredAndTold) {
  for (const std::optional<StepTimes>& known :
       {std::optional<StepTimes>(), std::optional(StepTimes{.rows = {1}, .contexts = {0}, .seconds = {-1}})}) {
    std::vector<StepTimes> told;
    const ChosenBudget wanted{.times = known, .on_measured = [&](const StepTimes& times) { told.push_back(times); }};
    const RoundBudget budget(wanted, {.rows = 64}, clock_, [] { return linear_times(0.3); });
    EXPECT_EQ(told, std::vector{linear_times(0.3)});
    EXPECT_EQ(budget.budget()->costs().measured(), linear_times(0.3));
  }
}

}  // namespace
}  // namespace espalier
