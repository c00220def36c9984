#include "decode/step_invariants.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace espalier {
namespace {

// Looks at the rows [first, first + tree.nodes) of a step.
class TreeRows {
 public:
  TreeRows(const HostTables& tables, const TreeOfStep& tree, std::int64_t first, const KvCache& cache,
           const StepLimits& limits)
      : tables_(tables), tensors_(tree.tensors), branch_(tree.branch), first_(first), cache_(cache), limits_(limits) {}

  void check_row(int row) const {
    const std::int64_t r = first_ + row;
    expect(TreeRule::tree, row, "token", table_entry(tables_.token, r), value(tensors_.token, row));
    expect(TreeRule::position, row, "position", table_entry(tables_.position, r), value(tensors_.position, row));
    expect(TreeRule::slot, row, "slot", table_entry(tables_.slot, r), slot(row));
    check_blocks(row, table_entry(tables_.sequence, r));
    const std::int32_t oldest = oldest_visible(row);
    expect(TreeRule::slot, row, "begin of the context", table_entry(tables_.begin, r),
           std::min(oldest, tensors_.prefix));
    expect(TreeRule::slot, row, "end of the context", table_entry(tables_.end, r), tensors_.prefix);
    check_ancestors(row, oldest);
  }

  void check_mask_bytes() const {
    if (tables_.mask.empty()) return;
    const auto columns = static_cast<std::size_t>(tables_.mask_columns);
    check_mask(tensors_, {.window = limits_.window, .columns = static_cast<std::int32_t>(tables_.mask_columns)},
               tables_.mask.subspan(static_cast<std::size_t>(first_) * columns,
                                    static_cast<std::size_t>(tensors_.nodes) * columns));
  }

 private:
  static std::int32_t value(const std::vector<std::int32_t>& table, int row) {
    return table[static_cast<std::size_t>(row)];
  }

  std::int32_t slot(int row) const { return cache_.slot(branch_, std::int64_t{tensors_.prefix} + row); }

  std::int32_t oldest_visible(int row) const {
    if (limits_.window == 0) return 0;
    return std::max(0, value(tensors_.position, row) - (limits_.window - 1));
  }

  // The block table that the row points to is the branch's: its context lies where the cache put it.
  void check_blocks(int row, std::int64_t sequence) const {
    const auto expected = cache_.blocks(branch_);
    const auto first = static_cast<std::size_t>(sequence * tables_.block_columns);
    if (sequence < 0 || first + expected.size() > tables_.blocks.size())
      throw TreeViolation(TreeRule::slot, row, fmt::format("sequence {}, which has no block table", sequence),
                          tensors_);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expect(TreeRule::slot, row, "block of the context", tables_.blocks[first + i], expected[i]);
  }

  void check_ancestors(int row, std::int32_t oldest) const {
    const std::int64_t r = first_ + row;
    std::int32_t count = 0;
    for (std::int32_t ancestor : tensors_.ancestors(row)) {
      if (value(tensors_.position, ancestor) < oldest) continue;
      if (count < table_entry(tables_.ancestor_count, r))
        expect(TreeRule::slot, row, "slot of an ancestor",
               table_entry(tables_.ancestors, r * tables_.ancestor_columns + count), slot(ancestor));
      ++count;
    }
    expect(TreeRule::slot, row, "number of ancestors", table_entry(tables_.ancestor_count, r), count);
    for (std::int64_t i = count; i < tables_.ancestor_columns; ++i)
      expect(TreeRule::slot, row, "unused entry of the ancestors",
             table_entry(tables_.ancestors, r * tables_.ancestor_columns + i), 0);
  }

  void expect(TreeRule rule, int row, std::string_view what, std::int32_t got, std::int32_t expected) const {
    if (got != expected)
      throw TreeViolation(rule, row, fmt::format("{} {}, expected {}", what, got, expected), tensors_);
  }

  const HostTables& tables_;
  const TreeTensors& tensors_;
  SequenceId branch_;
  std::int64_t first_;
  const KvCache& cache_;
  const StepLimits& limits_;
};

}  // namespace

void check_padding_rows(const HostTables& tables, std::int64_t first, const KvCache& cache, const TreeTensors& shown) {
  for (std::int64_t r = first; r < tables.rows; ++r) {
    const auto fail = [&](std::string_view what) {
      throw TreeViolation(TreeRule::padding, static_cast<int>(r), what, shown);
    };
    if (table_entry(tables.token, r) != 0 || table_entry(tables.position, r) != 0)
      fail("the row has a token or a position other than 0");
    if (table_entry(tables.slot, r) != cache.padding_slot(r - first))
      fail("the row writes a slot that is not for padding");
    if (table_entry(tables.begin, r) != table_entry(tables.end, r) || table_entry(tables.ancestor_count, r) != 0)
      fail("the row has a context or ancestors");
    if (tables.mask.empty()) continue;
    const auto columns = static_cast<std::size_t>(tables.mask_columns);
    const auto hidden = tables.mask.subspan(static_cast<std::size_t>(r) * columns, columns);
    if (std::ranges::count(hidden, std::uint8_t{0}) != 1 || hidden[static_cast<std::size_t>(r - first)] != 0)
      fail("the row sees more than itself");
  }
}

void check_step(const HostTables& tables, std::span<const TreeOfStep> trees, const KvCache& cache,
                const StepLimits& limits) {
  std::int64_t first = 0;
  for (const TreeOfStep& tree : trees) {
    check_tensors(tree.tensors, limits.tree);
    check_tensors_match(tree.tensors, *tree.tree);
    const TreeRows rows(tables, tree, first, cache, limits);
    for (int row = 0; row < tree.tensors.nodes; ++row) rows.check_row(row);
    rows.check_mask_bytes();
    first += tree.tensors.nodes;
  }
  check_padding_rows(tables, first, cache, trees.back().tensors);
}

}  // namespace espalier
