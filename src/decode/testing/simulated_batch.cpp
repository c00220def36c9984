#include "decode/testing/simulated_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "decode/testing/plan_fault.h"

namespace espalier {
namespace {

constexpr std::int64_t kBlock = 4, kLongestPrompt = 60, kLongestAnswer = 40;
constexpr std::int64_t kFamilyBlocks = 4;

}  // namespace

SimulatedBatch::SimulatedBatch(std::uint32_t seed, std::span<const double> seconds)
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

void SimulatedBatch::step() {
  if (ahead_ > 0 && below(busy_) == 0) arrive();
  if (requests_.empty()) return;
  states_.clear();
  for (Request& request : requests_) states_.push_back(look_at(request));
  pool_.free_blocks = blocks_.free();
  pool_.evictable_blocks = blocks_.evictable();
  for (std::size_t i = 0; i < requests_.size(); ++i) states_[i].leader = leader_of(i);
  const BatchState state{states_, pool_, seconds_, last_keys_};
  const BatchPlan plan = plan_batch(state, limits_);
  fault_ = plan_fault(state, limits_, plan);
  last_keys_ = plan.last_keys;
  carry_out(plan);
  ++steps_;
  // The oldest that runs gets a row in each step; what is lost to preemption is computed again.
  if (fault_.empty() && steps_ > work_) fault_ = fmt::format("{} steps for {} rows of work", steps_, work_);
}

void SimulatedBatch::arrive() {
  const bool longest = below(8) == 0;
  Request request{.prompt = longest ? kLongestPrompt : 1 + below(kLongestPrompt),
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

int SimulatedBatch::stream_of(const Request& request, std::int64_t place) const {
  const bool shared = place < kFamilyBlocks && (place + 1) * kBlock <= request.prompt;
  return shared ? request.family : 3 + static_cast<int>(request.state.id);
}

int SimulatedBatch::found(const Request& request, std::int64_t place) const {
  return blocks_.find(stream_of(request, place), place);
}

// The oldest of its family that still computes what both begin with. Whoever waited for it computes the same here:
// he loses time.
std::int64_t SimulatedBatch::leader_of(std::size_t index) const {
  for (std::size_t i = 0; i < index; ++i)
    if (requests_[i].family == requests_[index].family && requests_[i].state.phase != SequencePhase::decoding &&
        requests_[i].state.length < kFamilyBlocks * kBlock)
      return requests_[i].state.id;
  return -1;
}

const SequenceState& SimulatedBatch::look_at(Request& request) {
  if (request.state.phase == SequencePhase::waiting)
    look_up(request);
  else
    look_at_blocks(request);
  return request.state;
}

void SimulatedBatch::look_up(Request& request) {
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
void SimulatedBatch::look_at_blocks(Request& request) {
  SequenceState& state = request.state;
  state.own_blocks = std::ranges::count_if(request.blocks, [&](int b) { return blocks_.references(b) == 1; });
  const bool frozen = !request.blocks.empty() &&
                      (blocks_.published(request.blocks.back()) || blocks_.references(request.blocks.back()) > 1);
  state.copies = frozen && (state.length % kBlock != 0 || below(4) == 0);
}

SimulatedBatch::Request& SimulatedBatch::request(std::int64_t id) {
  return *std::ranges::find(requests_, id, [](const Request& r) { return r.state.id; });
}

void SimulatedBatch::carry_out(const BatchPlan& plan) {
  for (std::int64_t id : plan.preempted) preempt(request(id));
  for (std::int64_t id : plan.admitted) pin(request(id));
  for (std::int64_t id : plan.admitted) copy_partial_hit(request(id));
  for (const PlannedRows& rows : plan.prompt) open(request(rows.id), rows.rows);
  const auto available = [&] { return blocks_.free() + blocks_.evictable(); };
  const std::int64_t before = available();
  for (const PlannedRows& rows : plan.decoding) open(request(rows.id), rows.rows);
  taken_by_decoders_ += before - available();
  for (const PlannedRows& rows : plan.prompt) commit_prompt(request(rows.id), rows.rows);
  for (const PlannedRows& rows : plan.decoding) commit_tokens(request(rows.id), rows.rows);
  const auto ended = [](const Request& r) { return r.answered >= r.max_tokens; };
  for (Request& one : requests_)
    if (ended(one)) release(one);
  std::erase_if(requests_, ended);
}

void SimulatedBatch::preempt(Request& request) {
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

void SimulatedBatch::pin(Request& request) {
  SequenceState& state = request.state;
  state.phase = SequencePhase::prompt;
  state.preempted = false;
  state.length = state.cached;
  for (std::int64_t place = 0; place * kBlock < state.length; ++place) {
    request.blocks.push_back(found(request, place));
    blocks_.hold(request.blocks.back());
  }
}

void SimulatedBatch::copy_partial_hit(Request& request) {
  if (request.state.length % kBlock != 0) copy_last(request);
  request.state.copies = 0;
}

void SimulatedBatch::copy_last(Request& request) {
  const int copy = take();
  blocks_.let_go(request.blocks.back());
  request.blocks.back() = copy;
}

int SimulatedBatch::take() {
  const int block = blocks_.take();
  if (block < 0) throw std::logic_error("the plan took more blocks than there are");
  return block;
}

void SimulatedBatch::open(Request& request, std::int64_t rows) {
  if (request.state.copies > 0) copy_last(request);
  while (std::ssize(request.blocks) * kBlock < request.state.length + rows) request.blocks.push_back(take());
}

void SimulatedBatch::commit_prompt(Request& request, std::int64_t rows) {
  SequenceState& state = request.state;
  advance(request, rows);
  if (state.length < state.target) return;
  state.phase = SequencePhase::decoding;
  request.answered = std::max<std::int64_t>(request.answered, 1);
}

void SimulatedBatch::commit_tokens(Request& request, std::int64_t rows) {
  const std::int64_t tokens =
      std::min<std::int64_t>(1 + below(static_cast<int>(rows)), request.max_tokens - request.answered);
  request.answered += tokens;
  advance(request, tokens);
}

void SimulatedBatch::advance(Request& request, std::int64_t positions) {
  const std::int64_t before = request.state.length / kBlock;
  request.state.length += positions;
  for (; (std::ssize(request.blocks) - 1) * kBlock >= request.state.length; request.blocks.pop_back())
    blocks_.let_go(request.blocks.back());
  for (std::int64_t place = before; place < request.state.length / kBlock; ++place)
    blocks_.publish(request.blocks[static_cast<std::size_t>(place)], stream_of(request, place), place);
}

void SimulatedBatch::release(Request& request) {
  for (int block : request.blocks) blocks_.let_go(block);
  request.blocks.clear();
}

}  // namespace espalier
