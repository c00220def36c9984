#include "device/checked/round_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "device/checked/row_rules.h"
#include "device/checked/rule_violation.h"

namespace espalier {
namespace {

// A table of integers on the host.
class Table {
 public:
  Table(const MemoryLedger& ledger, const ConstView& view)
      : columns_(view.rank() > 1 ? view.dim(1) : view.dim(0)), values_(ledger.read<std::int32_t>(view)) {}

  std::int32_t operator[](std::int64_t i) const { return values_[static_cast<std::size_t>(i)]; }
  std::int32_t at(std::int64_t row, std::int64_t column) const { return (*this)[row * columns_ + column]; }
  std::int64_t size() const { return std::ssize(values_); }
  std::int64_t columns() const { return columns_; }

 private:
  std::int64_t columns_;
  std::vector<std::int32_t> values_;
};

// The values of one op.
class RoundRules {
 public:
  RoundRules(std::string_view op, const MemoryLedger& ledger) : op_(op), ledger_(ledger) {}

  void check(const RankGuesses&) const {}

  void check(const GrowLevel& op) const {
    const std::int64_t nodes = op.nodes.nodes(), known = nodes - op.entry.dim(0);
    const Table entry = table(op.entry), rank = table(op.rank);
    expect_below("entry", entry, op.frontier.dim(1));
    expect_not_negative("rank", rank);
    for (std::int64_t w = 1; w < entry.size(); ++w)
      if (entry[w] < entry[w - 1] || (entry[w] == entry[w - 1] && rank[w] <= rank[w - 1]))
        fail("entry", w, "R11",
             fmt::format("rank {} of entry {} behind rank {} of entry {}, expected ascending ones", rank[w], entry[w],
                         rank[w - 1], entry[w - 1]));
    expect_below("frontier", table(op.frontier), known);
    expect_below("guess_row", table(op.guess_row), op.guesses.token.dim(0));
    expect_below("guesses.count", table(op.guesses.count), op.guesses.token.dim(1) + 1);
    expect_not_negative("levels", table(op.levels));
    if (op.listed.empty()) return;
    const Table listed = table(op.listed);
    for (std::int64_t i = 0; i < listed.size(); ++i) expect_between("listed", i, listed[i], known, nodes);
  }

  void check(const ChooseRows& op) const {
    check_parents("nodes.parent", op.nodes);
    const Table rows = table(op.rows);
    for (std::int64_t s = 0; s < rows.size(); ++s) expect_between("rows", s, rows[s], 1, op.tree.nodes() + 1);
  }

  void check(const PlaceRows& op) const {
    const std::int64_t width = op.listed.empty() ? op.nodes.nodes() : op.listed.dim(1);
    check_parents("nodes.parent", op.nodes);
    if (!op.listed.empty()) expect_below("listed", table(op.listed), op.nodes.nodes());
    expect_not_negative("root_position", table(op.root_position));
    check_last_place("first", op.places, table(op.first), op.offset + width);
    for (std::int64_t s = 0; s < op.nodes.trees(); ++s) check_rows_above(op, s);
    expect_below("begin", table(op.begin), positions(op.places));
    if (!op.rows.input.empty()) expect_not_negative("seed", table(op.seed));
  }

  void check(const ChooseTokens& op) const {
    expect_not_negative("position", table(op.position));
    expect_not_negative("top_k", table(op.top_k));
    expect_number("temperature", op.temperature, [](float x) { return x >= 0 && std::isfinite(x); });
    expect_number("top_p", op.top_p, [](float x) { return x > 0 && x <= 1; });
    expect_number("min_p", op.min_p, [](float x) { return x >= 0 && x <= 1; });
  }

  void check(const WalkTrees& op) const {
    check_parents("tree.parent", op.tree);
    expect_below("tree.depth", table(op.tree.depth), op.path.dim(1));
    expect_below("state", table(op.state), static_cast<std::int64_t>(RowState::broken) + 1);
  }

  void check(const ListMoves& op) const {
    const Table first = table(op.first), row = table(op.row);
    check_path(op.path, op.count, op.row.dim(1));
    check_last_place("first", op.places, first, op.path.dim(1));
    for (std::int64_t i = 0; i < row.size(); ++i)
      expect_between("row", i, row[i], 0, positions(op.places) - first[i / row.columns()] + 1);
  }

