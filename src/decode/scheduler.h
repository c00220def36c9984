// Who is in the next step of a batch, and with how many rows. A pure function from the states of all requests, the
// blocks of the pool and the costs of steps to a plan: no device, no clock, no cache. The batch carries the plan out.
//
//   Admission    Those that were preempted first, the oldest before all; then round robin over keys, in each by
//                arrival. Whoever stands first and does not fit keeps the others waiting, so nobody is overtaken.
//   Roots        Every sequence that decodes is in every step.
//   Prompt rows  As many as fit where nobody decodes; else as many as the step can carry within stall_seconds or twice
//                the time of its roots, but kLeastPromptRows at least. Half to the oldest prompt, half to the one with
//                the fewest left.
//   Short        Where blocks are short, trees are cut, then prompt rows, of the newest first; then the newest running
//                sequence is preempted, never the oldest.
//
// Why every request ends that fits(): the oldest running sequence gets a row in every step and is never preempted, so
// it ends. While a preempted one waits nobody new is admitted, so at last it runs, alone if need be; and then only
// older ones can preempt it, of which there are ever fewer. Admission counts what running prompts still need, so a step
// that admits somebody is never short.
//
// A step of more rows than the table of costs has is not foreseen here: the batch takes several.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace espalier {

inline constexpr std::int64_t kLeastPromptRows = 16;

enum class SequencePhase { waiting, prompt, decoding };

// One request. What only one phase has is ignored in the others.
struct SequenceState {
  std::int64_t id = 0;  // in the order of arrival, kept when it is preempted
  SequencePhase phase = SequencePhase::waiting;
  std::int64_t target = 1;  // positions to compute before it decodes: the prompt, and the answer that is recomputed
  int rows_wanted = 1;      // that a branch of it opens at most: the larger of tree rows and draft rows

  // Waiting.
  int key = 0;              // whose request it is
  bool preempted = false;   // it has been running
  std::int64_t cached = 0;  // positions that it would share or copy on admission, fewer than target
  std::int64_t pinned = 0;  // whole blocks among these that count as evictable until then, not one it copies from

  // Running.
  std::int64_t length = 0;      // committed positions
  std::int64_t own_blocks = 0;  // that no other sequence holds: they come back when it is preempted
  std::int64_t copies = 0;      // blocks that opening a branch would copy, because others may read them
};

struct PoolState {
  std::int64_t block_size = 128;
  std::int64_t all_blocks = 0;
  std::int64_t free_blocks = 0;       // plain ones
  std::int64_t evictable_blocks = 0;  // cached, and nobody holds them
};

struct SchedulerLimits {
  int parallel = 1;                 // running sequences
  std::int64_t prefill_rows = 512;  // prompt rows of a step
  std::int64_t reserve = 128;  // positions that a sequence must have room for beyond its prompt when it is admitted
  double stall_seconds = 0.1;  // that a step may always take
};

struct BatchState {
  std::span<const SequenceState> sequences = {};  // by id
  PoolState pool = {};
  std::span<const double> step_seconds = {};  // [n - 1]: of a step of n rows, never falling
  int last_key = 0;                           // plan.last_key of the step before
};

struct PlannedRows {
  std::int64_t id = 0;
  std::int64_t rows = 0;

  bool operator==(const PlannedRows&) const = default;
};

// To be carried out from top to bottom; the blocks that this takes are free or can be evicted.
struct BatchPlan {
  std::vector<std::int64_t> preempted = {};  // newest first
  std::vector<std::int64_t> admitted = {};   // all their hits are pinned, then parts of blocks are copied
  std::vector<PlannedRows> prompt = {};      // by id; without those that get none
  std::vector<PlannedRows> decoding = {};    // by id: the rows their branches may open, the root included
  int last_key = 0;

  bool operator==(const BatchPlan&) const = default;
};

// The most positions of prompt and answer together that a request of so many rows may ask for.
std::int64_t capacity(const PoolState& pool, const SchedulerLimits& limits, int rows_wanted);
// Whether a request can be answered at all, if by itself. The others are refused on arrival.
bool fits(const PoolState& pool, const SchedulerLimits& limits, std::int64_t prompt, std::int64_t max_tokens,
          int rows_wanted);

// All sequences must fit the pool by themselves. Where any wait or run, at least one gets a row.
BatchPlan plan_batch(const BatchState& state, const SchedulerLimits& limits);

}  // namespace espalier
