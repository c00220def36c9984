#include "decode/draft_invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace espalier {
namespace {

// What the tables must say of one row.
struct ExpectedRow {
  std::int32_t token = 0;
  std::int32_t position = 0;
  std::int32_t place = 0;
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::vector<std::int32_t> ancestors = {};  // places, root first
};

// The tables of a step, and the rows to show where they are wrong.
class DraftRows {
 public:
  DraftRows(const HostTables& tables, SequenceId branch, const KvCache& cache, const StepLimits& limits,
            const TreeTensors& shown)
      : tables_(tables), branch_(branch), cache_(cache), limits_(limits), shown_(shown) {}

  void check_row(std::int64_t r, const ExpectedRow& row) const {
    if (row.token < 0 || row.token >= limits_.tree.vocabulary)
      fail(TreeRule::range, r, fmt::format("token {}, the vocabulary has {}", row.token, limits_.tree.vocabulary));
    if (row.position < 0 || row.position >= limits_.tree.positions)
      fail(TreeRule::range, r, fmt::format("position {} of {}", row.position, limits_.tree.positions));
    expect(TreeRule::tree, r, "token", table_entry(tables_.token, r), row.token);
    expect(TreeRule::position, r, "position", table_entry(tables_.position, r), row.position);
    expect(TreeRule::slot, r, "slot", table_entry(tables_.slot, r), cache_.slot(branch_, row.place));
    check_blocks(r);
    expect(TreeRule::slot, r, "begin of the context", table_entry(tables_.begin, r), row.begin);
    expect(TreeRule::slot, r, "end of the context", table_entry(tables_.end, r), row.end);
    check_ancestors(r, row);
    check_mask(r, row);
  }

  void check_size(std::int64_t rows) const {
    if (tables_.rows < rows)
      fail(TreeRule::shape, tables_.rows, fmt::format("{} rows, expected {}", tables_.rows, rows));
  }

 private:
  // The row names the branch's own block table: its context lies where the cache put it.
  void check_blocks(std::int64_t r) const {
    const auto expected = cache_.blocks(branch_);
    const std::int64_t sequence = table_entry(tables_.sequence, r);
    const auto first = static_cast<std::size_t>(sequence * tables_.block_columns);
    if (sequence < 0 || first + expected.size() > tables_.blocks.size())
      fail(TreeRule::slot, r, fmt::format("sequence {}, which has no block table", sequence));
    for (std::size_t i = 0; i < expected.size(); ++i)
      expect(TreeRule::slot, r, "block of the context", tables_.blocks[first + i], expected[i]);
  }

  void check_ancestors(std::int64_t r, const ExpectedRow& row) const {
    const auto count = static_cast<std::int32_t>(row.ancestors.size());
    expect(TreeRule::slot, r, "number of ancestors", table_entry(tables_.ancestor_count, r), count);
    for (std::int32_t i = 0; i < count; ++i)
      expect(TreeRule::slot, r, "slot of an ancestor", table_entry(tables_.ancestors, r * tables_.ancestor_columns + i),
             cache_.slot(branch_, row.ancestors[static_cast<std::size_t>(i)]));
  }

  void check_mask(std::int64_t r, const ExpectedRow& row) const {
    if (tables_.mask.empty()) return;
    for (std::int32_t column = 0; column < tables_.mask_columns; ++column) {
      const bool sees = (column >= row.begin && column < row.end) || column == row.place ||
                        std::ranges::find(row.ancestors, column) != row.ancestors.end();
      if ((table_entry(tables_.mask, r * tables_.mask_columns + column) == 0) != sees)
        fail(TreeRule::mask, r, fmt::format("column {} is {}", column, sees ? "hidden" : "visible"));
    }
  }

  void expect(TreeRule rule, std::int64_t row, std::string_view what, std::int32_t got, std::int32_t expected) const {
    if (got != expected) fail(rule, row, fmt::format("{} {}, expected {}", what, got, expected));
  }

  [[noreturn]] void fail(TreeRule rule, std::int64_t row, std::string_view what) const {
    throw TreeViolation(rule, static_cast<int>(row), what, shown_);
  }

