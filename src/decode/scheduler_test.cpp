#include "decode/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "decode/testing/stair_seconds.h"

namespace espalier {
namespace {

SequenceState waiting_for(std::int64_t id, std::int64_t target, int key = 0) {
  return {.id = id, .target = target, .key = key};
}
SequenceState prompt_at(std::int64_t id, std::int64_t length, std::int64_t target) {
  return {.id = id, .phase = SequencePhase::prompt, .target = target, .length = length};
}
SequenceState decoding_at(std::int64_t id, std::int64_t length, int rows = 1) {
  return {.id = id, .phase = SequencePhase::decoding, .target = length, .rows_wanted = rows, .length = length};
}

const std::vector<double> kCheapRows = stair_seconds(0.01, 1, 512);

// --- admission

TEST(Scheduler, AdmitsInTheOrderOfArrivalUpToTheLimit) {
  const std::vector<SequenceState> sequences = {decoding_at(1, 10), waiting_for(2, 50), waiting_for(3, 5),
                                                waiting_for(4, 5)};
  const BatchPlan plan = plan_batch({sequences, {128, 100, 99, 0}, kCheapRows}, {.parallel = 3});
  EXPECT_EQ(plan.admitted, (std::vector<std::int64_t>{2, 3}));
}

TEST(Scheduler, KeysTakeTurns) {
  const std::vector<SequenceState> sequences = {waiting_for(1, 5, 0), waiting_for(2, 5, 0), waiting_for(3, 5, 0),
                                                waiting_for(4, 5, 1), waiting_for(5, 5, 2)};
  const BatchPlan plan = plan_batch({sequences, {128, 100, 100, 0}, kCheapRows, {}}, {.parallel = 4});
  EXPECT_EQ(plan.admitted, (std::vector<std::int64_t>{4, 5, 1, 2})) << "key 0 was the last";
  EXPECT_EQ(plan.last_keys.of(0), 0);
}

TEST(Scheduler, LowerPrioritiesAreAdmittedFirst) {
  std::vector<SequenceState> sequences = {waiting_for(1, 5), waiting_for(2, 5, 1), waiting_for(3, 5, 1),
                                          waiting_for(4, 5, 2), waiting_for(5, 5)};
  sequences[0].priority = kLastPriority;
  sequences[2].priority = kFirstPriority;
  sequences[3].priority = -1;
  const BatchPlan plan = plan_batch({sequences, {128, 100, 100, 0}, kCheapRows}, {.parallel = 4});
  EXPECT_EQ(plan.admitted, (std::vector<std::int64_t>{3, 4, 2, 5})) << "of the two in the middle key 1 has its turn";
  sequences[0].preempted = true;
  EXPECT_EQ(plan_batch({sequences, {128, 100, 100, 0}, kCheapRows}, {.parallel = 1}).admitted,
            (std::vector<std::int64_t>{1}))
      << "whoever was preempted stands before all";
}

// Somebody urgent whose key lies between two others would give every second turn to the first of them, if there were
// one turn for all priorities.
TEST(Scheduler, KeysTakeTurnsInEachPriorityByItself) {
  LastKeys last;
  std::vector<int> served;
  for (std::int64_t id = 0; id < 12; id += 3) {
    std::vector<SequenceState> sequences = {waiting_for(id, 5, 1), waiting_for(id + 1, 5, 2),
                                            waiting_for(id + 2, 5, 3)};
    sequences[2].priority = -1;
    const BatchPlan plan = plan_batch({sequences, {128, 100, 100, 0}, kCheapRows, last}, {.parallel = 2});
    ASSERT_EQ(plan.admitted.size(), 2u);
    EXPECT_EQ(plan.admitted[0], id + 2);
    served.push_back(plan.admitted[1] == id ? 1 : 2);
    last = plan.last_keys;
  }
  EXPECT_EQ(served, (std::vector<int>{1, 2, 1, 2}));
}

TEST(Scheduler, WhoeverWasPreemptedStandsFirst) {
  std::vector<SequenceState> sequences = {waiting_for(1, 5, 0), waiting_for(2, 5, 1), waiting_for(3, 5, 1)};
  sequences[2].preempted = true;
  const BatchPlan plan = plan_batch({sequences, {128, 100, 100, 0}, kCheapRows, {}}, {.parallel = 2});
  EXPECT_EQ(plan.admitted, (std::vector<std::int64_t>{3, 2})) << "and it costs its key no turn";
}

TEST(Scheduler, NobodyOvertakesTheFirstThatDoesNotFit) {
  std::vector<SequenceState> sequences = {decoding_at(1, 100), waiting_for(2, 700), waiting_for(3, 5)};
  EXPECT_TRUE(plan_batch({sequences, {128, 8, 7, 0}, kCheapRows}, {.parallel = 4}).admitted.empty());
  sequences[2].cached = 4;
  EXPECT_TRUE(plan_batch({sequences, {128, 8, 7, 0}, kCheapRows}, {.parallel = 4}).admitted.empty());
}

TEST(Scheduler, CountsEvictableBlocksAsFreeButNotThoseThatTheHitPins) {
  // 128 * 4 positions of prompt, a row, 128 more and a private block: seven blocks, four less with a hit.
  std::vector<SequenceState> sequences = {waiting_for(1, 128 * 4 + 1)};
  const auto admits = [&](const PoolState& pool) {
    std::vector<SequenceState> all = {decoding_at(0, 1), sequences[0]};
    return !plan_batch({all, pool, kCheapRows}, {.parallel = 2}).admitted.empty();
  };
  EXPECT_TRUE(admits({128, 20, 3, 4}));
  EXPECT_FALSE(admits({128, 20, 2, 4}));
  sequences[0].cached = 128 * 4;
  EXPECT_TRUE(admits({128, 20, 1, 2})) << "others hold the blocks of the hit";
  sequences[0].pinned = 4;
  EXPECT_FALSE(admits({128, 20, 1, 5}));
  EXPECT_TRUE(admits({128, 20, 1, 6}));
}

TEST(Scheduler, LeavesTheBlocksThatRunningPromptsStillNeed) {
  const std::vector<SequenceState> sequences = {prompt_at(1, 128, 128 * 6), waiting_for(2, 100)};
  // The first still needs 5 blocks of prompt and 2 for a row and the reserve, the second 2 and a private one.
  EXPECT_TRUE(plan_batch({sequences, {128, 20, 9, 0}, kCheapRows}, {.parallel = 2}).admitted.empty());
  EXPECT_FALSE(plan_batch({sequences, {128, 20, 10, 0}, kCheapRows}, {.parallel = 2}).admitted.empty());
}

TEST(Scheduler, ARequestFitsWhenItCanRunByItself) {
  const SchedulerLimits limits{.reserve = 4};
  const PoolState pool{.block_size = 4, .all_blocks = 10, .free_blocks = 10};
  EXPECT_EQ(capacity(pool, limits, 3), 36 - 3 - 4);
  EXPECT_TRUE(fits(pool, limits, 20, 9, 3));
  EXPECT_FALSE(fits(pool, limits, 20, 10, 3));
  EXPECT_FALSE(fits(pool, limits, 1, std::numeric_limits<std::int64_t>::max(), 3));
  EXPECT_EQ(capacity({.block_size = 4, .all_blocks = 1}, limits, 3), 0);
  std::vector<SequenceState> whole = {{.id = 1, .target = 29, .rows_wanted = 3, .preempted = true}};
  EXPECT_EQ(plan_batch({whole, pool, kCheapRows}, limits).admitted.size(), 1u);
  whole[0].cached = 27;  // six blocks, and three places of a seventh
  whole[0].pinned = 6;
  EXPECT_EQ(plan_batch({whole, {4, 10, 0, 10}, kCheapRows}, limits).admitted.size(), 1u);
}

// --- prompt rows

TEST(Scheduler, WithoutDecodersAStepHasAllPromptRowsThatFit) {
  const std::vector<SequenceState> sequences = {prompt_at(1, 0, 1000)};
  const BatchPlan plan = plan_batch({sequences, {128, 20, 20, 0}, kCheapRows}, {.prefill_rows = 300});
  EXPECT_EQ(plan.prompt, (std::vector<PlannedRows>{{1, 300}}));
}

TEST(Scheduler, DecodersWaitForPromptsNoLongerThanTheStallOrTwiceTheirTime) {
  const std::vector<SequenceState> sequences = {decoding_at(1, 10), prompt_at(2, 0, 1000)};
  const std::vector<double> seconds = stair_seconds(1 / 64.0, 1, 512);
  const auto rows = [&](double stall) {
    return plan_batch({sequences, {128, 20, 19, 0}, seconds}, {.stall_seconds = stall}).prompt.at(0).rows;
  };
  EXPECT_EQ(rows(0), 64) << "2 t(1) = t(1 + 64)";
  EXPECT_EQ(rows(3), 128);
  EXPECT_EQ(rows(100), 511) << "the step has no more";
}

TEST(Scheduler, PromptsAlwaysGoOnByAFewRows) {
  const std::vector<SequenceState> sequences = {decoding_at(1, 10), prompt_at(2, 0, 1000)};
  const auto rows = [&](const std::vector<double>& seconds) {
    return plan_batch({sequences, {128, 20, 19, 0}, seconds}, {.prefill_rows = 64}).prompt.at(0).rows;
  };
  EXPECT_EQ(rows(stair_seconds(1, 1, 64)), kLeastPromptRows);
  EXPECT_EQ(rows(stair_seconds(1, 10, 64)), 9) << "and by those that would be padding";
}

// Not sixteen rows either, nor what is left: time is the bound.
TEST(Scheduler, BesideDecodersAPromptGetsAsManyRowsAsTheStallOrTwiceTheirTimeOrOneRowAllow) {
  for (const double slope : {0.01, 0.1, 0.5, 2.0}) {
    const std::vector<double> seconds = stair_seconds(slope, 1, 64);
    for (const std::int64_t roots : {1, 2, 5, 16}) {
      for (const double stall : {0.0, 1.5, 4.0}) {
        std::vector<SequenceState> sequences;
        for (std::int64_t id = 0; id < roots; ++id) sequences.push_back(decoding_at(id, 10));
        sequences.push_back(prompt_at(roots, 0, 40));
        const BatchPlan plan = plan_batch({sequences, {128, 99, 60, 0}, seconds},
                                          {.parallel = 32, .prefill_rows = 64, .stall_seconds = stall});
        const auto t = [&](std::int64_t rows) { return seconds[static_cast<std::size_t>(rows - 1)]; };
        const std::int64_t rows = plan.prompt.at(0).rows;
        const double bound = std::max({stall, 2 * t(roots), t(roots + 1)});
        EXPECT_LE(t(roots + rows), bound) << slope << ", " << roots << " roots, " << stall;
        if (rows == 40) continue;  // all there are
        EXPECT_GT(t(roots + rows + 1), bound) << slope << ", " << roots << " roots, " << stall;
      }
    }
  }
}

TEST(Scheduler, PromptsGoOnBesideMoreDecodersThanAStepHasRows) {
  std::vector<SequenceState> sequences;
  for (int id = 0; id < 6; ++id) sequences.push_back(decoding_at(id, 10));
  sequences.push_back(prompt_at(6, 0, 1000));
  const std::vector<double> seconds = stair_seconds(1, 1, 4);
  const BatchPlan plan = plan_batch({sequences, {128, 20, 14, 0}, seconds}, {.parallel = 7, .prefill_rows = 3});
  EXPECT_EQ(plan.decoding.size(), 6u);
  EXPECT_EQ(plan.prompt, (std::vector<PlannedRows>{{6, kLeastPromptRows}}));
}

TEST(Scheduler, HalfThePromptRowsGoToTheOldestHalfToTheShortest) {
  const auto rows = [&](std::vector<SequenceState> sequences) {
    return plan_batch({sequences, {128, 90, 90, 0}, kCheapRows}, {.parallel = 4, .prefill_rows = 100}).prompt;
  };
  using Rows = std::vector<PlannedRows>;
  EXPECT_EQ(rows({prompt_at(1, 0, 500), prompt_at(2, 0, 400), prompt_at(3, 0, 300)}), (Rows{{1, 50}, {3, 50}}));
  EXPECT_EQ(rows({prompt_at(1, 0, 500), prompt_at(2, 0, 400), prompt_at(3, 0, 20)}), (Rows{{1, 80}, {3, 20}}));
  EXPECT_EQ(rows({prompt_at(1, 0, 30), prompt_at(2, 0, 40), prompt_at(3, 0, 300)}), (Rows{{1, 30}, {2, 40}, {3, 30}}));
  EXPECT_EQ(rows({prompt_at(1, 480, 500), prompt_at(2, 0, 400)}), (Rows{{1, 20}, {2, 80}}));
}

TEST(Scheduler, WhoeverHasALeaderThatReadsItsPromptGetsNoRows) {
  std::vector<SequenceState> sequences = {prompt_at(1, 0, 100), prompt_at(2, 0, 100), prompt_at(3, 0, 50),
                                          waiting_for(4, 100)};
  sequences[1].leader = 1;
  sequences[2].leader = 2;
  sequences[3].leader = 1;
  const auto rows = [&] {
    return plan_batch({sequences, {128, 90, 90, 0}, kCheapRows},
                      {.parallel = 4, .prefill_rows = 400, .stall_seconds = 99})
        .prompt;
  };
  using Rows = std::vector<PlannedRows>;
  EXPECT_EQ(rows(), (Rows{{1, 100}})) << "one who follows may be followed";
  sequences[0].phase = SequencePhase::decoding;
  EXPECT_EQ(rows(), (Rows{{2, 100}, {4, 100}})) << "its prompt has been read";
  sequences[0] = waiting_for(1, 100'000);
  EXPECT_EQ(rows(), (Rows{{2, 100}})) << "it waits, and keeps the fourth waiting";
  sequences[1].leader = 0;
  sequences[0] = prompt_at(1, 0, 100);
  EXPECT_EQ(rows(), (Rows{{1, 100}, {2, 100}})) << "there is no such leader any more";
  sequences[1].leader = 2;
  EXPECT_THROW(rows(), std::logic_error) << "nobody follows himself";
}

// --- blocks that are short

TEST(Scheduler, CutsTreesOfTheNewestFirstToWhatTheirBlocksHold) {
  std::vector<SequenceState> sequences = {decoding_at(1, 126, 8), decoding_at(2, 126, 8)};
  const auto rows = [&](std::int64_t free) {
    return plan_batch({sequences, {128, 4, free, 0}, kCheapRows}, {.parallel = 2}).decoding;
  };
  EXPECT_EQ(rows(2), (std::vector<PlannedRows>{{1, 8}, {2, 8}}));
  EXPECT_EQ(rows(1), (std::vector<PlannedRows>{{1, 8}, {2, 2}}));
  EXPECT_EQ(rows(0), (std::vector<PlannedRows>{{1, 2}, {2, 2}}));
}

TEST(Scheduler, ThenCutsPromptRowsThenPreemptsTheNewest) {
  std::vector<SequenceState> sequences = {decoding_at(1, 128, 8), prompt_at(2, 100, 400), prompt_at(3, 128, 300)};
  for (SequenceState& sequence : sequences) sequence.own_blocks = 1;
  const auto plan = [&](std::int64_t free) {
    return plan_batch({sequences, {128, 6, free, 0}, kCheapRows},
                      {.parallel = 3, .prefill_rows = 400, .stall_seconds = 99});
  };
  EXPECT_EQ(plan(5).prompt, (std::vector<PlannedRows>{{2, 228}, {3, 172}}));
  EXPECT_EQ(plan(4).prompt, (std::vector<PlannedRows>{{2, 228}, {3, 128}}));
  EXPECT_EQ(plan(2).prompt, (std::vector<PlannedRows>{{2, 156}}));
  EXPECT_EQ(plan(1).prompt, (std::vector<PlannedRows>{{2, 28}}));
  EXPECT_TRUE(plan(1).preempted.empty());
  EXPECT_EQ(plan(0).preempted, (std::vector<std::int64_t>{3})) << "the root needs a block";
  EXPECT_EQ(plan(0).prompt, (std::vector<PlannedRows>{{2, 28}})) << "which is the one that came back";
}

TEST(Scheduler, TheOldestIsNeverPreempted) {
  std::vector<SequenceState> sequences = {decoding_at(1, 256), decoding_at(2, 128)};
  sequences[0].own_blocks = 1;  // and another one that both hold
  const BatchPlan plan = plan_batch({sequences, {128, 3, 0, 0}, kCheapRows}, {.parallel = 2});
  EXPECT_EQ(plan.preempted, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(plan.decoding, (std::vector<PlannedRows>{{1, 1}}));
  EXPECT_THROW(plan_batch({std::span(sequences).first(1), {128, 2, 0, 0}, kCheapRows}, {}), std::logic_error);
}

TEST(Scheduler, RefusesStatesThatCannotBe) {
  const std::vector<SequenceState> swapped = {decoding_at(2, 1), decoding_at(1, 1)};
  EXPECT_THROW(plan_batch({swapped, {128, 9, 9, 0}, kCheapRows}, {}), std::logic_error);
  const std::vector<SequenceState> done = {prompt_at(1, 5, 5)};
  EXPECT_THROW(plan_batch({done, {128, 9, 9, 0}, kCheapRows}, {}), std::logic_error);
  EXPECT_THROW(plan_batch({{}, {128, 9, 9, 0}, kCheapRows}, {.prefill_rows = 513}), std::logic_error);
  EXPECT_EQ(plan_batch({{}, {128, 9, 9, 0}, kCheapRows}, {}), BatchPlan());
}

}  // namespace
}  // namespace espalier
