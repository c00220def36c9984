#include "trace/trace_diff.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trace/testing/random_turn.h"

namespace espalier {
namespace {

constexpr std::uint64_t kSeed = 4;

TEST(TraceDiff, ATurnDoesNotDifferFromItself) {
  EXPECT_EQ(compare_turns(random_turn(kSeed), random_turn(kSeed)).kind, DifferenceKind::none);
}

TEST(TraceDiff, OtherTimesAreTheLeast) {
  TracedTurn other = random_turn(kSeed);
  other.rounds[1].times.verify += 1;
  const TraceDifference found = compare_turns(random_turn(kSeed), other);
  EXPECT_EQ(found.kind, DifferenceKind::times);
  EXPECT_EQ(found.round, 1);
}

TEST(TraceDiff, AnotherTreeIsWorseThanOtherTimes) {
  TracedTurn other = random_turn(kSeed);
  other.rounds[0].times.verify += 1;
  TokenTree& tree = other.rounds[1].tree;
  tree.append(tree.size() - 1, {.token = 9000, .score = -100});
  const TraceDifference found = compare_turns(random_turn(kSeed), other);
  EXPECT_EQ(found.kind, DifferenceKind::trees);
  EXPECT_EQ(found.round, 1);
}

TEST(TraceDiff, AnotherChoiceOfRowsIsWorseThanAnotherEstimate) {
  TracedTurn turn = random_turn(kSeed);
  turn.rounds[0].budget = TracedBudget{.drafted = true, .step_rows = 3, .step_seconds = {0.25, 0.5}};
  TracedTurn other = turn;
  other.rounds[0].budget->step_seconds = {0.25, 1};
  EXPECT_EQ(compare_turns(turn, other).kind, DifferenceKind::times);
  other.rounds[0].budget->drafted = false;
  EXPECT_EQ(compare_turns(turn, other).kind, DifferenceKind::trees);
  other.rounds[0].budget.reset();
  EXPECT_EQ(compare_turns(turn, other).kind, DifferenceKind::trees);
}

TEST(TraceDiff, AnotherSetIsAnotherPromptUnlessOneTraceDoesNotSay) {
  TracedTurn turn = random_turn(kSeed), other = turn;
  turn.turn = other.turn = 2;
  turn.set = "mt_bench";
  EXPECT_EQ(compare_turns(turn, other).kind, DifferenceKind::none);
  other.set = "humaneval";
  const TraceDifference found = compare_turns(turn, other);
  EXPECT_EQ(found.kind, DifferenceKind::tokens);
  EXPECT_EQ(found.what, "prompt \"4\" of \"mt_bench\", turn 2 and prompt \"4\" of \"humaneval\", turn 2");
}

TEST(TraceDiff, OtherTokensAreTheWorstAndTheirRoundIsNamed) {
  TracedTurn other = random_turn(kSeed);
  other.tokens.back() += 1;
  other.rounds.back().visits.back().token += 1;
  const TraceDifference found = compare_turns(random_turn(kSeed), other);
  EXPECT_EQ(found.kind, DifferenceKind::tokens);
  EXPECT_EQ(found.round, static_cast<std::int64_t>(other.rounds.size()) - 1);
}

TEST(TraceDiff, ATurnThatOneTraceLacksIsADifferenceInTokens) {
  const std::string one = trace_bytes(TraceHeader{}) + trace_bytes(random_turn(1));
  const std::string two = one + trace_bytes(random_turn(2));
  TraceReader left(std::as_bytes(std::span(one)), "a"), right(std::as_bytes(std::span(two)), "b");
  const TraceComparison found = compare_traces(left, right);
  EXPECT_EQ(found.difference.kind, DifferenceKind::tokens);
  EXPECT_EQ(found.difference.index, 2);
  EXPECT_EQ(to_json(found)["first"]["what"], "the first trace has no more turns");
}

}  // namespace
}  // namespace espalier
