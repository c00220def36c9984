#include "device/round_ops.h"

#include "base/error.h"
#include "device/expected_view.h"

namespace espalier {
namespace {

void expect_nodes(std::string_view op, std::string_view argument, const NodeTables& nodes, std::int64_t trees,
                  std::int64_t count) {
  for (const View& table : {nodes.token, nodes.parent, nodes.depth, nodes.row})
    expect(op, argument, table, DType::i32, {trees, count}, true);
  expect(op, argument, nodes.score, DType::f64, {trees, count}, true);
}

void expect_guesses(std::string_view op, const GuessTables& guesses) {
  expect(op, "guesses.token", guesses.token, DType::i32, {kAny, kAny});
  expect(op, "guesses.log_probability", guesses.log_probability, DType::f64,
         {guesses.token.dim(0), guesses.token.dim(1)});
  expect(op, "guesses.count", guesses.count, DType::i32, {guesses.token.dim(0)});
}

void expect_places(std::string_view op, const PlaceTables& places, std::int64_t trees) {
  expect(op, "places.blocks", places.blocks, DType::i32, {trees, kAny});
  check(places.block_size >= 1, "{}: blocks of {} places", op, places.block_size);
}

void expect_rows(std::string_view op, const PlacedRows& rows, std::int64_t count) {
  for (const View& table :
       {rows.token, rows.position, rows.slot, rows.sequence, rows.begin, rows.end, rows.ancestor_count})
    expect(op, "rows", table, DType::i32, {count});
  expect(op, "rows.ancestors", rows.ancestors, DType::i32, {count, kAny});
  if (!rows.input.empty()) expect(op, "rows.input", rows.input, DType::i32, {count});
}

// One number for each tree.
void expect_numbers(std::string_view op, std::string_view argument, const ConstView& view, std::int64_t trees,
                    DType type = DType::i32) {
  expect(op, argument, view, type, {trees});
}

void check_shapes(const RankGuesses& op) {
  expect(op.kName, "logits", op.logits, DType::f32, {kAny, kAny}, true);
  if (!op.target_ids.empty()) expect(op.kName, "target_ids", op.target_ids, DType::i32, {op.logits.dim(1)});
  expect_guesses(op.kName, op.guesses);
  check(op.guesses.token.dim(0) == op.logits.dim(0) && op.guesses.token.dim(1) <= op.logits.dim(1),
        "{}: guesses {} in logits {}", op.kName, op.guesses.token, op.logits);
  check(op.scale > 0, "{}: scale {}, expected more than 0", op.kName, op.scale);
}

void check_shapes(const GrowLevel& op) {
  const std::int64_t trees = op.nodes.trees(), nodes = op.nodes.nodes();
  expect_nodes(op.kName, "nodes", op.nodes, trees, nodes);
  expect_numbers(op.kName, "root", op.root, trees);
  expect_numbers(op.kName, "levels", op.levels, trees);
  expect(op.kName, "entry", op.entry, DType::i32, {kAny});
  expect(op.kName, "rank", op.rank, DType::i32, {op.entry.dim(0)});
  expect(op.kName, "frontier", op.frontier, DType::i32, {trees, kAny});
  expect(op.kName, "guess_row", op.guess_row, DType::i32, {trees, op.frontier.dim(1)});
  expect_guesses(op.kName, op.guesses);
  if (!op.next.empty()) expect(op.kName, "next", op.next, DType::i32, {trees, kAny});
  if (!op.listed.empty()) expect(op.kName, "listed", op.listed, DType::i32, {op.next.empty() ? 0 : op.next.dim(1)});
  check(op.level >= 1 && nodes > op.entry.dim(0), "{}: level {} of {} nodes among {}", op.kName, op.level,
        op.entry.dim(0), nodes);
  check(op.level > 1 || nodes == 1 + op.entry.dim(0), "{}: a first level of {} nodes among {}", op.kName,
        op.entry.dim(0), nodes);
  check(op.root_row == 0 || op.root_row == 1, "{}: root_row {}, expected 0 or 1", op.kName, op.root_row);
}

void check_shapes(const ChooseRows& op) {
  const std::int64_t trees = op.nodes.trees();
  expect_nodes(op.kName, "nodes", op.nodes, trees, op.nodes.nodes());
  expect_nodes(op.kName, "tree", op.tree, trees, op.tree.nodes());
  expect_numbers(op.kName, "rows", op.rows, trees);
  expect(op.kName, "drafted", op.drafted, DType::i32, {trees, op.tree.nodes()});
  expect_numbers(op.kName, "size", op.size, trees);
}

void check_shapes(const PlaceRows& op) {
  const std::int64_t trees = op.nodes.trees(), nodes = op.nodes.nodes();
  expect_nodes(op.kName, "nodes", op.nodes, trees, nodes);
  if (!op.listed.empty()) expect(op.kName, "listed", op.listed, DType::i32, {trees, kAny});
  for (const ConstView& numbers : {op.first, op.root_position, op.begin})
    expect_numbers(op.kName, "first, root_position or begin", numbers, trees);
  expect_places(op.kName, op.places, trees);
  expect_rows(op.kName, op.rows, trees * (op.listed.empty() ? nodes : op.listed.dim(1)));
  if (!op.rows.input.empty()) expect_numbers(op.kName, "seed", op.seed, trees);
  check(op.offset >= 0 && op.window >= 0 && op.prior_rows >= 0 && op.prior_offset >= 0,
        "{}: offset {}, window {}, prior rows {} from {}", op.kName, op.offset, op.window, op.prior_rows,
        op.prior_offset);
}

void check_shapes(const ChooseTokens& op) {
  expect(op.kName, "temperature", op.temperature, DType::f32, {kAny});
  const std::int64_t trees = op.temperature.dim(0);
  expect_numbers(op.kName, "top_p", op.top_p, trees, DType::f32);
  expect_numbers(op.kName, "min_p", op.min_p, trees, DType::f32);
  expect_numbers(op.kName, "top_k", op.top_k, trees);
  expect(op.kName, "seed", op.seed, DType::i32, {trees, 2});
  expect(op.kName, "logits", op.logits, DType::f32, {kAny, kAny}, true);
  check(op.logits.dim(0) % trees == 0, "{}: logits {} of {} trees", op.kName, op.logits, trees);
  for (const ConstView& table : {op.position, ConstView(op.token), ConstView(op.state)})
    expect(op.kName, "position, token or state", table, DType::i32, {op.logits.dim(0)});
}

void check_shapes(const WalkTrees& op) {
  const std::int64_t trees = op.tree.trees();
  expect_nodes(op.kName, "tree", op.tree, trees, op.tree.nodes());
  expect(op.kName, "choice", op.choice, DType::i32, {trees * op.tree.nodes()});
  expect(op.kName, "state", op.state, DType::i32, {trees * op.tree.nodes()});
  expect(op.kName, "path", op.path, DType::i32, {trees, kAny});
  for (const View& numbers : {op.count, op.last, op.token, op.outcome})
    expect_numbers(op.kName, "count, last, token or outcome", numbers, trees);
}

void check_shapes(const ListMoves& op) {
  expect(op.kName, "path", op.path, DType::i32, {kAny, kAny});
  const std::int64_t trees = op.path.dim(0);
  expect_numbers(op.kName, "count", op.count, trees);
  expect_numbers(op.kName, "first", op.first, trees);
  expect_numbers(op.kName, "kept", op.kept, trees);
  expect(op.kName, "row", op.row, DType::i32, {trees, kAny});
  expect_places(op.kName, op.places, trees);
  expect(op.kName, "from", op.from, DType::i32, {trees * op.path.dim(1)});
  expect(op.kName, "to", op.to, DType::i32, {trees * op.path.dim(1)});
}

void check_shapes(const CatchUp& op) {
  expect(op.kName, "path", op.path, DType::i32, {kAny, kAny});
  const std::int64_t trees = op.path.dim(0), rows = trees * op.path.dim(1);
  for (const ConstView& numbers : {op.count, op.prefix, op.begin, ConstView(op.seed)})
    expect_numbers(op.kName, "count, prefix, begin or seed", numbers, trees);
  expect(op.kName, "choice", op.choice, DType::i32, {kAny});
  check(op.choice.dim(0) % trees == 0, "{}: choice {} of {} trees", op.kName, op.choice, trees);
  expect_places(op.kName, op.places, trees);
  expect_rows(op.kName, op.rows, rows);
  expect(op.kName, "feature", op.feature, DType::i32, {rows});
  check(op.window >= 0, "{}: window {}", op.kName, op.window);
}

}  // namespace

std::string_view name(const RoundOp& op) {
  return std::visit([](const auto& one) { return one.kName; }, op);
}

void RoundOps::run(const RoundOp& op) {
  std::visit([](const auto& one) { check_shapes(one); }, op);
  do_run(op);
}

}  // namespace espalier
