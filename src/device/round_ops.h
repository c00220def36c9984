// The ops of whole rounds: what device.h leaves to the host between the passes of a round, as a contract of its own.
// With them drafting, growing, choosing rows, verifying, walking and committing follow each other without the host, as
// one recording if the device likes: all that changes from round to round lies in device memory, shapes are fixed, and
// no op asks the host anything. Trees, orders, scores and paths are those of tree/ and decode/, bit for bit.
//
// They are optional. Device::round_ops() is null where there are none, and rounds are driven from the host as before.
//
// A round of S sequences, which have a tree each, by its ops (and those of device.h between them):
//
//   CatchUp, or rows from the host            the head's rows for what the last round committed; the head's first pass
//   level by level: RankGuesses, GrowLevel, PlaceRows                                      each time a pass of the head
//   ChooseRows, PlaceRows                                                            the tree, and the teacher's step
//   ChooseTokens, WalkTrees, ListMoves        then kv_copy by these lists, once for every memory that keeps the path
//
// and one download: path, choices, tree and scores. Trees of a fixed shape, Medusa's among them, differ in the tables
// of GrowLevel alone, which are uploaded once. When an answer ends (a stop token, a limit, a text) the host decides,
// from the path: what was committed behind the end is cut off there by whoever owns the tables. A draft model catches
// up by rows of plain text from the host.
//
// Rules for all of them
//  - An op is a struct: its operands, and numbers that belong to the recording. i32 where nothing else is said.
//  - Every index is in range, also in rows and entries that nobody reads: what is not there has index 0, and a row that
//    is not there is a row all the same, with a slot of its own, that sees nothing but itself.
//  - Views are dense, except those of NodeTables, whose rows may be strided: the first columns of larger tables.
//    Outputs overlap nothing else, except where it says so.
//  - Scores are f64, log-probabilities too. Among equal scores the older node, the one with the smaller number, is the
//    better one. No score is NaN.
//  - Places are logical positions of a sequence: place p of tree s lies in slot
//    blocks[s, p / block_size] * block_size + p % block_size. The places [first, first + rows) behind what is committed
//    belong to the round, padding rows included.
//  - The public method checks shapes and types and throws std::logic_error. Values are checked by device/checked/.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <variant>

#include "device/device.h"

namespace espalier {

// How an op uses an operand.
enum class Access { read, write, update };

// S trees of up to C nodes each, side by side; parents before children, node 0 is the root.
struct NodeTables {
  View token;   // [S, C]
  View parent;  // [S, C]
  View depth;   // [S, C]      0: the root, and nodes that are not there
  View score;   // f64 [S, C]  of the path that ends here, 0 at the root, never above the parent's
  View row;     // [S, C]      1 + the number of its place behind `first` in the memory of its step; 0: it has none

  std::int64_t trees() const { return token.dim(0); }
  std::int64_t nodes() const { return token.dim(1); }
  bool operator==(const NodeTables&) const = default;
  template <typename Self, typename Visit>
  static void operands(Self& self, std::string_view prefix, Access access, Visit visit);
};

// Where the places of S sequences lie.
struct PlaceTables {
  ConstView blocks;  // [S, B]
  std::int64_t block_size = 0;

  bool operator==(const PlaceTables&) const = default;
};

// The tables of a pass of S * F rows, those of tree 0 first: RowTables that ops write, and the inputs of draft rows.
struct PlacedRows {
  View token, position, slot, sequence, begin, end, ancestor_count;  // [S * F]
  View ancestors;                                                    // [S * F, A]
  View input;                                                        // [S * F]; empty: not wanted

  RowTables tables(ConstView blocks) const {
    return {.token = token,
            .position = position,
            .slot = slot,
            .sequence = sequence,
            .begin = begin,
            .end = end,
            .ancestor_count = ancestor_count,
            .ancestors = ancestors,
            .blocks = blocks,
            .mask = {}};
  }
  bool operator==(const PlacedRows&) const = default;
  template <typename Self, typename Visit>
  static void operands(Self& self, Visit visit);
};

// Guesses of a drafter: G rows of up to k, best first.
struct GuessTables {
  View token;            // [G, k]      the teacher's ids; behind count: 0
  View log_probability;  // f64 [G, k]  at most 0, descending; behind count: minus infinity
  View count;            // [G]

