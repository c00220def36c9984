// The ops of round_ops.h: their views as plain addresses, one launch or two each.
#include <variant>

#include "base/error.h"
#include "device/cuda/op_queue.h"
#include "device/cuda/round_kernels.h"
#include "device/host_views.h"

namespace espalier::cuda {
namespace {

static_assert(kRanks == kRankedTokens);

int size_of(std::int64_t dimension) {
  return static_cast<int>(dimension);
}

// The address of a table that may be left out.
const std::int32_t* ints_or_null(ConstView view) {
  return view.empty() ? nullptr : ints(view);
}
std::int32_t* ints_or_null(View view) {
  return view.empty() ? nullptr : ints(view);
}

ConstRows logits_of(ConstView view) {
  return {floats(view), view.dim(0), view.dim(1), view.row_stride()};
}

Table<std::int32_t> table_of(View view) {
  return {ints(view), view.row_stride()};
}

NodeArrays arrays_of(const NodeTables& nodes) {
  return {.token = table_of(nodes.token),
          .parent = table_of(nodes.parent),
          .depth = table_of(nodes.depth),
          .row = table_of(nodes.row),
          .score = {doubles(nodes.score), nodes.score.row_stride()},
          .trees = size_of(nodes.trees()),
          .nodes = size_of(nodes.nodes())};
}

GuessArrays arrays_of(const GuessTables& guesses) {
  return {.token = ints(guesses.token),
          .log_probability = doubles(guesses.log_probability),
          .count = ints(guesses.count),
          .k = size_of(guesses.token.dim(1))};
}

PlaceArrays arrays_of(const PlaceTables& places) {
  return {.blocks = ints(places.blocks),
          .block_columns = size_of(places.blocks.dim(1)),
          .block_size = size_of(places.block_size)};
}

RowArrays arrays_of(const PlacedRows& rows) {
  return {.token = ints(rows.token),
          .position = ints(rows.position),
          .slot = ints(rows.slot),
          .sequence = ints(rows.sequence),
          .begin = ints(rows.begin),
          .end = ints(rows.end),
          .ancestor_count = ints(rows.ancestor_count),
          .ancestors = ints(rows.ancestors),
          .input = ints_or_null(rows.input),
          .ancestor_columns = size_of(rows.ancestors.dim(1))};
}

void check_fits(std::string_view op, const NodeTables& nodes) {
  check(nodes.nodes() <= kMostNodes, "{}: a tree of {} nodes, on a CUDA device at most {}", op, nodes.nodes(),
        kMostNodes);
}

}  // namespace

void OpQueue::round(const RoundOp& op) {
  flush();
  std::visit([this](const auto& one) { this->launch(one); }, op);
}

void OpQueue::launch(const RankGuesses& op) {
  const std::int64_t k = op.guesses.token.dim(1);
  const ConstRows logits = logits_of(op.logits);
  rank_guesses(queue_,
               {.logits = logits,
                .target_ids = ints_or_null(op.target_ids),
                .scale = op.scale,
                .vocabulary = op.vocabulary,
                .guesses = arrays_of(op.guesses)},
               scratch_for(logits, {k, k}));
}

void OpQueue::launch(const GrowLevel& op) {
  check_fits(op.kName, op.nodes);
  grow_level(queue_, {.nodes = arrays_of(op.nodes),
                      .root = ints(op.root),
                      .levels = ints(op.levels),
                      .entry = ints(op.entry),
                      .rank = ints(op.rank),
                      .frontier = ints(op.frontier),
                      .guess_row = ints(op.guess_row),
                      .guesses = arrays_of(op.guesses),
                      .listed = ints_or_null(op.listed),
                      .next = ints_or_null(op.next),
                      .width = size_of(op.entry.dim(0)),
                      .frontier_columns = size_of(op.frontier.dim(1)),
                      .next_columns = op.next.empty() ? 0 : size_of(op.next.dim(1)),
                      .level = op.level,
                      .root_row = op.root_row});
}

void OpQueue::launch(const ChooseRows& op) {
  check_fits(op.kName, op.nodes);
  choose_rows(queue_, {.nodes = arrays_of(op.nodes),
                       .rows = ints(op.rows),
                       .tree = arrays_of(op.tree),
                       .drafted = ints(op.drafted),
                       .size = ints(op.size)});
}

void OpQueue::launch(const PlaceRows& op) {
  check_fits(op.kName, op.nodes);
  place_rows(queue_, {.nodes = arrays_of(op.nodes),
                      .listed = ints_or_null(op.listed),
                      .first = ints(op.first),
                      .root_position = ints(op.root_position),
                      .begin = ints(op.begin),
                      .seed = ints_or_null(op.seed),
                      .places = arrays_of(op.places),
                      .rows = arrays_of(op.rows),
                      .width = size_of(op.listed.empty() ? op.nodes.nodes() : op.listed.dim(1)),
                      .offset = op.offset,
                      .window = op.window,
                      .prior_rows = op.prior_rows,
                      .prior_offset = op.prior_offset});
}

void OpQueue::launch(const ChooseTokens& op) {
  const ConstRows logits = logits_of(op.logits);
  choose_tokens(queue_,
                {.logits = logits,
                 .position = ints(op.position),
                 .temperature = floats(op.temperature),
                 .top_p = floats(op.top_p),
                 .min_p = floats(op.min_p),
                 .top_k = ints(op.top_k),
                 .seed = ints(op.seed),
                 .token = ints(op.token),
                 .state = ints(op.state),
                 .tree_rows = logits.rows / op.temperature.dim(0)},
                scratch_for(logits, {1, kRanks}));
}

void OpQueue::launch(const WalkTrees& op) {
  check_fits(op.kName, op.tree);
  walk_trees(queue_, {.tree = arrays_of(op.tree),
                      .choice = ints(op.choice),
                      .state = ints(op.state),
                      .path = ints(op.path),
                      .count = ints(op.count),
                      .last = ints(op.last),
                      .token = ints(op.token),
                      .outcome = ints(op.outcome),
                      .length = size_of(op.path.dim(1))});
}

void OpQueue::launch(const ListMoves& op) {
  list_moves(queue_, {.path = ints(op.path),
                      .count = ints(op.count),
                      .row = ints(op.row),
                      .first = ints(op.first),
                      .places = arrays_of(op.places),
                      .from = ints(op.from),
                      .to = ints(op.to),
                      .kept = ints(op.kept),
                      .trees = size_of(op.path.dim(0)),
                      .length = size_of(op.path.dim(1)),
                      .tree_rows = size_of(op.row.dim(1))});
}

void OpQueue::launch(const CatchUp& op) {
  const std::int64_t trees = op.path.dim(0);
  catch_up(queue_, {.path = ints(op.path),
                    .count = ints(op.count),
                    .choice = ints(op.choice),
                    .prefix = ints(op.prefix),
                    .begin = ints(op.begin),
                    .places = arrays_of(op.places),
                    .rows = arrays_of(op.rows),
                    .feature = ints(op.feature),
                    .seed = ints(op.seed),
                    .trees = size_of(trees),
                    .length = size_of(op.path.dim(1)),
                    .tree_rows = size_of(op.choice.dim(0) / trees),
                    .window = op.window});
}

}  // namespace espalier::cuda
