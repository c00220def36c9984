#include "decode/scheduler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/testing/sanitized.h"
#include "decode/row_choice.h"

namespace espalier {
namespace {

constexpr std::int64_t kSimulatedSteps = kSanitized ? 100'000 : 1'000'000;

// t(n) = 1 + slope * (n - 1), in stairs of `bucket` rows.
std::vector<double> stair_seconds(double slope, int bucket, int rows) {
  std::vector<double> seconds;
  for (int n = 0; n < rows; ++n) seconds.push_back(1 + slope * (n / bucket * bucket));
  return seconds;
}

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

// --- what holds of every plan

// The order in which waiting sequences are admitted, written down plainly.
std::vector<const SequenceState*> queue_of(const BatchState& state) {
  std::vector<const SequenceState*> queue;
  std::map<int, std::map<int, std::vector<const SequenceState*>>> priorities;
  for (const SequenceState& sequence : state.sequences) {
    if (sequence.phase != SequencePhase::waiting) continue;
    if (sequence.preempted)
      queue.push_back(&sequence);
    else
      priorities[sequence.priority][sequence.key].push_back(&sequence);
  }
  for (auto& [priority, keys] : priorities) {
    for (int key = state.last_keys.of(priority); !keys.empty();) {
      auto turn = keys.upper_bound(key);
      if (turn == keys.end()) turn = keys.begin();
      key = turn->first;
      queue.push_back(turn->second.front());
      turn->second.erase(turn->second.begin());
      if (turn->second.empty()) keys.erase(turn);
    }
  }
  return queue;
}

// A plan beside the state it was made for.
class JudgedPlan {
 public:
  JudgedPlan(const BatchState& state, const SchedulerLimits& limits, const BatchPlan& plan)
      : state_(state), limits_(limits), plan_(plan) {
    available_ = state.pool.free_blocks + state.pool.evictable_blocks;
    for (const SequenceState& sequence : state.sequences) take_in(sequence);
    for (const Member& member : members_) left_ += reads(member) ? member.state->target - member.length : 0;
    if (members_.size() == 1 && !plan.preempted.empty())
      available_ = state.pool.all_blocks - blocks(members_[0].length);
  }

  // What is wrong with it; empty when nothing is.
  std::string fault() const {
    if (!state_.sequences.empty() && (members_.empty() || members_[0].rows == 0)) return "the oldest gets no row";
    if (used_ > available_) return fmt::format("takes {} blocks of {}", used_, available_);
    if (std::string wrong = fault_of_preemption(); !wrong.empty()) return wrong;
    if (std::string wrong = fault_of_rows(); !wrong.empty()) return wrong;
    return fault_of_admission();
  }

 private:
  struct Member {
    const SequenceState* state;
    std::int64_t length, rows;
  };

  static std::int64_t rows_in(const std::vector<PlannedRows>& planned, std::int64_t id) {
    const auto found = std::ranges::find(planned, id, &PlannedRows::id);
    return found == planned.end() ? 0 : found->rows;
  }
  std::int64_t blocks(std::int64_t positions) const {
    return (positions + state_.pool.block_size - 1) / state_.pool.block_size;
  }

  void take_in(const SequenceState& sequence) {
    const bool waits = sequence.phase == SequencePhase::waiting;
    if (!waits) running_before_.push_back(sequence.id);
    if (std::ranges::count(plan_.preempted, sequence.id) > 0) {
      available_ += sequence.own_blocks;
      return;
    }
    if (waits && std::ranges::count(plan_.admitted, sequence.id) == 0) return;
    if (waits) available_ -= sequence.pinned;
    const std::int64_t length = waits ? sequence.cached : sequence.length;
    const std::int64_t rows =
        rows_in(sequence.phase == SequencePhase::decoding ? plan_.decoding : plan_.prompt, sequence.id);
    members_.push_back({&sequence, length, rows});
    const std::int64_t held = waits ? length / state_.pool.block_size : blocks(length);
    if (rows > 0) used_ += blocks(length + rows) - held + (waits ? 1 : sequence.copies);
    (sequence.phase == SequencePhase::decoding ? roots_ : prompts_) += 1;
    if (sequence.phase == SequencePhase::decoding) return;
    prompt_rows_ += rows;
  }

  bool reads(const Member& member) const {
    if (member.state->phase == SequencePhase::decoding) return false;
    const auto leader =
        std::ranges::find(members_, member.state->leader, [](const Member& other) { return other.state->id; });
    return leader == members_.end() || leader->state->phase == SequencePhase::decoding;
  }

