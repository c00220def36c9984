#include "decode/draft_invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace espalier {
namespace {

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
    const std::int32_t position = drafted_.root_position + candidate.depth, oldest = limits_.oldest_visible(position);
    ExpectedRow expected{.token = candidate.token,
                         .position = position,
                         .place = drafted_.prefix + static_cast<std::int32_t>(row),
                         .begin = std::max(oldest, drafted_.begin),
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

void check_draft_step(const HostTables& tables, std::span<const RunOfStep> runs, const BlockTables& blocks,
                      const StepLimits& limits) {
  check_step(tables, {}, runs, blocks, limits);
}

void check_draft_step(const HostTables& tables, std::span<const DraftedNodes> sequences, const BlockTables& blocks,
                      const StepLimits& limits) {
  std::int64_t first = 0;
  for (const DraftedNodes& drafted : sequences) {
    const NodeRows nodes(drafted, limits);
    nodes.check_nodes();
    const StepRows rows(tables, first, drafted.branch, blocks, limits, nodes.shown());
    rows.check_size(drafted.step_rows);
    const std::size_t before = drafted.nodes.size() - static_cast<std::size_t>(drafted.step_rows);
    for (std::int64_t r = 0; r < drafted.step_rows; ++r)
      rows.check_row(r, nodes.expected(before + static_cast<std::size_t>(r)));
    first += drafted.step_rows;
  }
  check_padding_rows(tables, first, blocks, TreeTensors());
}

}  // namespace espalier
