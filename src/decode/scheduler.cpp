#include "decode/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "decode/row_choice.h"

namespace espalier {
namespace {

std::int64_t blocks_of(std::int64_t positions, std::int64_t block_size) {
  return (positions + block_size - 1) / block_size;
}

// A sequence that takes part in the step.
struct Participant {
  const SequenceState* state = nullptr;
  bool decodes = false;
  bool follows = false;  // somebody else computes its prompt
  std::int64_t length = 0;
  std::int64_t held = 0;    // blocks
  std::int64_t copies = 0;  // likewise, if it opens a branch
  std::int64_t rows = 0;    // planned

  std::int64_t left() const { return state->target - length; }  // of the prompt
  bool reads() const { return !decodes && !follows; }           // it
};

class StepPlanner {
 public:
  StepPlanner(const BatchState& state, const SchedulerLimits& limits);
  BatchPlan plan();

 private:
  Participant participant(const SequenceState& sequence) const;
  void admit();
  const SequenceState* first_in_line() const;
  bool admits(const SequenceState& sequence);

  void wish_rows();
  bool follows(const Participant& participant) const;
  void wish_prompt_rows(std::int64_t roots);
  std::int64_t prompt_rows(std::int64_t roots, std::int64_t left) const;
  void share_out(std::int64_t rows);

  std::int64_t positions_needed(const Participant& participant) const;
  std::int64_t blocks_promised(const Participant& participant) const;
  std::int64_t blocks_needed(const Participant& participant) const;
  bool cut_to_blocks();
  std::int64_t cut_tree(Participant& participant) const;
  std::int64_t cut_chunk(Participant& participant, std::int64_t excess) const;
  void preempt_newest();

  std::int64_t blocks_of_positions(std::int64_t positions) const {
    return blocks_of(positions, state_.pool.block_size);
  }