  std::string fault_of_preemption() const {
    const auto count = plan_.preempted.size();
    if (count > 0 && count >= running_before_.size()) return "the oldest is preempted";
    if (!std::equal(plan_.preempted.begin(), plan_.preempted.end(), running_before_.rbegin()))
      return "others than the newest are preempted";
    if (count > 0 && !plan_.admitted.empty()) return "somebody is admitted while another one is preempted";
    return {};
  }

  std::string fault_of_rows() const {
    bool cut = false;
    for (const Member& member : members_) {
      if (member.state->phase != SequencePhase::decoding) {
        if (member.rows > member.state->target - member.length) return "more rows than the prompt has";
        if (member.rows > 0 && !reads(member)) return "rows of a prompt that another one computes";
        continue;
      }
      if (member.rows < 1) return fmt::format("sequence {} has no root", member.state->id);
      if (member.rows > member.state->rows_wanted) return "more rows than were wanted";
      cut = cut || member.rows < member.state->rows_wanted;
    }
    if (cut && !plan_.admitted.empty()) return "trees are cut although somebody is admitted";
    if (std::ssize(plan_.decoding) != roots_ || std::ssize(plan_.prompt) > prompts_) return "rows of somebody unknown";
    return fault_of_prompt_rows();
  }

  std::string fault_of_prompt_rows() const {
    const std::int64_t most = std::min(left_, limits_.prefill_rows);
    if (prompt_rows_ > most) return fmt::format("{} prompt rows of {}", prompt_rows_, most);
    const std::int64_t least = roots_ == 0 ? most : std::min(most, kLeastPromptRows);
    // A chunk that is cut to nothing may leave a block that it would have copied.
    if (prompt_rows_ < least && available_ - used_ > 1)
      return fmt::format("{} prompt rows, {} blocks to spare", prompt_rows_, available_ - used_);
    if (roots_ == 0 || prompt_rows_ == 0) return {};
    const auto t = [&](std::int64_t rows) { return seconds_of_rows(state_.step_seconds, rows); };
    if (t(roots_ + prompt_rows_) > std::max({limits_.stall_seconds, 2 * t(roots_), t(roots_ + least)}))
      return fmt::format("{} prompt rows beside {} roots take too long", prompt_rows_, roots_);
    return {};
  }

  std::string fault_of_admission() const {
    if (std::ssize(state_.sequences) == std::ssize(running_before_)) return {};
    const std::vector<const SequenceState*> queue = queue_of(state_);
    const std::size_t count = plan_.admitted.size();
    for (std::size_t i = 0; i < count; ++i)
      if (i >= queue.size() || queue[i]->id != plan_.admitted[i]) return "admitted out of order";
    if (count > 0 && std::ssize(members_) > limits_.parallel) return "too many run";
    const bool stays =
        count < queue.size() && std::ssize(running_before_) + std::ssize(plan_.admitted) < limits_.parallel;
    if (stays && plan_.preempted.empty() && blocks_to_admit(*queue[count]) <= available_ - queue[count]->pinned)
      return fmt::format("sequence {} could have been admitted", queue[count]->id);
    return {};
  }

  // With those that the others still need.
  std::int64_t blocks_to_admit(const SequenceState& next) const {
    const std::int64_t size = state_.pool.block_size;
    const auto whole = [&](const SequenceState& s) { return blocks(s.target + s.rows_wanted + limits_.reserve); };
    std::int64_t needed = whole(next) - next.cached / size + 1;
    for (const Member& member : members_) {
      const SequenceState& s = *member.state;
      if (s.phase == SequencePhase::decoding) needed += blocks(s.length + s.rows_wanted) - blocks(s.length) + s.copies;
      if (s.phase == SequencePhase::prompt) needed += whole(s) - blocks(s.length) + s.copies;
      if (s.phase == SequencePhase::waiting) needed += whole(s) - s.cached / size + 1;
    }
    return needed;
  }