  bool operator==(const GuessTables&) const = default;
  template <typename Self, typename Visit>
  static void operands(Self& self, Access access, Visit visit);
};

// The best guesses in rows of draft logits. Of row g: its k best columns as top_k has them; column c stands for the
// token target_ids[c], or c itself without a list. Those with 0 <= token < vocabulary are its guesses, in this order,
// with log_probability = double(scale * value) - double(n), n as log_sum_exp has it; NaN becomes minus infinity, and
// what is above 0 becomes 0.
// logits: f32 [G, n], may be strided   target_ids: [n], or empty   guesses: k <= n   scale > 0
struct RankGuesses {
  ConstView logits;
  ConstView target_ids = {};
  float scale = 1.0f;
  std::int32_t vocabulary = 0;
  GuessTables guesses;

  static constexpr std::string_view kName = "rank_guesses";
  bool operator==(const RankGuesses&) const = default;
  template <typename Self, typename Visit>
  static void operands(Self& op, Visit visit);
};

// One more level: the last W columns of `nodes` become the nodes of this level, and `next` those to expand.
// Entry e of the frontier of tree s stands for node frontier[s, e] and is there if that has depth level - 1 and level
// <= levels[s]; its guesses are row guess_row[s, e]. Column w of the level hangs below entry[w] and is its guess of
// rank[w]. It is there if its entry is, if rank[w] < count and if no column before it below the same entry that is
// there carries its token: then
//   token = the guess's, parent = the entry's node, depth = level, row = 0,
//   score = score[parent] + log_probability. Everything of a column that is not there is 0.
// In level 1 column 0 becomes the root first: token = root[s], row = root_row, all else 0.
// next[s, i]: with a list, listed[i] if that node is there, else 0. Without: the i-th best by (score descending, older
// first) of the level's nodes that are there, behind them 0. All 0 where level >= levels[s].
//
// A tree that grows to its best: W = F * branch, entry[w] = w / branch, rank[w] = w % branch, no list. (Growth that
// ends early because the tree is settled yields the same tree: what would follow is never chosen.) A tree of a fixed
// shape: the shape's rows of the level by parent and rank, and listed those with children.
// nodes: C >= 1 + W, in level 1 C = 1 + W   root, levels: [S]   entry: [W], ascending, in [0, F)   rank: [W], not
// negative, ascending below an entry   frontier, guess_row: [S, F]   listed: [N], in [C - W, C), or empty   next: [S,
// N], or empty: not wanted
struct GrowLevel {
  NodeTables nodes;
  ConstView root;
  ConstView levels;
  ConstView entry, rank;
  ConstView frontier, guess_row;
  GuessTables guesses;
  ConstView listed = {};
  View next = {};
  std::int32_t level = 1;
  std::int32_t root_row = 0;  // 1 where the drafter's memory has a row for the root at `first`, else 0

  static constexpr std::string_view kName = "grow_level";
  bool operator==(const GrowLevel&) const = default;
  template <typename Self, typename Visit>
  static void operands(Self& op, Visit visit);
};

// The tree to verify: the root and the rows[s] - 1 best other nodes that are there, by (score descending, older first),
// or all where there are fewer, in breadth-first order with siblings best first. Row r of `tree` becomes the node's
// token, depth and score, its parent's row, and row = 0; drafted[s, r] = row of the node; size[s]: how many rows are
// there. Behind them all is 0.
// nodes: [S, C]   rows: [S], in [1, M]   tree: [S, M]   drafted: [S, M]   size: [S]
struct ChooseRows {
  NodeTables nodes;
  ConstView rows;
  NodeTables tree;
  View drafted;
  View size;

