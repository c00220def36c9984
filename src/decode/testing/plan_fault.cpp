#include "decode/testing/plan_fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "decode/row_choice.h"

namespace espalier {
namespace {

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

}  // namespace

std::string plan_fault(const BatchState& state, const SchedulerLimits& limits, const BatchPlan& plan) {
  return JudgedPlan(state, limits, plan).fault();
}

}  // namespace espalier
