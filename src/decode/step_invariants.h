// The trees of a step against the tables that are about to be launched: everything is computed again from the trees and
// the cache, so a mistake in how the tables were made cannot hide itself. Reference mode checks every launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/kv_cache.h"
#include "model/step_tables.h"
#include "tree/tree_invariants.h"
#include "tree/tree_tensors.h"

namespace espalier {

// The rows of one tree inside a step: as many as it has nodes, one tree behind the other.
struct TreeOfStep {
  const TokenTree* tree = nullptr;
  TreeTensors tensors = {};
  SequenceId branch = 0;
};

struct StepLimits {
  TreeLimits tree = {};
  std::int32_t window = 0;  // keys a row of the teacher sees, itself included; 0: all
};

// Entry i of a table of HostTables.
template <typename T>
T table_entry(std::span<const T> table, std::int64_t i) {
  return table[static_cast<std::size_t>(i)];
}

// Throws TreeViolation unless tensors, tables, slots and mask are those of the trees, and padding rows see only
// themselves.
void check_step(const HostTables& tables, std::span<const TreeOfStep> trees, const KvCache& cache,
                const StepLimits& limits);

// The part of it about the rows from `first` on: each holds token 0 at position 0, writes a padding slot and sees
// nothing else. `shown`: the rows that a violation shows.
void check_padding_rows(const HostTables& tables, std::int64_t first, const KvCache& cache, const TreeTensors& shown);

}  // namespace espalier
