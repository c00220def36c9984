#include "trace/turn_recorder.h"

#include <gmock/gmock.h>

#include <cmath>

#include "trace/testing/random_turn.h"

namespace espalier {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

constexpr std::int32_t kRoot = 5, kGuess = 6, kNext = 7;

// A round of two rows whose guess is accepted: behind a prompt of one token, with which the answer's first token came.
TracedTurn turn_with(const std::optional<BudgetRound>& budget) {
  TokenTree tree(kRoot);
  tree.append(0, {.token = kGuess, .score = std::log(0.75)});
  const Visit visits[] = {{0, kGuess}, {1, kNext}};
  TurnRecorder recorder;
  recorder.observe({.prefix = 1,
                    .tree = tree,
                    .visits = visits,
                    .finish = FinishReason::token_limit,
                    .times = {},
                    .budget = budget});
  GenerateResult result;
  result.tokens = {kRoot, kGuess, kNext};
  result.finish_reason = FinishReason::token_limit;
  const std::int32_t prompt[] = {4};
  return recorder.take({.prompt_id = "p", .prompt = prompt}, {.max_tokens = 3}, result);
}

TEST(TurnRecorder, TheTableTheChancesAndTheRowsOfAChoiceAreInTheTrace) {
  const double table[] = {0.0020000123, 0.0025, 0.0031, 0.0037};
  const TracedTurn turn = through_a_file(turn_with(BudgetRound{true, table, 2}));
  const TracedRound& round = turn.rounds.at(0);
  ASSERT_TRUE(round.budget);
  EXPECT_TRUE(round.budget->drafted);
  EXPECT_THAT(round.budget->step_seconds, ElementsAre(DoubleNear(0.0020, 1e-9), 0.0025, 0.0031, 0.0037));
  EXPECT_EQ(round.budget->step_rows, 2);
  EXPECT_DOUBLE_EQ(round.budget->seconds_of(2), 0.0025);
  EXPECT_DOUBLE_EQ(std::exp(round.tree[1].score), 0.75);
}

TEST(TurnRecorder, ARoundOfAFixedBudgetHasNone) {
  EXPECT_FALSE(through_a_file(turn_with(std::nullopt)).rounds.at(0).budget);
}

TEST(TracedBudget, AStepLargerThanTheTableCountsAsTheLargestInIt) {
  const TracedBudget budget{.drafted = true, .step_rows = 90, .step_seconds = {0.1, 0.2}};
  EXPECT_EQ(budget.seconds_of(90), 0.2);
  EXPECT_EQ(budget.seconds_of(1), 0.1);
}

}  // namespace
}  // namespace espalier
