// Who is in the next step of a batch, and with how many rows. A pure function from the states of all requests, the
// blocks of the pool and the costs of steps to a plan: no device, no clock, no cache. The batch carries the plan out.
//
//   Admission    Those that were preempted first, the oldest before all; then the lowest priority, in each round robin
//                over keys, in each by arrival. Whoever stands first and does not fit keeps the others waiting, so
//                nobody is overtaken but by lower priorities: those may starve the others for as long as they come.
//   Roots        Every sequence that decodes is in every step.
//   Prompt rows  As many as fit where nobody decodes; else as many as the step can carry within stall_seconds or twice
//                the time of its roots, but kLeastPromptRows at least. Half to the oldest prompt, half to the one with
//                the fewest left. Prompts that begin alike are read one after the other: whoever has a leader, an
//                older one that is being read, gets no rows until it finds what that has computed.
//   Short        Where blocks are short, trees are cut, then prompt rows, of the newest first; then the newest running
//                sequence is preempted, never the oldest.
//
// Why every request ends that fits(): the oldest running sequence gets a row in every step and is never preempted, so
// it ends. While a preempted one waits nobody new is admitted, so at last it runs, alone if need be; and then only
// older ones can preempt it, of which there are ever fewer. Admission counts what running prompts still need, so a step
// that admits somebody is never short. The oldest prompt has no leader. Priorities decide who is admitted, and nothing
// else: who runs is served by age.
//
// A step of more rows than the table of costs has is not foreseen here: the batch takes several.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "decode/priority.h"

namespace espalier {

// Behind thousands of positions a few rows alone may take longer than anybody likes to wait.
inline constexpr std::int64_t kLeastPromptRows = 1;

enum class SequencePhase { waiting, prompt, decoding };

// One request. What only one phase has is ignored in the others.
struct SequenceState {
  std::int64_t id = 0;  // in the order of arrival, kept when it is preempted
  SequencePhase phase = SequencePhase::waiting;
  std::int64_t target = 1;  // positions to compute before it decodes: the prompt, and the answer that is recomputed
  int rows_wanted = 1;      // that a branch of it opens at most: the larger of tree rows and draft rows

  // An older one that computes most of what this one lacks of its prompt; -1: nobody. Of no meaning once it decodes, or
  // where that one waits or decodes.
  std::int64_t leader = -1;

  // Waiting.
  int key = 0;              // whose request it is
  int priority = 0;         // kFirstPriority to kLastPriority
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

// Of each priority the key that was admitted last: its next request comes after those of the others.
struct LastKeys {
  std::array<int, kLastPriority - kFirstPriority + 1> keys = {};

  int& of(int priority) { return keys.at(static_cast<std::size_t>(priority - kFirstPriority)); }
  int of(int priority) const { return keys.at(static_cast<std::size_t>(priority - kFirstPriority)); }
  bool operator==(const LastKeys&) const = default;
};

struct BatchState {
  std::span<const SequenceState> sequences = {};  // by id
  PoolState pool = {};
  std::span<const double> step_seconds = {};  // [n - 1]: of a step of n rows, never falling
  LastKeys last_keys = {};                    // plan.last_keys of the step before
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
  LastKeys last_keys = {};

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