  static constexpr std::string_view kName = "choose_rows";
  bool operator==(const ChooseRows&) const = default;
  template <typename Self, typename Visit>
  static void operands(Self& op, Visit visit);
};

// The tables of a pass over nodes: row s * F + i is that of node n = listed[s, i], there if n > 0; without a list
// that of node i, there if i = 0 or depth > 0, and F = C. Its place is first[s] + offset + i. With
// p = root_position[s] + depth:
//   row[s, n] = 1 + offset + i (only where it is there)
//   token, position = p, slot of its place, sequence = s
//   begin = max(begin[s], p - (window - 1)), without a window begin[s];  end = first[s]
//   ancestors: the slots of the nodes above that have a row, root first, without the first max(0, begin - end) of them
//   input: seed[s] if its parent is the root, else s * prior_rows + row[s, parent] - 1 - prior_offset: where the pass
//   before, of prior_rows rows for each tree from prior_offset on, has its parent
// A row that is not there has the slot of its place and the sequence; all else is 0.
// window: the teacher's. The tree rows of a head with a window all begin at the same place, whatever their depth: that
// is their `begin`, without a window here.
// nodes: [S, C]   listed: [S, F], or empty   first, root_position, begin: [S]   seed: [S]; empty without inputs
struct PlaceRows {
  NodeTables nodes;
  ConstView listed = {};
  ConstView first, root_position, begin;
  ConstView seed = {};
  PlaceTables places;
  PlacedRows rows;
  std::int32_t offset = 0;
  std::int32_t window = 0;  // 0: none
  std::int32_t prior_rows = 0;
  std::int32_t prior_offset = 0;

  static constexpr std::string_view kName = "place_rows";
  bool operator==(const PlaceRows&) const = default;
  template <typename Self, typename Visit>
  static void operands(Self& op, Visit visit);
};

// What became of the choice at a row.
enum class RowState : std::int32_t {
  decided = 0,
  undecided = 1,  // the kRankedTokens best do not decide: the host has to
  broken = 2,     // there is no finite logit, or one is plus infinity
};

// A draw ranks so many ids.
inline constexpr std::int64_t kRankedTokens = 1024;

// The teacher's choice at every row, without penalties, bias or bans. Row r belongs to tree s = r / M, and position[r]
// is that of its token. x counts NaN as minus infinity, m = max x. Where m is not finite, the row is broken.
// temperature[s] = 0: the lowest id that has m. Else, with t[j] = (x[j] - m) / temperature[s] and the ids of finite t
// ranked by (t descending, id ascending), w[j] = exp_f32(t[j]) (base/math.h), all sums in double, starting with all
// ids kept:
//   top_k > 0: the first top_k are kept
//   top_p < 1: the fewest first ones whose w, added in the order of ranks, reach top_p * total, at least one
//   min_p > 0: the first ones as long as w >= min_p, at least one
//   total: of the kept ids, w[j] to lane j mod 256, ids ascending, lanes added in halves 128, 64, ..., 1
//   the choice: in the order of ranks, the first at which the sum of w exceeds u * total; or the last before w is 0, or
//   before there are no more;   u = uniform(seed[s], position[r] + 1) (base/random.h)
// If a cut or the choice has to look at an id with a rank of kRankedTokens or more, the row is undecided. Rows that
// are not decided have the lowest id that has m.
// logits: f32 [S * M, n], may be strided   position, token, state: [S * M]   temperature, top_p, min_p: f32 [S]
// top_k: [S]   seed: [S, 2], the low word first
struct ChooseTokens {
  ConstView logits;
  ConstView position;
  ConstView temperature, top_p, min_p;
  ConstView top_k;
  ConstView seed;
  View token;
  View state;

  static constexpr std::string_view kName = "choose_tokens";
  bool operator==(const ChooseTokens&) const = default;
  template <typename Self, typename Visit>
  static void operands(Self& op, Visit visit);
};

// The walk along each tree: from row 0 on, as long as a child carries the token chosen at a row, to that child.
// path[s, j]: the rows visited, count[s] of them, then the last one again; last[s] = s * M + the last one;
// token[s]: the choice there, which no step has seen yet; outcome[s]: decided. If a row on the way is not decided, the
// walk ends there with that row's state as the outcome, count 0, path 0, last and token those of row 0: nothing of the
// round is committed, and the host repeats it. A broken row too: it may lie behind the end of the answer, where the
// host never looks. tree: [S, M]   choice, state: [S * M]   path: [S, L], L above the depth of every tree   others: [S]
struct WalkTrees {
  NodeTables tree;
  ConstView choice, state;
  View path;
  View count, last, token, outcome;

