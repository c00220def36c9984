// The rows of a draft pass against the tables that are about to be launched: what step_invariants.h is for the teacher.
// Everything is computed again from the candidates, the order in which they became rows, and the blocks. Reference mode
// checks every launch of every drafter that runs a network.
#pragma once

#include <cstdint>
#include <span>

#include "cache/block_tables.h"
#include "decode/step_invariants.h"
#include "model/step_tables.h"
#include "tree/candidates.h"

namespace espalier {

// Candidates as rows of a drafter's branch. Each is a row once, behind the rows of its ancestors; the root is the row
// before them all, or none.
struct DraftedNodes {
  const Candidates* candidates = nullptr;
  std::span<const int> nodes;      // all of the round so far, in the order of their places; the step's are the last
  std::int64_t step_rows = 0;      // how many of them the step computes
  SequenceId branch = 0;           //
  std::int32_t prefix = 0;         // the place of nodes[0]; the context of every row ends here
  std::int32_t begin = 0;          // where it begins, unless the window says later
  std::int32_t root_position = 0;  // of a row at depth 0
};

// Both throw TreeViolation unless tables, slots and mask are those of the rows, one sequence behind the other, and
// padding rows see only themselves.
void check_draft_step(const HostTables& tables, std::span<const RunOfStep> runs, const BlockTables& blocks,
                      const StepLimits& limits);
void check_draft_step(const HostTables& tables, std::span<const DraftedNodes> sequences, const BlockTables& blocks,
                      const StepLimits& limits);

}  // namespace espalier