  const BatchState& state_;
  const SchedulerLimits& limits_;
  const BatchPlan& plan_;
  std::vector<std::int64_t> running_before_;
  std::vector<Member> members_;  // of the step, oldest first
  std::int64_t available_ = 0, used_ = 0, roots_ = 0, prompts_ = 0, prompt_rows_ = 0, left_ = 0;
};

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

TEST(Scheduler, PromptsGoOnBesideMoreDecodersThanAStepHasRows) {
  std::vector<SequenceState> sequences;
  for (int id = 0; id < 6; ++id) sequences.push_back(decoding_at(id, 10));
  sequences.push_back(prompt_at(6, 0, 1000));
  const std::vector<double> seconds = stair_seconds(1, 1, 4);
  const BatchPlan plan = plan_batch({sequences, {128, 20, 14, 0}, seconds}, {.parallel = 7, .prefill_rows = 3});
  EXPECT_EQ(plan.decoding.size(), 6u);
  EXPECT_EQ(plan.prompt, (std::vector<PlannedRows>{{6, 3}}));
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

// --- all small states

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

TEST(Scheduler, EveryPlanForThreeSequencesIsSound) {
  const std::vector<SequenceState> choices = small_states();
  const std::vector<double> seconds = stair_seconds(0.1, 1, 40);
  std::int64_t plans = 0, preempting = 0, admitting = 0;
  std::vector<SequenceState> sequences(3);
  const auto judge = [&](const PoolState& pool, const SchedulerLimits& limits) {
    const BatchState state{sequences, pool, seconds};
    const BatchPlan plan = plan_batch(state, limits);
    const std::string fault = JudgedPlan(state, limits, plan).fault();
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

// --- a batch that runs

// Blocks as tables hold them. A full block is published under what its tokens are, which is a stream and its place in
// it; nobody holds a cached block. Eviction takes the last places first: never a block before those that follow it.
class SimulatedBlocks {
 public:
  explicit SimulatedBlocks(std::int64_t count) : blocks_(static_cast<std::size_t>(count)), free_(count) {}

  std::int64_t free() const { return free_; }
  std::int64_t evictable() const { return evictable_; }
  std::int64_t references(int block) const { return at(block).references; }
  bool published(int block) const { return at(block).stream >= 0; }

  int find(int stream, std::int64_t place) const {
    const std::size_t entry = entry_of(stream, place);
    return entry < index_.size() ? index_[entry] : -1;
  }
  void hold(int block) {
    if (at(block).references++ == 0 && published(block)) --evictable_;
  }
  void let_go(int block) {
    if (--at(block).references > 0) return;
    ++(published(block) ? evictable_ : free_);
  }
  // -1: there is none.
  int take() {
    if (free_ == 0 && !evict()) return -1;
    const auto block = std::ranges::find_if(blocks_, [](const Block& b) { return b.references == 0 && b.stream < 0; });
    block->references = 1;
    --free_;
    return static_cast<int>(block - blocks_.begin());
  }
  void publish(int block, int stream, std::int64_t place) {
    if (published(block) || find(stream, place) >= 0) return;
    const std::size_t entry = entry_of(stream, place);
    if (entry >= index_.size()) index_.resize(entry + 1, -1);
    index_[entry] = block;
    at(block).stream = stream;
    at(block).place = place;
  }

 private:
  struct Block {
    int references = 0;
    int stream = -1;  // not published
    std::int64_t place = 0;
  };
  Block& at(int block) { return blocks_[static_cast<std::size_t>(block)]; }
  const Block& at(int block) const { return blocks_[static_cast<std::size_t>(block)]; }

  static constexpr std::int64_t kPlaces = 32;  // of a stream, at most
  static std::size_t entry_of(int stream, std::int64_t place) {
    return static_cast<std::size_t>(stream * kPlaces + place);
  }

  bool evict() {
    Block* last = nullptr;
    for (Block& block : blocks_)
      if (block.references == 0 && block.stream >= 0 && (last == nullptr || block.place > last->place)) last = &block;
    if (last == nullptr) return false;
    index_[entry_of(last->stream, last->place)] = -1;
    last->stream = -1;
    --evictable_;
    ++free_;
    return true;
  }

  std::vector<Block> blocks_;
  std::vector<int> index_;  // of published blocks, by stream and place; -1: none
  std::int64_t free_, evictable_ = 0;
};

struct SimulatedRequest {
  SequenceState state = {};
  std::int64_t prompt = 1, max_tokens = 1, answered = 0;
  int family = 0;  // whose requests begin with the same tokens
  std::vector<int> blocks = {};
  int preemptions = 0;
};

// Requests that arrive, run as planned with answers of random lengths, and end.
class SimulatedBatch {
 public:
  SimulatedBatch(std::uint32_t seed, std::span<const double> seconds)
      : random_(seed), seconds_(seconds), blocks_(0), ahead_(20 + below(20)) {
    limits_ = {.parallel = 1 + below(6),
               .prefill_rows = 1 + below(static_cast<int>(seconds.size())),
               .reserve = below(12),
               .stall_seconds = below(4) * 1.0};
    // From a pool that just holds the longest request to one for six.
    rows_ = 1 + below(10);
    pool_.block_size = kBlock;
    pool_.all_blocks = 1;
    while (!fits(pool_, limits_, kLongestPrompt, kLongestAnswer, rows_)) ++pool_.all_blocks;
    pool_.all_blocks = pool_.all_blocks * (10 + below(2) * below(50)) / 10;
    blocks_ = SimulatedBlocks(pool_.all_blocks);
    busy_ = 1 + below(20);
  }

  bool over() const { return ahead_ == 0 && requests_.empty(); }
  const std::string& fault() const { return fault_; }
  int most_preemptions() const { return most_preemptions_; }
  int preemptions() const { return preemptions_; }
  std::int64_t steps() const { return steps_; }

  void step() {
    if (ahead_ > 0 && below(busy_) == 0) arrive();
    if (requests_.empty()) return;
    states_.clear();
    for (SimulatedRequest& request : requests_) states_.push_back(look_at(request));
    pool_.free_blocks = blocks_.free();
    pool_.evictable_blocks = blocks_.evictable();
    for (std::size_t i = 0; i < requests_.size(); ++i) states_[i].leader = leader_of(i);
    const BatchState state{states_, pool_, seconds_, last_keys_};
    const BatchPlan plan = plan_batch(state, limits_);
    fault_ = JudgedPlan(state, limits_, plan).fault();
    last_keys_ = plan.last_keys;
    carry_out(plan);
    ++steps_;
    // The oldest that runs gets a row in each step; what is lost to preemption is computed again.
    if (fault_.empty() && steps_ > work_) fault_ = fmt::format("{} steps for {} rows of work", steps_, work_);
  }

 private:
  static constexpr std::int64_t kBlock = 4, kLongestPrompt = 60, kLongestAnswer = 40;
  static constexpr std::int64_t kFamilyBlocks = 4;

  int below(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }

  void arrive() {
    const bool longest = below(8) == 0;
    SimulatedRequest request{.prompt = longest ? kLongestPrompt : 1 + below(kLongestPrompt),
                             .max_tokens = longest ? kLongestAnswer : 1 + below(kLongestAnswer)};
    request.state = {.id = next_id_++,
                     .target = request.prompt,
                     .rows_wanted = longest ? rows_ : 1 + below(rows_),
                     .key = below(3),
                     .priority = below(3) - 1};
    request.family = below(3);
    work_ += request.prompt + request.max_tokens;
    --ahead_;
    requests_.push_back(std::move(request));
  }

  int stream_of(const SimulatedRequest& request, std::int64_t place) const {
    const bool shared = place < kFamilyBlocks && (place + 1) * kBlock <= request.prompt;
    return shared ? request.family : 3 + static_cast<int>(request.state.id);
  }
  int found(const SimulatedRequest& request, std::int64_t place) const {
    return blocks_.find(stream_of(request, place), place);
  }

  // The oldest of its family that still computes what both begin with. Whoever waited for it computes the same here:
  // he loses time.
  std::int64_t leader_of(std::size_t index) const {
    for (std::size_t i = 0; i < index; ++i)
      if (requests_[i].family == requests_[index].family && requests_[i].state.phase != SequencePhase::decoding &&
          requests_[i].state.length < kFamilyBlocks * kBlock)
        return requests_[i].state.id;
    return -1;
  }

  const SequenceState& look_at(SimulatedRequest& request) {
    if (request.state.phase == SequencePhase::waiting)
      look_up(request);
    else
      look_at_blocks(request);
    return request.state;
  }

  void look_up(SimulatedRequest& request) {
    SequenceState& state = request.state;
    state.cached = state.pinned = 0;
    for (std::int64_t place = 0; state.cached < state.target - 1; ++place) {
      const int block = found(request, place);
      if (block < 0) return;
      state.cached = std::min((place + 1) * kBlock, state.target - 1);
      state.pinned += state.cached % kBlock == 0 && blocks_.references(block) == 0;
    }
  }

  // Now and then a head wants the last position once more, which may lie in a block that others read.
  void look_at_blocks(SimulatedRequest& request) {
    SequenceState& state = request.state;
    state.own_blocks = std::ranges::count_if(request.blocks, [&](int b) { return blocks_.references(b) == 1; });
    const bool frozen = !request.blocks.empty() &&
                        (blocks_.published(request.blocks.back()) || blocks_.references(request.blocks.back()) > 1);
    state.copies = frozen && (state.length % kBlock != 0 || below(4) == 0);
  }

  SimulatedRequest& request(std::int64_t id) {
    return *std::ranges::find(requests_, id, [](const SimulatedRequest& r) { return r.state.id; });
  }

  void carry_out(const BatchPlan& plan) {
    for (std::int64_t id : plan.preempted) preempt(request(id));
    for (std::int64_t id : plan.admitted) pin(request(id));
    for (std::int64_t id : plan.admitted) copy_partial_hit(request(id));
    for (const PlannedRows& rows : plan.prompt) open(request(rows.id), rows.rows);
    for (const PlannedRows& rows : plan.decoding) open(request(rows.id), rows.rows);
    for (const PlannedRows& rows : plan.prompt) commit_prompt(request(rows.id), rows.rows);
    for (const PlannedRows& rows : plan.decoding) commit_tokens(request(rows.id), rows.rows);
    std::erase_if(requests_, [&](SimulatedRequest& r) { return r.answered >= r.max_tokens && end(r); });
  }

  void preempt(SimulatedRequest& request) {
    SequenceState& state = request.state;
    if (state.phase == SequencePhase::decoding) state.target = state.length;
    work_ += state.length;
    release(request);
    state.phase = SequencePhase::waiting;
    state.preempted = true;
    state.length = state.copies = 0;
    most_preemptions_ = std::max(most_preemptions_, ++request.preemptions);
    ++preemptions_;
  }

  void pin(SimulatedRequest& request) {
    SequenceState& state = request.state;
    state.phase = SequencePhase::prompt;
    state.preempted = false;
    state.length = state.cached;
    for (std::int64_t place = 0; place * kBlock < state.length; ++place) {
      request.blocks.push_back(found(request, place));
      blocks_.hold(request.blocks.back());
    }
  }

  void copy_partial_hit(SimulatedRequest& request) {
    if (request.state.length % kBlock != 0) copy_last(request);
    request.state.copies = 0;
  }

  void copy_last(SimulatedRequest& request) {
    const int copy = take();
    blocks_.let_go(request.blocks.back());
    request.blocks.back() = copy;
  }

  int take() {
    const int block = blocks_.take();
    if (block < 0) throw std::logic_error("the plan took more blocks than there are");
    return block;
  }

  void open(SimulatedRequest& request, std::int64_t rows) {
    if (request.state.copies > 0) copy_last(request);
    while (std::ssize(request.blocks) * kBlock < request.state.length + rows) request.blocks.push_back(take());
  }

  void commit_prompt(SimulatedRequest& request, std::int64_t rows) {
    SequenceState& state = request.state;
    advance(request, rows);
    if (state.length < state.target) return;
    state.phase = SequencePhase::decoding;
    request.answered = std::max<std::int64_t>(request.answered, 1);
  }

  void commit_tokens(SimulatedRequest& request, std::int64_t rows) {
    const std::int64_t tokens =
        std::min<std::int64_t>(1 + below(static_cast<int>(rows)), request.max_tokens - request.answered);
    request.answered += tokens;
    advance(request, tokens);
  }

  void advance(SimulatedRequest& request, std::int64_t positions) {
    const std::int64_t before = request.state.length / kBlock;
    request.state.length += positions;
    for (; (std::ssize(request.blocks) - 1) * kBlock >= request.state.length; request.blocks.pop_back())
      blocks_.let_go(request.blocks.back());
    for (std::int64_t place = before; place < request.state.length / kBlock; ++place)
      blocks_.publish(request.blocks[static_cast<std::size_t>(place)], stream_of(request, place), place);
  }

  void release(SimulatedRequest& request) {
    for (int block : request.blocks) blocks_.let_go(block);
    request.blocks.clear();
  }
  bool end(SimulatedRequest& request) {
    release(request);
    return true;
  }

  std::mt19937 random_;
  std::span<const double> seconds_;
  SchedulerLimits limits_;
  PoolState pool_;
  SimulatedBlocks blocks_;
  int rows_ = 1;
  int ahead_;     // requests that will still arrive
  int busy_ = 1;  // steps between two arrivals, on the average
  LastKeys last_keys_;
  std::int64_t next_id_ = 0;
  std::vector<SimulatedRequest> requests_;  // by id
  std::vector<SequenceState> states_;
  std::int64_t steps_ = 0, work_ = 0;
  int preemptions_ = 0, most_preemptions_ = 0;
  std::string fault_;
};

TEST(Scheduler, EveryRequestOfARunningBatchEnds) {
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
    most = std::max(most, batch.most_preemptions());
  }
  fmt::print("{} steps, {} preemptions, {} of one request at most\n", steps, preemptions, most);
  EXPECT_GT(preemptions, steps / 1000) << "pools were short";
  EXPECT_LE(most, 16);
}

}  // namespace
}  // namespace espalier