  void check(const CatchUp& op) const {
    check_path(op.path, op.count, op.choice.dim(0) / op.path.dim(0));
    check_last_place("prefix", op.places, table(op.prefix), op.path.dim(1) + 1);
    expect_below("begin", table(op.begin), positions(op.places));
  }

 private:
  Table table(const ConstView& view) const { return {ledger_, view}; }
  static std::int64_t positions(const PlaceTables& places) { return places.blocks.dim(1) * places.block_size; }

  [[noreturn]] void fail(std::string_view argument, std::int64_t row, std::string_view rule,
                         const std::string& reason) const {
    throw RuleViolation({op_, argument, row}, rule, reason);
  }
  void expect_between(std::string_view argument, std::int64_t row, std::int64_t value, std::int64_t low,
                      std::int64_t end) const {
    check_index({op_, argument, row}, "value", value, end);
    if (value < low) fail(argument, row, "R11", fmt::format("value {}, expected at least {}", value, low));
  }
  void expect_below(std::string_view argument, const Table& values, std::int64_t extent) const {
    for (std::int64_t i = 0; i < values.size(); ++i) check_index({op_, argument, i}, "value", values[i], extent);
  }
  void expect_not_negative(std::string_view argument, const Table& values) const {
    expect_below(argument, values, std::int64_t{1} << 31);
  }
  template <typename Fits>
  void expect_number(std::string_view argument, const ConstView& view, Fits fits) const {
    std::int64_t i = 0;
    for (const float number : ledger_.read<float>(view)) {
      if (!fits(number)) fail(argument, i, "R11", fmt::format("{} is out of its range", number));
      ++i;
    }
  }

  // The root is its own parent, and so is the parent of nodes that are not there.
  void check_parents(std::string_view argument, const NodeTables& nodes) const {
    const Table parent = table(nodes.parent);
    for (std::int64_t i = 0; i < parent.size(); ++i)
      check_index({op_, argument, i}, "parent", parent[i], std::max<std::int64_t>(1, i % parent.columns()));
  }

  // As many places behind the numbers in `first` are in the table.
  void check_last_place(std::string_view argument, const PlaceTables& places, const Table& first,
                        std::int64_t count) const {
    for (std::int64_t s = 0; s < first.size(); ++s)
      check_index({op_, argument, s}, "place", first[s] < 0 ? first[s] : first[s] + count - 1, positions(places),
                  "R14");
  }

  void check_path(const ConstView& path, const ConstView& count, std::int64_t rows) const {
    expect_below("path", table(path), rows);
    expect_below("count", table(count), path.dim(1) + 1);
  }

  // Whether the table has a column for every row above a node, and the pass before had the parent.
  void check_rows_above(const PlaceRows& op, std::int64_t s) const {
    const Table parent = table(op.nodes.parent), row = table(op.nodes.row), first = table(op.first);
    for (std::int64_t n = 0; n < op.nodes.nodes(); ++n)
      expect_between("nodes.row", n, row.at(s, n), 0, positions(op.places) - first[s] + 1);
    if (op.listed.empty()) return check_depths(op, s);
    const Table listed = table(op.listed);
    for (std::int64_t i = 0; i < listed.columns(); ++i) {
      const std::int32_t node = listed.at(s, i);
      if (node == 0) continue;
      std::int64_t above = 0;
      for (std::int32_t n = node; n != 0;) above += row.at(s, n = parent.at(s, n)) > 0 ? 1 : 0;
      expect_between("listed", i, above, 0, op.rows.ancestors.dim(1) + 1);
      const std::int32_t from = parent.at(s, node);
      if (!op.rows.input.empty() && from != 0)
        expect_between("nodes.row", from, row.at(s, from), 1 + op.prior_offset, 1 + op.prior_offset + op.prior_rows);
    }
  }

  // Every node gets a row, so those above it are as many as its depth says.
  void check_depths(const PlaceRows& op, std::int64_t s) const {
    const Table depth = table(op.nodes.depth);
    for (std::int64_t n = 0; n < depth.columns(); ++n)
      expect_between("nodes.depth", n, depth.at(s, n), 0, op.rows.ancestors.dim(1) + 1);
  }

  std::string_view op_;
  const MemoryLedger& ledger_;
};

}  // namespace

void check_round_values(const RoundOp& op, const MemoryLedger& ledger) {
  std::visit([&](const auto& one) { RoundRules(one.kName, ledger).check(one); }, op);
}

}  // namespace espalier