  const BatchState& state_;
  const SchedulerLimits& limits_;
  std::int64_t available_;            // blocks that are free or can be evicted
  std::vector<Participant> running_;  // by id
  BatchPlan plan_;
};

StepPlanner::StepPlanner(const BatchState& state, const SchedulerLimits& limits)
    : state_(state), limits_(limits), available_(state.pool.free_blocks + state.pool.evictable_blocks) {
  running_.reserve(state.sequences.size());
  for (const SequenceState& sequence : state.sequences)
    if (sequence.phase != SequencePhase::waiting) running_.push_back(participant(sequence));
  plan_.last_keys = state.last_keys;
}

// One that waits is as it will be after its admission. The copy is its private block: where the hit ends inside a
// block, source and copy are there at the same time.
Participant StepPlanner::participant(const SequenceState& sequence) const {
  const std::int64_t size = state_.pool.block_size;
  if (sequence.phase == SequencePhase::waiting)
    return {.state = &sequence, .length = sequence.cached, .held = sequence.cached / size, .copies = 1};
  return {.state = &sequence,
          .decodes = sequence.phase == SequencePhase::decoding,
          .length = sequence.length,
          .held = blocks_of(sequence.length, size),
          .copies = sequence.copies};
}

BatchPlan StepPlanner::plan() {
  admit();
  wish_rows();
  while (!cut_to_blocks()) {
    preempt_newest();
    wish_rows();
  }
  for (const Participant& participant : running_) {
    auto& rows = participant.decodes ? plan_.decoding : plan_.prompt;
    if (participant.rows > 0) rows.push_back({participant.state->id, participant.rows});
  }
  return std::move(plan_);
}

// --- admission

void StepPlanner::admit() {
  while (std::ssize(running_) < limits_.parallel) {
    const SequenceState* next = first_in_line();
    if (next == nullptr || !admits(*next)) return;
    const auto place =
        std::ranges::upper_bound(running_, next->id, {}, [](const Participant& p) { return p.state->id; });
    running_.insert(place, participant(*next));
    available_ -= next->pinned;
    plan_.admitted.push_back(next->id);
    if (!next->preempted) plan_.last_keys.of(next->priority) = next->key;
  }
}

// The oldest preempted one, or else, of the lowest priority, the oldest of the key whose turn it is: the next above the
// last key, or the lowest.
const SequenceState* StepPlanner::first_in_line() const {
  const SequenceState *above = nullptr, *lowest = nullptr;
  const auto prefer = [](const SequenceState*& first, const SequenceState& other) {
    if (first == nullptr || other.key < first->key) first = &other;
  };
  for (const SequenceState& sequence : state_.sequences) {
    if (sequence.phase != SequencePhase::waiting || std::ranges::count(plan_.admitted, sequence.id) > 0) continue;
    if (sequence.preempted) return &sequence;
    if (lowest != nullptr && sequence.priority > lowest->priority) continue;
    if (lowest != nullptr && sequence.priority < lowest->priority) above = lowest = nullptr;
    prefer(lowest, sequence);
    if (sequence.key > plan_.last_keys.of(sequence.priority)) prefer(above, sequence);
  }
  return above != nullptr ? above : lowest;
}

bool StepPlanner::admits(const SequenceState& sequence) {
  std::int64_t promised = blocks_promised(participant(sequence));
  for (const Participant& other : running_) promised += blocks_promised(other);
  return promised <= available_ - sequence.pinned;
}

// --- rows

void StepPlanner::wish_rows() {
  std::int64_t roots = 0;
  for (Participant& participant : running_) {
    participant.rows = participant.decodes ? participant.state->rows_wanted : 0;
    participant.follows = follows(participant);
    roots += participant.decodes ? 1 : 0;
  }
  if (roots < std::ssize(running_)) wish_prompt_rows(roots);
}

bool StepPlanner::follows(const Participant& participant) const {
  if (participant.decodes || participant.state->leader < 0) return false;
  const auto leader =
      std::ranges::find(running_, participant.state->leader, [](const Participant& p) { return p.state->id; });
  return leader != running_.end() && !leader->decodes;
}

void StepPlanner::wish_prompt_rows(std::int64_t roots) {
  std::int64_t left = 0;
  for (const Participant& participant : running_) left += participant.reads() ? participant.left() : 0;
  share_out(prompt_rows(roots, left));
}

// What the least prompt rows cost is granted in any case; rows that would only pad their bucket then come with them.
std::int64_t StepPlanner::prompt_rows(std::int64_t roots, std::int64_t left) const {
  const std::int64_t most = std::min(left, limits_.prefill_rows);
  if (roots == 0) return most;
  const auto& seconds = state_.step_seconds;
  const std::int64_t least = std::min(kLeastPromptRows, most);
  const double bound =
      std::max({limits_.stall_seconds, 2 * seconds_of_rows(seconds, roots), seconds_of_rows(seconds, roots + least)});
  const std::int64_t rows = std::ranges::upper_bound(seconds, bound) - seconds.begin();
  return std::clamp(rows - roots, least, most);
}

// Half to the oldest prompt, for its own sake; half to the one that is done first, for the sake of the mean; what they
// do not need to all, by age.
void StepPlanner::share_out(std::int64_t rows) {
  const auto give = [&](Participant& prompt, std::int64_t most) {
    const std::int64_t given = std::min({most, rows, prompt.left() - prompt.rows});
    prompt.rows += given;
    rows -= given;
  };
  Participant *oldest = nullptr, *shortest = nullptr;
  for (Participant& participant : running_) {
    if (!participant.reads()) continue;
    if (oldest == nullptr) oldest = &participant;
    if (shortest == nullptr || participant.left() < shortest->left()) shortest = &participant;
  }
  give(*oldest, (rows + 1) / 2);
  give(*shortest, rows);
  for (Participant& participant : running_)
    if (participant.reads()) give(participant, rows);
}

// --- blocks

// What a sequence was admitted for; one that decodes has begun to use up its reserve.
std::int64_t StepPlanner::positions_needed(const Participant& participant) const {
  const std::int64_t rows = participant.state->rows_wanted;
  return participant.decodes ? participant.length + rows : participant.state->target + rows + limits_.reserve;
}

std::int64_t StepPlanner::blocks_promised(const Participant& participant) const {
  return blocks_of_positions(positions_needed(participant)) - participant.held + participant.copies;
}

std::int64_t StepPlanner::blocks_needed(const Participant& participant) const {
  if (participant.rows == 0) return 0;
  return blocks_of_positions(participant.length + participant.rows) - participant.held + participant.copies;
}

// False: trees and prompt rows alone cannot make the step fit.
bool StepPlanner::cut_to_blocks() {
  std::int64_t excess = -available_;
  for (const Participant& participant : running_) excess += blocks_needed(participant);
  for (auto newest = running_.rbegin(); excess > 0 && newest != running_.rend(); ++newest)
    if (newest->decodes) excess -= cut_tree(*newest);
  for (auto newest = running_.rbegin(); excess > 0 && newest != running_.rend(); ++newest)
    if (!newest->decodes) excess -= cut_chunk(*newest, excess);
  return excess <= 0;
}

// To what the block of its root has room for, which costs no more than the root. Tells the blocks this saves.
std::int64_t StepPlanner::cut_tree(Participant& participant) const {
  const std::int64_t before = blocks_needed(participant);
  const std::int64_t room = blocks_of_positions(participant.length + 1) * state_.pool.block_size - participant.length;
  participant.rows = std::min(participant.rows, room);
  return before - blocks_needed(participant);
}

// By `excess` blocks or as far as possible; but the oldest of all goes on. Tells the blocks this saves.
std::int64_t StepPlanner::cut_chunk(Participant& participant, std::int64_t excess) const {
  const std::int64_t before = blocks_needed(participant);
  const std::int64_t blocks = participant.held + before - excess - participant.copies;
  const std::int64_t least = &participant == &running_.front() ? std::min(kLeastPromptRows, participant.rows) : 0;
  const std::int64_t room = blocks * state_.pool.block_size - participant.length;
  participant.rows = std::clamp(room, least, participant.rows);
  return before - blocks_needed(participant);
}

void StepPlanner::preempt_newest() {
  check(running_.size() > 1, "scheduler: sequence {} does not fit a pool of {} blocks by itself",
        running_.front().state->id, state_.pool.all_blocks);
  available_ += running_.back().state->own_blocks;
  plan_.preempted.push_back(running_.back().state->id);
  running_.pop_back();
  // Blocks that those before shared only among each other have come back too.
  if (running_.size() == 1) available_ = state_.pool.all_blocks - running_.front().held;
}

void check_batch(const BatchState& state, const SchedulerLimits& limits) {
  check(state.pool.block_size >= 1, "scheduler: blocks of {} positions", state.pool.block_size);
  check(limits.parallel >= 1, "scheduler: {} sequences in parallel", limits.parallel);
  check(limits.prefill_rows >= 1 && limits.prefill_rows <= std::ssize(state.step_seconds),
        "scheduler: {} prompt rows in steps of at most {}", limits.prefill_rows, state.step_seconds.size());
  check(std::ranges::is_sorted(state.sequences, {}, &SequenceState::id), "scheduler: sequences out of order");
  for (const SequenceState& sequence : state.sequences) {
    const bool waits = sequence.phase == SequencePhase::waiting, decodes = sequence.phase == SequencePhase::decoding;
    check(sequence.rows_wanted >= 1 && (decodes || (waits ? sequence.cached : sequence.length) < sequence.target),
          "scheduler: sequence {} wants {} rows and has computed a prompt of {}", sequence.id, sequence.rows_wanted,
          sequence.target);
    check(sequence.leader < sequence.id, "scheduler: sequence {} follows {}, which is no older", sequence.id,
          sequence.leader);
    check(sequence.priority >= kFirstPriority && sequence.priority <= kLastPriority,
          "scheduler: sequence {} has priority {}", sequence.id, sequence.priority);
  }
}

}  // namespace

std::int64_t capacity(const PoolState& pool, const SchedulerLimits& limits, int rows_wanted) {
  const std::int64_t positions = (pool.all_blocks - 1) * pool.block_size - rows_wanted - limits.reserve;
  return std::max<std::int64_t>(0, positions);
}

bool fits(const PoolState& pool, const SchedulerLimits& limits, std::int64_t prompt, std::int64_t max_tokens,
          int rows_wanted) {
  const std::int64_t most = capacity(pool, limits, rows_wanted);
  return prompt <= most && max_tokens <= most - prompt;  // the sum of two numbers from outside could overflow
}

BatchPlan plan_batch(const BatchState& state, const SchedulerLimits& limits) {
  check_batch(state, limits);
  return StepPlanner(state, limits).plan();
}

}  // namespace espalier