  const HostTables& tables_;
  SequenceId branch_;
  const KvCache& cache_;
  const StepLimits& limits_;
  const TreeTensors& shown_;
};

// The first position that a row at this one sees.
std::int32_t oldest_visible(std::int32_t position, const StepLimits& limits) {
  return limits.window == 0 ? 0 : std::max(0, position - (limits.window - 1));
}

// Drafted nodes as the tables that a violation shows; parents that are no rows appear as row 0.
TreeTensors shown_rows(const DraftedNodes& drafted, const std::unordered_map<int, std::int32_t>& row_of) {
  TreeTensors shown;
  shown.prefix = drafted.prefix;
  shown.nodes = static_cast<std::int32_t>(drafted.nodes.size());
  for (int node : drafted.nodes) {
    const Candidate& candidate = (*drafted.candidates)[node];
    const auto parent = row_of.find(candidate.parent);
    shown.token.push_back(candidate.token);
    shown.parent.push_back(parent == row_of.end() ? 0 : parent->second);
    shown.depth.push_back(candidate.depth);
    shown.position.push_back(drafted.root_position + candidate.depth);
    shown.levels = std::max(shown.levels, candidate.depth + 1);
  }
  return shown;
}

// Where every candidate stands, and what its row must say.
class NodeRows {
 public:
  NodeRows(const DraftedNodes& drafted, const StepLimits& limits) : drafted_(drafted), limits_(limits) {
    for (int node : drafted.nodes) row_of_.emplace(node, static_cast<std::int32_t>(row_of_.size()));
    shown_ = shown_rows(drafted, row_of_);
  }

  const TreeTensors& shown() const { return shown_; }

  void check_nodes() const {
    if (row_of_.size() != drafted_.nodes.size())
      throw TreeViolation(TreeRule::tree, 0, "a candidate is a row twice", shown_);
    for (const auto& [node, row] : row_of_) {
      const int parent = (*drafted_.candidates)[node].parent;
      const auto above = row_of_.find(parent);
      if (parent == 0 ? above != row_of_.end() && above->second != 0 : above == row_of_.end() || above->second >= row)
        throw TreeViolation(TreeRule::order, row, fmt::format("candidate {} before its parent {}", node, parent),
                            shown_);
    }
  }

  ExpectedRow expected(std::size_t row) const {
    const Candidate& candidate = node(drafted_.nodes[row]);
    const std::int32_t position = drafted_.root_position + candidate.depth, oldest = oldest_visible(position, limits_);
    ExpectedRow expected{.token = candidate.token,
                         .position = position,
                         .place = drafted_.prefix + static_cast<std::int32_t>(row),
                         .begin = std::min(std::max(oldest, drafted_.begin), drafted_.prefix),
                         .end = drafted_.prefix};
    for (int id = drafted_.nodes[row]; id != 0;) {
      id = node(id).parent;
      const auto above = row_of_.find(id);
      if (above != row_of_.end() && drafted_.root_position + node(id).depth >= oldest)
        expected.ancestors.insert(expected.ancestors.begin(), drafted_.prefix + above->second);
    }
    return expected;
  }

 private:
  const Candidate& node(int id) const { return (*drafted_.candidates)[id]; }

  const DraftedNodes& drafted_;
  const StepLimits& limits_;
  std::unordered_map<int, std::int32_t> row_of_;
  TreeTensors shown_;
};

}  // namespace

void check_draft_step(const HostTables& tables, const DraftRun& run, const KvCache& cache, const StepLimits& limits) {
  TreeTensors shown;
  shown.prefix = run.first;
  shown.nodes = static_cast<std::int32_t>(run.tokens.size());
  shown.token.assign(run.tokens.begin(), run.tokens.end());
  const DraftRows rows(tables, run.branch, cache, limits, shown);
  rows.check_size(shown.nodes);
  for (std::int32_t r = 0; r < shown.nodes; ++r) {
    const std::int32_t place = run.first + r;
    rows.check_row(r, {.token = table_entry(run.tokens, r),
                       .position = place,
                       .place = place,
                       .begin = oldest_visible(place, limits),
                       .end = place});
  }
  check_padding_rows(tables, shown.nodes, cache, shown);
}

void check_draft_step(const HostTables& tables, const DraftedNodes& drafted, const KvCache& cache,
                      const StepLimits& limits) {
  const NodeRows nodes(drafted, limits);
  nodes.check_nodes();
  const DraftRows rows(tables, drafted.branch, cache, limits, nodes.shown());
  rows.check_size(drafted.step_rows);
  const std::size_t first = drafted.nodes.size() - static_cast<std::size_t>(drafted.step_rows);
  for (std::int64_t r = 0; r < drafted.step_rows; ++r)
    rows.check_row(r, nodes.expected(first + static_cast<std::size_t>(r)));
  check_padding_rows(tables, drafted.step_rows, cache, nodes.shown());
}

}  // namespace espalier
