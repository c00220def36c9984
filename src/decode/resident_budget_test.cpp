#include "decode/resident_budget.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace espalier {
namespace {

constexpr ResidentChoice kMost{.rows = 32, .depth = 6};

// A chain of `depth` guesses, each accepted with this chance if the one before is.
Candidates guesses_in_a_row(int depth, double chance) {
  Candidates candidates(7);
  int parent = 0;
  for (int level = 1; level <= depth; ++level)
    parent = candidates.add(parent, {.token = level, .score = level * std::log(chance), .sources = 1});
  return candidates;
}

class ResidentBudgetTest : public ::testing::Test {
 protected:
  void learn(double chance, int depth = kMost.depth) {
    const Candidates candidates = guesses_in_a_row(depth, chance);
    AcceptanceEstimate chances;
    chances.extend(candidates, {});
    budget_.learn(candidates, chances, depth);
  }
  // Rows cost next to nothing up to 8, then as much as one again.
  static std::vector<double> staircase() {
    std::vector<double> seconds(64);
    for (std::size_t n = 0; n < seconds.size(); ++n) seconds[n] = 1 + static_cast<double>(n / 8);
    return seconds;
  }
  ResidentChoice choose(std::int64_t trees = 1) { return budget_.choose(staircase(), trees); }

  ResidentBudget budget_{kMost};
};

TEST_F(ResidentBudgetTest, BeforeAnythingIsKnownARoundHasAllLevelsAndAFewRows) {
  EXPECT_EQ(choose(), (ResidentChoice{16, 6}));
  budget_.observe(1, 6, 0.6);
  EXPECT_EQ(choose(), (ResidentChoice{16, 6}));
  EXPECT_EQ(ResidentBudget({.rows = 5, .depth = 3}).choose(staircase(), 1), (ResidentChoice{5, 3}));
}

TEST_F(ResidentBudgetTest, LevelsThatCostMoreThanTheyBringAreLeftOut) {
  budget_.observe(1, 6, 6 * 0.01);
  learn(0.9);
  EXPECT_EQ(choose(), (ResidentChoice{8, 6})) << "cheap levels, and guesses that are right";
  ResidentBudget dear(kMost);
  std::swap(budget_, dear);
  budget_.observe(1, 6, 6 * 0.9);
  learn(0.3);
  EXPECT_EQ(choose(), (ResidentChoice{4, 1}));
}

TEST_F(ResidentBudgetTest, RowsOfAllTreesShareAStep) {
  budget_.observe(1, 6, 6 * 0.01);
  learn(0.9);
  budget_.observe(2, 6, 6 * 0.01);
  EXPECT_EQ(choose(1).rows, 8);
  EXPECT_EQ(choose(2).rows, 4);
}

TEST_F(ResidentBudgetTest, AnotherShapeIsTakenOnlyWhereItIsClearlyBetter) {
  budget_.observe(1, 6, 6 * 0.01);
  learn(0.9);
  const ResidentChoice first = choose();
  learn(0.89);
  EXPECT_EQ(choose(), first);
}

TEST_F(ResidentBudgetTest, WhatTheHostDoesForTreesBeyondSingleRowsIsPaidForOnceBothWereSeen) {
  budget_.observe(1, 6, 6 * 0.01);
  learn(0.9);
  const auto rate = [&] { return budget_.expected_rate(staircase(), 1, 1, 0.9).value(); };
  const double before = rate();
  budget_.observe_host(1, true, 1.5);
  EXPECT_EQ(rate(), before);
  EXPECT_DOUBLE_EQ(budget_.draft_seconds(1, 6), 0.06);
  budget_.observe_host(1, false, 0.5);
  EXPECT_LT(rate(), before);
  EXPECT_DOUBLE_EQ(budget_.draft_seconds(1, 6), 1.06);
  EXPECT_EQ(budget_.draft_seconds(2, 6), 0) << "of two trees nothing is known";
  budget_.observe_host(1, false, 9);
  EXPECT_GE(budget_.draft_seconds(1, 6), 0.06) << "trees never cost less than rows";
}

TEST_F(ResidentBudgetTest, NowAndThenARoundHasAllLevels) {
  budget_.observe(1, 6, 6 * 0.9);
  learn(0.3);
  int probes = 0;
  for (int round = 0; round < 640; ++round) probes += choose().depth == kMost.depth ? 1 : 0;
  EXPECT_EQ(probes, 10);
}

}  // namespace
}  // namespace espalier
