// What a batch has done and what it is doing, in numbers, for whoever watches it. Counters never fall; they count what
// is complete, so they agree with each other between two steps. Plain values: asking for them costs a copy, and changes
// nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "decode/drafter.h"
#include "decode/request.h"

namespace espalier {

struct Answer;
struct PromptPart;

// Guesses that were verified.
struct DraftCounts {
  std::int64_t drafts = 0;                           // trees with at least one
  std::int64_t tokens = 0;                           // rows of trees
  std::int64_t accepted_tokens = 0;                  // of those
  std::vector<std::int64_t> accepted_by_depth = {};  // of those, at depth 1, 2, ...

  // A verified tree: its guesses that have one of these sources.
  void count(const TokenTree& tree, std::span<const Visit> visits, SourceSet sources);
};

struct DrafterCounts {
  std::string name;
  DraftCounts counts = {};  // a token that two drafters guessed counts for both
};

struct RowCounts {
  std::int64_t roots = 0;
  std::int64_t drafts = 0;
  std::int64_t prompts = 0;
  std::int64_t padding = 0;  // rows that filled a bucket of the device, or what a recording has
};

struct BatchStatistics {
  std::int64_t steps = 0;                    // of the teacher, that were not in vain
  std::int64_t resident_steps = 0;           // of those, in rounds that stayed on the device
  RowCounts rows = {};                       // of those
  double step_seconds = 0;                   // of whole steps of the batch: planning, drafting, computing, telling
  double draft_seconds = 0;                  // of those, drafting
  DraftCounts drafts = {};                   // a token that two drafters guessed counts once
  std::vector<DrafterCounts> drafters = {};  // by source bit
  std::int64_t preemptions = 0;
  // Prompts that have been read, once each; an answer that is computed again after a preemption counts no more.
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_prompt_tokens = 0;  // of those, found in the cache
  std::int64_t answer_tokens = 0;         // drawn
  // The prefix cache: tokens of prompts that were looked for, when they were admitted, and those found by then or
  // while the prompt was read; blocks that had to make room.
  std::int64_t prefix_queries = 0;
  std::int64_t prefix_hits = 0;
  std::int64_t prefix_evictions = 0;

  // A step of the teacher has computed these.
  void count_step(std::span<Answer* const> trees, std::span<const PromptPart> prompts, std::int64_t padding);
  // The same of one that stayed on the device, with rows for the largest trees.
  void count_resident(std::span<Answer* const> trees, std::int64_t rows);
  void count_round(const TokenTree& tree, std::span<const Visit> visits);
  void count_prompt(const Answer& answer);
};

// The blocks of the pool, each in one state: the sum is the pool.
struct PoolCounts {
  std::int64_t free = 0;
  std::int64_t cached = 0;   // nobody holds them, and they give way to what is needed
  std::int64_t held = 0;     // by answers
  std::int64_t padding = 0;  // where rows write that only fill a step

  std::int64_t all() const { return free + cached + held + padding; }
};

// An answer that runs.
struct RunningAnswer {
  RequestId id = 0;
  bool decodes = false;  // its prompt has been read
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt
  std::int64_t computed = 0;       // positions of prompt and answer that are in the cache
  std::int64_t answer_tokens = 0;  // drawn
  std::int64_t rounds = 0;
  std::int64_t verified_rows = 0;    // roots included
  std::int64_t accepted_tokens = 0;  // of drafts

  double accept_length() const;  // the mean of all rounds so far; 0 without any
};
RunningAnswer running_answer(const Answer& answer);

}  // namespace espalier