  static constexpr std::string_view kName = "walk_trees";
  bool operator==(const WalkTrees&) const = default;
  template <typename Self, typename Visit>
  static void operands(Self& op, Visit visit);
};

// The lists by which kv_copy commits the path in a memory: to[s * L + j] is the slot of place first[s] + j, from the
// slot of place first[s] + row[s, path[s, j]] - 1, for the first kept[s] rows of the path: up to count[s], or to the
// first that has no row in this memory. Behind them a slot goes to itself.
// path: [S, L]   count, first, kept: [S]   row: [S, M]   from, to: [S * L]
struct ListMoves {
  ConstView path, count;
  ConstView row;
  ConstView first;
  PlaceTables places;
  View from, to;
  View kept;

  static constexpr std::string_view kName = "list_moves";
  bool operator==(const ListMoves&) const = default;
  template <typename Self, typename Visit>
  static void operands(Self& op, Visit visit);
};

// The rows of an EAGLE head for what a walk has committed behind prefix[s] positions: row s * L + j, there if
// j < count[s], is the pair of the feature of row path[s, j] and the token after it, choice[s * M + path[s, j]]:
//   position = prefix[s] + j, place = position + 1, slot of its place, sequence = s, end = place,
//   begin = max(begin[s], place - window), without a window begin[s]
//   input = s * L + j;  feature = s * M + path[s, j], the row of the teacher's step that has it
// A row that is not there has the slot of its place, the sequence, its input and its feature; all else is 0.
// seed[s] = s * L + count[s] - 1, the row whose output the tree grows from; without any, s * L.
// M: the rows of a tree   path: [S, L]   count, prefix, begin: [S]   choice: [S * M]   rows: F = L   feature: [S * L]
// seed: [S]
struct CatchUp {
  ConstView path, count;
  ConstView choice;
  ConstView prefix, begin;
  PlaceTables places;
  PlacedRows rows;
  View feature;
  View seed;
  std::int32_t window = 0;  // how many rows before it a row sees; 0: all

  static constexpr std::string_view kName = "catch_up";
  bool operator==(const CatchUp&) const = default;
  template <typename Self, typename Visit>
  static void operands(Self& op, Visit visit);
};

using RoundOp =
    std::variant<RankGuesses, GrowLevel, ChooseRows, PlaceRows, ChooseTokens, WalkTrees, ListMoves, CatchUp>;

std::string_view name(const RoundOp& op);

// Those of a device: take effect in call order with its other ops, and may be called inside its steps. One thread at a
// time.
class RoundOps {
 public:
  virtual ~RoundOps() = default;
  // The most nodes of a tree.
  virtual std::int64_t most_nodes() const { return std::numeric_limits<std::int64_t>::max(); }
  void run(const RoundOp& op);

