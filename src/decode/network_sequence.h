// What the sequences of drafters that run a network have in common: rounds whose nodes are rows of a branch, and what
// the tables of their passes must say (draft_invariants.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/kv_cache.h"
#include "decode/draft_invariants.h"
#include "decode/draft_pass.h"
#include "decode/drafter.h"

namespace espalier {

class NetworkSequence : public DraftSequence {
 public:
  // The rows of the round's first pass, as far as they are in this part.
  virtual RunOfStep expected_run(const DraftPart& part) const = 0;
  // The rows of a later pass: all nodes of the round up to those of this part of the job.
  DraftedNodes drafted_nodes(const DraftJob& job, const DraftPart& part) const;

 protected:
  // As DraftedNodes has them.
  struct NodePlaces {
    std::int32_t prefix = 0;
    std::int32_t begin = 0;
    std::int32_t root_position = 0;
  };
  virtual NodePlaces node_places() const = 0;

  // Of the round.
  const Branch* branch_ = nullptr;
  std::vector<int> drafted_;  // the candidates on rows of the branch, in the order of their places
};

// Of a pass of such sequences: the first of a round, or a later one. What they are given must outlive the pass.
StepCheck check_of_first_pass(std::span<const DraftJob> jobs, std::span<const DraftPart> parts,
                              const BlockTables& blocks, const StepLimits& limits);
StepCheck check_of_nodes(std::span<const DraftJob> jobs, std::span<const DraftPart> parts, const BlockTables& blocks,
                         const StepLimits& limits);

}  // namespace espalier
