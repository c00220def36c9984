// The rows of a step against the tables that are about to be launched: everything is computed again from the trees and
// the blocks, so a mistake in how the tables were made cannot hide itself. Reference mode checks every launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cache/block_tables.h"
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

// Text inside a step, row by row: row i has the place first + i and sees the places before it, from `begin` on.
struct RunOfStep {
  SequenceId branch = 0;
  std::int32_t first = 0;
  std::int32_t position = 0;              // of row 0
  std::int32_t begin = 0;                 // unless the window says later
  std::vector<std::int32_t> tokens = {};  // what each row embeds
};

struct StepLimits {
  TreeLimits tree = {};
  std::int32_t window = 0;  // keys a row sees, itself included; 0: all

  // The first position that a row at this one sees.
  std::int32_t oldest_visible(std::int32_t position) const {
    return window == 0 ? 0 : std::max(0, position - (window - 1));
  }
};

// What the tables must say of one row.
struct ExpectedRow {
  std::int32_t token = 0;
  std::int32_t position = 0;
  std::int32_t place = 0;
  std::int32_t begin = 0;  // the context: places [begin, end)
  std::int32_t end = 0;
  std::vector<std::int32_t> ancestors = {};  // places, root first
};

// The rows of one branch inside a step, one behind the other. Whatever is handed in must outlive this; `shown`: the
// rows that a violation shows. All throw TreeViolation.
class StepRows {
 public:
  // first: the row of the tables where they begin.
  StepRows(const HostTables& tables, std::int64_t first, SequenceId branch, const BlockTables& blocks,
           const StepLimits& limits, const TreeTensors& shown)
      : tables_(tables), first_(first), branch_(branch), blocks_(blocks), limits_(limits), shown_(shown) {}

  // The tables have room for so many of them.
  void check_size(std::int64_t rows) const;
  // Row `row` of them: columns, block table, ancestors and mask.
  void check_row(std::int64_t row, const ExpectedRow& expected) const;

 private:
  void check_blocks(std::int64_t row) const;
  void check_ancestors(std::int64_t row, const ExpectedRow& expected) const;
  void check_mask(std::int64_t row, const ExpectedRow& expected) const;
  void expect(TreeRule rule, std::int64_t row, std::string_view what, std::int32_t got, std::int32_t expected) const;
  [[noreturn]] void fail(TreeRule rule, std::int64_t row, std::string_view what) const;

  const HostTables& tables_;
  std::int64_t first_;
  SequenceId branch_;
  const BlockTables& blocks_;
  const StepLimits& limits_;
  const TreeTensors& shown_;
};

// Throws TreeViolation unless tensors, tables, slots and mask are those of the trees and, behind them, of the text, and
// padding rows see only themselves. For text the window counts places.
void check_step(const HostTables& tables, std::span<const TreeOfStep> trees, std::span<const RunOfStep> runs,
                const BlockTables& blocks, const StepLimits& limits);

// The part of it about the rows from `first` on: each holds token 0 at position 0, writes a padding slot and sees
// nothing else. `shown`: the rows that a violation shows.
void check_padding_rows(const HostTables& tables, std::int64_t first, const BlockTables& blocks,
                        const TreeTensors& shown);

}  // namespace espalier
