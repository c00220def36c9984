#include "experiments/round_figures.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace espalier {
namespace {

TurnRecord turn(std::size_t tokens, std::vector<std::int64_t> accepted, double seconds, double plain) {
  TurnRecord record;
  record.tokens.resize(tokens);
  record.accept_lengths = std::move(accepted);
  record.seconds = {.prefill = 100, .decode = seconds};
  record.baseline = BaselineTurn{.seconds = {.prefill = 100, .decode = plain}};
  return record;
}

TEST(StepEconomy, SpeedUpIsTokensPerStepOverTheCostOfAStep) {
  // 8 tokens behind the first ones in 4 steps of half a second; a plain step takes a quarter.
  const StepEconomy economy =
      step_economy(std::vector{turn(5, {1, 1}, 1.0, 1.0), turn(5, {3, 0}, 1.0, 1.0), turn(1, {}, 0, 0)});
  EXPECT_DOUBLE_EQ(economy.ac.value, 2);
  EXPECT_DOUBLE_EQ(economy.overhead.value, 2);
  EXPECT_DOUBLE_EQ(economy.speed_up.value, 1);
  EXPECT_DOUBLE_EQ(economy.speed_up.value, economy.ac.value / economy.overhead.value);
  EXPECT_LE(economy.ac.interval.low, 2);
  EXPECT_GE(economy.ac.interval.high, 2);
}

TEST(StepEconomy, WithoutABaselineThereIsNothingToCompare) {
  TurnRecord alone = turn(5, {1, 1}, 1, 1);
  alone.baseline.reset();
  EXPECT_EQ(step_economy(std::vector{alone}).speed_up.value, 0);
  EXPECT_EQ(step_economy({}).ac.value, 0);
}

TEST(StageTimes, AreThoseOfAllRoundsWithTheirTails) {
  TracedTurn traced;
  traced.prefill_seconds = 0.002;
  for (int i = 0; i < 4; ++i) {
    TracedRound round;
    round.times = {.draft = 0.001, .prepare = 0, .verify = i == 3 ? 0.005 : 0.001, .accept = 0, .commit = 0};
    traced.rounds.push_back(round);
  }
  StageTimes stages;
  stages.add(traced);
  EXPECT_EQ(stages.rounds(), 4);
  const auto list = stages.to_json();
  ASSERT_EQ(list.size(), 6u);
  EXPECT_EQ(list[0]["stage"], "prefill");
  EXPECT_EQ(list[0]["per"], "turn");
  EXPECT_DOUBLE_EQ(list[1]["milliseconds"]["mean"], 1);
  EXPECT_DOUBLE_EQ(list[1]["p99_over_mean"], 1);
  EXPECT_DOUBLE_EQ(list[3]["milliseconds"]["mean"], 2);
  EXPECT_NEAR(list[3]["p99_over_mean"].get<double>(), 4.88 / 2, 1e-9);
  EXPECT_NEAR(list[3]["share"].get<double>(), 8.0 / 14, 1e-12);
  EXPECT_EQ(list[2]["p99_over_mean"], 0);
}

}  // namespace
}  // namespace espalier
