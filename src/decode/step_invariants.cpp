#include "decode/step_invariants.h"

#include <fmt/format.h>

#include <algorithm>

namespace espalier {
namespace {

// Entry i of a table of HostTables.
template <typename T>
T table_entry(std::span<const T> table, std::int64_t i) {
  return table[static_cast<std::size_t>(i)];
}

ExpectedRow expected_row(const TreeTensors& tensors, int row, const StepLimits& limits) {
  const auto position = [&](std::int32_t node) { return tensors.position[static_cast<std::size_t>(node)]; };
  const std::int32_t oldest = limits.oldest_visible(position(row));
  ExpectedRow expected{.token = tensors.token[static_cast<std::size_t>(row)],
                       .position = position(row),
                       .place = tensors.prefix + row,
                       .begin = oldest,
                       .end = tensors.prefix};
  for (std::int32_t ancestor : tensors.ancestors(row))
    if (position(ancestor) >= oldest) expected.ancestors.push_back(tensors.prefix + ancestor);
  return expected;
}

// `first`: the row of the tables where the text begins.
void check_run(const HostTables& tables, std::int64_t first, const RunOfStep& run, const BlockTables& blocks,
               const StepLimits& limits) {
  TreeTensors shown;
  shown.prefix = run.first;
  shown.nodes = static_cast<std::int32_t>(run.tokens.size());
  shown.token = run.tokens;
  const StepRows rows(tables, first, run.branch, blocks, limits, shown);
  rows.check_size(shown.nodes);
  for (std::int32_t r = 0; r < shown.nodes; ++r) {
    const std::int32_t place = run.first + r;
    rows.check_row(r, {.token = run.tokens[static_cast<std::size_t>(r)],
                       .position = run.position + r,
                       .place = place,
                       .begin = std::max(run.begin, limits.oldest_visible(place)),
                       .end = place});
  }
}

}  // namespace

void StepRows::check_size(std::int64_t rows) const {
  if (tables_.rows < first_ + rows)
    fail(TreeRule::shape, tables_.rows - first_, fmt::format("{} rows, expected {}", tables_.rows - first_, rows));
}

void StepRows::check_row(std::int64_t row, const ExpectedRow& expected) const {
  const std::int64_t r = first_ + row;
  if (expected.token < 0 || expected.token >= limits_.tree.vocabulary)
    fail(TreeRule::range, row, fmt::format("token {}, the vocabulary has {}", expected.token, limits_.tree.vocabulary));
  if (expected.position < 0 || expected.position >= limits_.tree.positions)
    fail(TreeRule::range, row, fmt::format("position {} of {}", expected.position, limits_.tree.positions));
  expect(TreeRule::tree, row, "token", table_entry(tables_.token, r), expected.token);
  expect(TreeRule::position, row, "position", table_entry(tables_.position, r), expected.position);
  expect(TreeRule::slot, row, "slot", table_entry(tables_.slot, r), blocks_.slot(branch_, expected.place));
  check_blocks(row);
  expect(TreeRule::slot, row, "begin of the context", table_entry(tables_.begin, r), expected.begin);
  expect(TreeRule::slot, row, "end of the context", table_entry(tables_.end, r), expected.end);
  check_ancestors(row, expected);
  check_mask(row, expected);
}

// The block table that the row points to is the branch's, as far as rows see it: its context lies where the cache put
// it.
void StepRows::check_blocks(std::int64_t row) const {
  const auto columns = static_cast<std::size_t>(tables_.block_columns);
  const auto all = blocks_.blocks(branch_);
  const auto expected = all.first(std::min(all.size(), columns));
  const std::int64_t sequence = table_entry(tables_.sequence, first_ + row);
  const auto first = static_cast<std::size_t>(sequence) * columns;
  if (sequence < 0 || first + columns > tables_.blocks.size())
    fail(TreeRule::slot, row, fmt::format("sequence {}, which has no block table", sequence));
  if (table_entry(tables_.end, first_ + row) > tables_.block_columns * blocks_.block_size())
    fail(TreeRule::shape, row, fmt::format("a context that ends behind {} blocks", columns));
  for (std::size_t i = 0; i < expected.size(); ++i)
    expect(TreeRule::slot, row, "block of the context", tables_.blocks[first + i], expected[i]);
}

void StepRows::check_ancestors(std::int64_t row, const ExpectedRow& expected) const {
  const auto count = std::ssize(expected.ancestors);
  expect(TreeRule::slot, row, "number of ancestors", table_entry(tables_.ancestor_count, first_ + row),
         static_cast<std::int32_t>(count));
  if (count > tables_.ancestor_columns)
    fail(TreeRule::shape, row, fmt::format("{} columns for {} ancestors", tables_.ancestor_columns, count));
  for (std::int64_t i = 0; i < tables_.ancestor_columns; ++i) {
    const std::int32_t got = table_entry(tables_.ancestors, (first_ + row) * tables_.ancestor_columns + i);
    if (i < count)
      expect(TreeRule::slot, row, "slot of an ancestor", got,
             blocks_.slot(branch_, expected.ancestors[static_cast<std::size_t>(i)]));
    else
      expect(TreeRule::slot, row, "unused entry of the ancestors", got, 0);
  }
}

void StepRows::check_mask(std::int64_t row, const ExpectedRow& expected) const {
  if (tables_.mask.empty()) return;
  const std::int64_t columns = tables_.mask_columns;
  if (columns <= expected.place || columns % kMaskColumns != 0 || std::ssize(tables_.mask) != tables_.rows * columns)
    fail(TreeRule::shape, row, fmt::format("a mask of {} bytes in {} columns", tables_.mask.size(), columns));
  std::vector<std::uint8_t> hidden(static_cast<std::size_t>(columns), 1);
  // Nothing where a window begins among the ancestors.
  for (std::int32_t place = expected.begin; place < expected.end; ++place) hidden[static_cast<std::size_t>(place)] = 0;
  for (std::int32_t place : expected.ancestors) hidden[static_cast<std::size_t>(place)] = 0;
  hidden[static_cast<std::size_t>(expected.place)] = 0;
  const auto got = tables_.mask.subspan(static_cast<std::size_t>((first_ + row) * columns), hidden.size());
  const auto [wrong, right] = std::ranges::mismatch(got, hidden);
  if (wrong != got.end())
    fail(TreeRule::mask, row, fmt::format("column {} is {}, expected {}", wrong - got.begin(), *wrong, *right));
}

void StepRows::expect(TreeRule rule, std::int64_t row, std::string_view what, std::int32_t got,
                      std::int32_t expected) const {
  if (got != expected) fail(rule, row, fmt::format("{} {}, expected {}", what, got, expected));
}

void StepRows::fail(TreeRule rule, std::int64_t row, std::string_view what) const {
  throw TreeViolation(rule, static_cast<int>(row), what, shown_);
}

void check_padding_rows(const HostTables& tables, std::int64_t first, const BlockTables& blocks,
                        const TreeTensors& shown) {
  for (std::int64_t r = first; r < tables.rows; ++r) {
    const auto fail = [&](std::string_view what) {
      throw TreeViolation(TreeRule::padding, static_cast<int>(r), what, shown);
    };
    if (table_entry(tables.token, r) != 0 || table_entry(tables.position, r) != 0)
      fail("the row has a token or a position other than 0");
    if (table_entry(tables.slot, r) != blocks.padding_slot(r - first))
      fail("the row writes a slot that is not for padding");
    if (table_entry(tables.begin, r) != table_entry(tables.end, r) || table_entry(tables.ancestor_count, r) != 0)
      fail("the row has a context or ancestors");
    if (tables.mask.empty()) continue;
    const auto columns = static_cast<std::size_t>(tables.mask_columns);
    const auto hidden = tables.mask.subspan(static_cast<std::size_t>(r) * columns, columns);
    if (std::ranges::count(hidden, 1) != tables.mask_columns - 1 || hidden[static_cast<std::size_t>(r - first)] != 0)
      fail("the row sees more than itself");
  }
}

void check_step(const HostTables& tables, std::span<const TreeOfStep> trees, std::span<const RunOfStep> runs,
                const BlockTables& blocks, const StepLimits& limits) {
  std::int64_t first = 0;
  for (const TreeOfStep& tree : trees) {
    check_tensors(tree.tensors, limits.tree);
    check_tensors_match(tree.tensors, *tree.tree);
    const StepRows rows(tables, first, tree.branch, blocks, limits, tree.tensors);
    rows.check_size(tree.tensors.nodes);
    for (int row = 0; row < tree.tensors.nodes; ++row) rows.check_row(row, expected_row(tree.tensors, row, limits));
    first += tree.tensors.nodes;
  }
  for (const RunOfStep& run : runs) {
    check_run(tables, first, run, blocks, limits);
    first += std::ssize(run.tokens);
  }
  check_padding_rows(tables, first, blocks, trees.empty() ? TreeTensors() : trees.back().tensors);
}

}  // namespace espalier