 private:
  virtual void do_run(const RoundOp& op) = 0;
};

// --- the operands of an op, as visit(name, view, access), for whoever treats them alike -----------------------------

template <typename Self, typename Visit>
void NodeTables::operands(Self& self, std::string_view prefix, Access access, Visit visit) {
  visit(prefix, "token", self.token, access);
  visit(prefix, "parent", self.parent, access);
  visit(prefix, "depth", self.depth, access);
  visit(prefix, "score", self.score, access);
  visit(prefix, "row", self.row, access);
}

template <typename Self, typename Visit>
void PlacedRows::operands(Self& self, Visit visit) {
  visit("rows.", "token", self.token, Access::write);
  visit("rows.", "position", self.position, Access::write);
  visit("rows.", "slot", self.slot, Access::write);
  visit("rows.", "sequence", self.sequence, Access::write);
  visit("rows.", "begin", self.begin, Access::write);
  visit("rows.", "end", self.end, Access::write);
  visit("rows.", "ancestor_count", self.ancestor_count, Access::write);
  visit("rows.", "ancestors", self.ancestors, Access::write);
  visit("rows.", "input", self.input, Access::write);
}

template <typename Self, typename Visit>
void GuessTables::operands(Self& self, Access access, Visit visit) {
  visit("guesses.", "token", self.token, access);
  visit("guesses.", "log_probability", self.log_probability, access);
  visit("guesses.", "count", self.count, access);
}

template <typename Self, typename Visit>
void RankGuesses::operands(Self& op, Visit visit) {
  visit("", "logits", op.logits, Access::read);
  visit("", "target_ids", op.target_ids, Access::read);
  GuessTables::operands(op.guesses, Access::write, visit);
}

template <typename Self, typename Visit>
void GrowLevel::operands(Self& op, Visit visit) {
  NodeTables::operands(op.nodes, "nodes.", Access::update, visit);
  visit("", "root", op.root, Access::read);
  visit("", "levels", op.levels, Access::read);
  visit("", "entry", op.entry, Access::read);
  visit("", "rank", op.rank, Access::read);
  visit("", "frontier", op.frontier, Access::read);
  visit("", "guess_row", op.guess_row, Access::read);
  GuessTables::operands(op.guesses, Access::read, visit);
  visit("", "listed", op.listed, Access::read);
  visit("", "next", op.next, Access::write);
}

template <typename Self, typename Visit>
void ChooseRows::operands(Self& op, Visit visit) {
  NodeTables::operands(op.nodes, "nodes.", Access::read, visit);
  visit("", "rows", op.rows, Access::read);
  NodeTables::operands(op.tree, "tree.", Access::write, visit);
  visit("", "drafted", op.drafted, Access::write);
  visit("", "size", op.size, Access::write);
}

template <typename Self, typename Visit>
void PlaceRows::operands(Self& op, Visit visit) {
  visit("nodes.", "token", op.nodes.token, Access::read);
  visit("nodes.", "parent", op.nodes.parent, Access::read);
  visit("nodes.", "depth", op.nodes.depth, Access::read);
  visit("nodes.", "score", op.nodes.score, Access::read);
  visit("nodes.", "row", op.nodes.row, Access::update);
  visit("", "listed", op.listed, Access::read);
  visit("", "first", op.first, Access::read);
  visit("", "root_position", op.root_position, Access::read);
  visit("", "begin", op.begin, Access::read);
  visit("", "seed", op.seed, Access::read);
  visit("places.", "blocks", op.places.blocks, Access::read);
  PlacedRows::operands(op.rows, visit);
}

template <typename Self, typename Visit>
void ChooseTokens::operands(Self& op, Visit visit) {
  visit("", "logits", op.logits, Access::read);
  visit("", "position", op.position, Access::read);
  visit("", "temperature", op.temperature, Access::read);
  visit("", "top_p", op.top_p, Access::read);
  visit("", "min_p", op.min_p, Access::read);
  visit("", "top_k", op.top_k, Access::read);
  visit("", "seed", op.seed, Access::read);
  visit("", "token", op.token, Access::write);
  visit("", "state", op.state, Access::write);
}

template <typename Self, typename Visit>
void WalkTrees::operands(Self& op, Visit visit) {
  NodeTables::operands(op.tree, "tree.", Access::read, visit);
  visit("", "choice", op.choice, Access::read);
  visit("", "state", op.state, Access::read);
  visit("", "path", op.path, Access::write);
  visit("", "count", op.count, Access::write);
  visit("", "last", op.last, Access::write);
  visit("", "token", op.token, Access::write);
  visit("", "outcome", op.outcome, Access::write);
}

template <typename Self, typename Visit>
void ListMoves::operands(Self& op, Visit visit) {
  visit("", "path", op.path, Access::read);
  visit("", "count", op.count, Access::read);
  visit("", "row", op.row, Access::read);
  visit("", "first", op.first, Access::read);
  visit("places.", "blocks", op.places.blocks, Access::read);
  visit("", "from", op.from, Access::write);
  visit("", "to", op.to, Access::write);
  visit("", "kept", op.kept, Access::write);
}

template <typename Self, typename Visit>
void CatchUp::operands(Self& op, Visit visit) {
  visit("", "path", op.path, Access::read);
  visit("", "count", op.count, Access::read);
  visit("", "choice", op.choice, Access::read);
  visit("", "prefix", op.prefix, Access::read);
  visit("", "begin", op.begin, Access::read);
  visit("places.", "blocks", op.places.blocks, Access::read);
  PlacedRows::operands(op.rows, visit);
  visit("", "feature", op.feature, Access::write);
  visit("", "seed", op.seed, Access::write);
}

}  // namespace espalier
