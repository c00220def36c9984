// That plans are sound: for every small state, and for batches that run until all requests have ended.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/testing/sanitized.h"
#include "decode/scheduler.h"
#include "decode/testing/plan_fault.h"
#include "decode/testing/simulated_batch.h"
#include "decode/testing/stair_seconds.h"

namespace espalier {
namespace {

constexpr std::int64_t kSimulatedSteps = kSanitized ? 100'000 : 1'000'000;

// What a sequence may be like, in blocks of 4 positions.
std::vector<SequenceState> small_states() {
  std::vector<SequenceState> states;
  for (int rows : {1, 6}) {
    for (std::int64_t target : {1, 9, 30}) {
      for (int kind = 0; kind < 4; ++kind) {
        const std::int64_t cached = kind == 3 && target > 8 ? 8 : 0;
        states.push_back({.target = target,
                          .rows_wanted = rows,
                          .key = kind % 2,
                          .priority = kind == 3 ? -1 : 0,
                          .preempted = kind == 2,
                          .cached = cached,
                          .pinned = cached / 4});
      }
    }
    for (std::int64_t length : {0, 6, 8})
      states.push_back(
          {.phase = SequencePhase::prompt, .target = 30, .rows_wanted = rows, .length = length, .copies = length == 8});
    for (std::int64_t length : {3, 8})
      for (std::int64_t copies : {0, 1})
        states.push_back({.phase = SequencePhase::decoding, .rows_wanted = rows, .length = length, .copies = copies});
  }
  return states;
}

// Pools in which each sequence fits by itself, from the tightest to plenty. Empty: they hold more than there is.
std::optional<PoolState> small_pool(std::span<const SequenceState> sequences, const SchedulerLimits& limits,
                                    std::int64_t spare, bool warm) {
  PoolState pool{.block_size = 4};
  std::int64_t held = 0, pinned = 0;
  for (const SequenceState& s : sequences) {
    const std::int64_t positions = std::max(s.length, s.phase == SequencePhase::decoding ? 0 : s.target);
    while (!fits(pool, limits, positions, 1, s.rows_wanted)) ++pool.all_blocks;
    held += s.own_blocks;
    pinned = std::max(pinned, s.pinned);
  }
  pool.all_blocks += spare;
  pool.free_blocks = pool.all_blocks - held;
  pool.evictable_blocks = warm ? pool.free_blocks : pinned;
  pool.free_blocks -= pool.evictable_blocks;
  if (pool.free_blocks < 0) return std::nullopt;
  return pool;
}

TEST(SchedulerSoundness, EveryPlanForThreeSequencesIsSound) {
  const std::vector<SequenceState> choices = small_states();
  const std::vector<double> seconds = stair_seconds(0.1, 1, 40);
  std::int64_t plans = 0, preempting = 0, admitting = 0;
  std::vector<SequenceState> sequences(3);
  const auto judge = [&](const PoolState& pool, const SchedulerLimits& limits) {
    const BatchState state{sequences, pool, seconds};
    const BatchPlan plan = plan_batch(state, limits);
    const std::string fault = plan_fault(state, limits, plan);
    ASSERT_EQ(fault, "") << "plan " << plans;
    ++plans;
    preempting += !plan.preempted.empty();
    admitting += !plan.admitted.empty();
  };
  const std::size_t count = choices.size();
  constexpr std::size_t stride = kSanitized ? 11 : 1;
  for (std::size_t code = 0; code < count * count * count; code += stride) {
    const std::size_t digits[] = {code % count, code / count % count, code / count / count};
    for (std::size_t i = 0; i < 3; ++i) {
      sequences[i] = choices[digits[i]];
      sequences[i].id = static_cast<std::int64_t>(i);
      sequences[i].own_blocks = (sequences[i].length + 3) / 4;
      sequences[i].leader = i > 0 && code / 2 % 3 == 0 ? static_cast<std::int64_t>(i) - 1 : -1;
    }
    for (std::int64_t spare : {0, 1, 2, 3, 5, 9, 30}) {
      const SchedulerLimits limits{.parallel = 1 + static_cast<int>((code + static_cast<std::size_t>(spare)) % 3),
                                   .prefill_rows = 24,
                                   .reserve = 4,
                                   .stall_seconds = 1.5};
      const std::optional<PoolState> pool = small_pool(sequences, limits, spare, code % 2 == 0);
      if (pool) judge(*pool, limits);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(preempting, plans / 200);
  EXPECT_GT(admitting, plans / 10);
}

TEST(SchedulerSoundness, EveryRequestOfARunningBatchEnds) {
  const std::vector<std::vector<double>> costs = {stair_seconds(0.01, 1, 64), stair_seconds(0.1, 1, 48),
                                                  stair_seconds(0.05, 16, 64), stair_seconds(1, 4, 32)};
  std::int64_t steps = 0, preemptions = 0;
  int most = 0;
  for (std::uint32_t seed = 0; steps < kSimulatedSteps; ++seed) {
    SimulatedBatch batch(seed, costs[seed % costs.size()]);
    while (!batch.over()) {
      batch.step();
      ASSERT_EQ(batch.fault(), "") << "seed " << seed << ", step " << batch.steps();
    }
    steps += batch.steps();
    preemptions += batch.preemptions();
    // Prompts have what was promised when they were admitted, so what is short was mostly taken by those who decode.
    // The bound is what runs of millions of steps kept to by half; argued can be one that is a few times as large.
    ASSERT_LE(batch.preemptions(), (batch.parallel() - 1) * batch.taken_by_decoders()) << "seed " << seed;
    most = std::max(most, batch.most_preemptions());
  }
  fmt::print("{} steps, {} preemptions, {} of one request at most\n", steps, preemptions, most);
  EXPECT_GT(preemptions, steps / 1000) << "pools were short";
  EXPECT_LE(most, 16);
}

}  // namespace
}  // namespace espalier
