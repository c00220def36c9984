#include "decode/guess_worth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "decode/budget.h"
#include "decode/testing/linear_times.h"

namespace espalier {
namespace {

void learn(GuessWorth& worth, double chance, int rounds) {
  for (int i = 0; i < rounds; ++i) worth.learn(chance);
}

TEST(GuessWorth, BeforeAnythingWasSeenIsThatOfAUsualDrafter) {
  EXPECT_NEAR(GuessWorth().mean(), 0.66, 0.01);
  const std::vector<double> expected = GuessWorth().expected(4);
  EXPECT_TRUE(std::ranges::is_sorted(expected, std::greater<>()));
  EXPECT_GT(expected.front() - expected.back(), 0.4) << "some guesses are surer than others";
}

TEST(GuessWorth, IsThatOfTheLastRoundsAlone) {
  GuessWorth worth;
  learn(worth, 0.9, 500);
  EXPECT_NEAR(worth.mean(), 0.9, 1e-9) << "what was believed at first is forgotten";
  learn(worth, 0.1, 64);
  EXPECT_NEAR(worth.mean(), 0.5, 1e-9);
  learn(worth, 0.1, 64);
  EXPECT_NEAR(worth.mean(), 0.1, 1e-9);
}

TEST(GuessWorth, OfManyAnswersIsSpreadAsItWasOverTheRounds) {
  GuessWorth worth;
  learn(worth, 0.9, 32);
  learn(worth, 0.0, 96);
  EXPECT_EQ(worth.expected(4), (std::vector{0.9, 0.0, 0.0, 0.0}));
  EXPECT_EQ(worth.expected(1), std::vector{0.0}) << "as often as not";
}

TEST(GuessWorth, LearnsTimesOverFromThoseWhoSpeakForOthers) {
  GuessWorth once, often;
  for (int i = 0; i < 40; ++i) often.learn(0.2), often.learn(0.8);
  learn(once, 0.2, 40);
  for (int i = 0; i < 10; ++i) once.learn(0.8, 4);
  EXPECT_NEAR(once.mean(), often.mean(), 1e-9);
}

// The best of all levels, by trying them.
double best_gain(int roots, double chance, double slope, double level) {
  double best = 0;
  for (int levels = 1; levels <= 6; ++levels) {
    std::vector<double> accepted;
    for (int depth = 1; depth <= levels; ++depth) accepted.insert(accepted.end(), roots, std::pow(chance, depth));
    best = std::max(best, best_rows(accepted, line_times(slope, 64), levels * level, roots).rate);
  }
  return best * line_times(slope, 64)[static_cast<std::size_t>(roots) - 1] / roots;
}

TEST(DraftingGain, IsThatOfTheBestNumberOfLevelsAndRows) {
  for (int roots : {1, 2, 5, 16})
    for (double chance : {0.0, 0.3, 0.6, 0.9})
      for (double slope : {0.02, 0.1, 0.4})
        for (double level : {0.0, 0.05, 0.3}) {
          const std::vector<double> times = line_times(slope, 64);
          const DraftPrices prices{.step_seconds = times, .roots = roots, .first_level = level, .further_level = level};
          EXPECT_NEAR(drafting_gain(std::vector<double>(static_cast<std::size_t>(roots), chance), prices),
                      best_gain(roots, chance, slope, level), 1e-12);
        }
}

TEST(DraftingGain, IsBelowOneWhereALevelIsPaidForInVain) {
  const std::vector<double> times = line_times(0.1, 64);
  const DraftPrices prices{.step_seconds = times, .roots = 2, .first_level = 0.11, .further_level = 1};
  EXPECT_NEAR(drafting_gain(std::vector{0.0, 0.0}, prices), 1.1 / 1.21, 1e-12);
}

TEST(DraftingGain, FallsAsTheCompanyGrowsWhereRowsAreDear) {
  const std::vector<double> times = line_times(0.4, 64);
  double before = 10;
  for (int roots : {1, 2, 4, 8, 16}) {
    const DraftPrices prices{.step_seconds = times, .roots = roots, .first_level = 0.1, .further_level = 0.1};
    const double gain = drafting_gain(GuessWorth().expected(roots), prices);
    EXPECT_LT(gain, before) << roots;
    before = gain;
  }
  EXPECT_LT(before, 1);
}

}  // namespace
}  // namespace espalier
