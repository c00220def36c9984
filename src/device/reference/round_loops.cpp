#include "device/reference/round_loops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "base/arithmetic.h"
#include "base/math.h"
#include "base/random.h"
#include "device/host_views.h"

namespace espalier {
namespace {

constexpr double kNoChance = -std::numeric_limits<double>::infinity();

// --- nodes, places and rows -----------------------------------------------------------------------------------------

// One tree of NodeTables.
struct Nodes {
  Nodes(const NodeTables& tables, std::int64_t tree)
      : token(ints(tables.token, tree)),
        parent(ints(tables.parent, tree)),
        depth(ints(tables.depth, tree)),
        row(ints(tables.row, tree)),
        score(doubles(tables.score, tree)) {}

  bool has(std::int64_t node) const { return node == 0 || depth[node] > 0; }
  void clear(std::int64_t node) const { token[node] = parent[node] = depth[node] = row[node] = 0, score[node] = 0; }
  // The higher score, among equals the older.
  bool better(std::int32_t left, std::int32_t right) const {
    return score[left] != score[right] ? score[left] > score[right] : left < right;
  }

  std::int32_t *token, *parent, *depth, *row;
  double* score;
};

std::int32_t slot_of(const PlaceTables& places, std::int64_t tree, std::int64_t place) {
  const std::int64_t block = ints(places.blocks, tree)[place / places.block_size];
  return static_cast<std::int32_t>(block * places.block_size + place % places.block_size);
}

// A row that is not there: it writes a slot of its own and sees nothing but itself.
void write_empty_row(const PlacedRows& rows, std::int64_t r, std::int64_t tree, std::int32_t slot) {
  for (const View& table : {rows.token, rows.position, rows.begin, rows.end, rows.ancestor_count}) ints(table)[r] = 0;
  if (!rows.input.empty()) ints(rows.input)[r] = 0;
  ints(rows.slot)[r] = slot;
  ints(rows.sequence)[r] = static_cast<std::int32_t>(tree);
  std::fill_n(ints(rows.ancestors, r), rows.ancestors.dim(1), 0);
}

std::int32_t window_begin(std::int32_t begin, std::int32_t seen_before, std::int32_t window) {
  return window == 0 ? begin : std::max(begin, seen_before);
}

// --- growing --------------------------------------------------------------------------------------------------------

// The nodes of one level of one tree.
void add_level(const GrowLevel& op, std::int64_t tree) {
  const Nodes nodes(op.nodes, tree);
  const std::int64_t width = op.entry.dim(0), first = op.nodes.nodes() - width;
  const bool grows = op.level <= ints(op.levels)[tree];
  for (std::int64_t w = 0; w < width; ++w) {
    const std::int64_t node = first + w;
    const std::int32_t entry = ints(op.entry)[w], rank = ints(op.rank)[w];
    const std::int32_t parent = ints(op.frontier, tree)[entry], guesses = ints(op.guess_row, tree)[entry];
    nodes.clear(node);
    if (!grows || nodes.depth[parent] != op.level - 1 || rank >= ints(op.guesses.count)[guesses]) continue;
    const std::int32_t token = ints(op.guesses.token, guesses)[rank];
    bool carried = false;  // by a sibling
    for (std::int64_t before = w; before-- > 0 && ints(op.entry)[before] == entry;)
      carried = carried || (nodes.depth[first + before] > 0 && nodes.token[first + before] == token);
    if (carried) continue;
    nodes.token[node] = token;
    nodes.parent[node] = parent;
    nodes.depth[node] = op.level;
    nodes.score[node] = nodes.score[parent] + doubles(op.guesses.log_probability, guesses)[rank];
  }
}

void choose_frontier(const GrowLevel& op, std::int64_t tree) {
  const Nodes nodes(op.nodes, tree);
  const std::int64_t width = op.entry.dim(0), first = op.nodes.nodes() - width, wanted = op.next.dim(1);
  std::int32_t* const next = ints(op.next, tree);
  std::fill_n(next, wanted, 0);
  if (op.level >= ints(op.levels)[tree]) return;
  std::vector<std::int32_t> chosen;
  if (op.listed.empty()) {
    for (std::int64_t node = first; node < first + width; ++node)
      if (nodes.has(node)) chosen.push_back(static_cast<std::int32_t>(node));
    std::ranges::sort(chosen, [&](std::int32_t a, std::int32_t b) { return nodes.better(a, b); });
    chosen.resize(std::min(chosen.size(), static_cast<std::size_t>(wanted)));
  } else {
    for (std::int64_t i = 0; i < wanted; ++i) chosen.push_back(nodes.has(ints(op.listed)[i]) ? ints(op.listed)[i] : 0);
  }
  std::ranges::copy(chosen, next);
}

void run_op(const GrowLevel& op) {
  for (std::int64_t tree = 0; tree < op.nodes.trees(); ++tree) {
    if (op.level == 1) {
      const Nodes nodes(op.nodes, tree);
      nodes.clear(0);
      nodes.token[0] = ints(op.root)[tree];
      nodes.row[0] = op.root_row;
    }
    add_level(op, tree);
    if (!op.next.empty()) choose_frontier(op, tree);
  }
}

// The best nodes of a tree, the root first, in breadth-first order: by level, in a level by the parent's place in this
// order, below one parent best first.
std::vector<std::int32_t> chosen_nodes(const Nodes& nodes, std::int64_t count, std::int64_t rows) {
  std::vector<std::int32_t> kept;
  for (std::int64_t node = 1; node < count; ++node)
    if (nodes.has(node)) kept.push_back(static_cast<std::int32_t>(node));
  std::ranges::sort(kept, [&](std::int32_t a, std::int32_t b) { return nodes.better(a, b); });
  kept.resize(std::min(kept.size(), static_cast<std::size_t>(rows - 1)));
  std::vector<std::int32_t> order = {0};
  for (std::size_t above = 0; above < order.size(); ++above)
    for (const std::int32_t node : kept)
      if (nodes.parent[node] == order[above]) order.push_back(node);
  return order;
}

void run_op(const ChooseRows& op) {
  for (std::int64_t tree = 0; tree < op.nodes.trees(); ++tree) {
    const Nodes nodes(op.nodes, tree), rows(op.tree, tree);
    std::int32_t* const drafted = ints(op.drafted, tree);
    const std::vector<std::int32_t> order = chosen_nodes(nodes, op.nodes.nodes(), ints(op.rows)[tree]);
    ints(op.size)[tree] = static_cast<std::int32_t>(order.size());
    for (std::int64_t r = 0; r < op.tree.nodes(); ++r) {
      rows.clear(r);
      drafted[r] = 0;
      if (r >= std::ssize(order)) continue;
      const std::int32_t node = order[static_cast<std::size_t>(r)];
      rows.token[r] = nodes.token[node];
      rows.depth[r] = nodes.depth[node];
      rows.score[r] = nodes.score[node];
      rows.parent[r] = static_cast<std::int32_t>(std::ranges::find(order, nodes.parent[node]) - order.begin());
      drafted[r] = nodes.row[node];
    }
  }
}

// --- rows of a pass -------------------------------------------------------------------------------------------------

// The rows above a node in the memory of its step, root first.
std::vector<std::int32_t> rows_above(const Nodes& nodes, std::int32_t node) {
  std::vector<std::int32_t> above;
  while (node != 0) {
    node = nodes.parent[node];
    if (nodes.row[node] > 0) above.push_back(nodes.row[node] - 1);
  }
  std::ranges::reverse(above);
  return above;
}

void place_node(const PlaceRows& op, std::int64_t tree, std::int32_t node, std::int64_t r) {
  const Nodes nodes(op.nodes, tree);
  const PlacedRows& rows = op.rows;
  const std::int32_t first = ints(op.first)[tree], position = ints(op.root_position)[tree] + nodes.depth[node];
  const std::int32_t begin = window_begin(ints(op.begin)[tree], position - (op.window - 1), op.window);
  const std::vector<std::int32_t> above = rows_above(nodes, node);
  const auto hidden = static_cast<std::size_t>(std::max(0, begin - first));
  ints(rows.token)[r] = nodes.token[node];
  ints(rows.position)[r] = position;
  ints(rows.begin)[r] = begin;
  ints(rows.end)[r] = first;
  for (std::size_t i = hidden; i < above.size(); ++i)
    ints(rows.ancestors, r)[i - hidden] = slot_of(op.places, tree, first + above[i]);
  ints(rows.ancestor_count)[r] = static_cast<std::int32_t>(above.size() - std::min(hidden, above.size()));
  if (rows.input.empty()) return;
  const std::int32_t parent = nodes.parent[node];
  ints(rows.input)[r] = parent == 0
                            ? ints(op.seed)[tree]
                            : static_cast<std::int32_t>(tree) * op.prior_rows + nodes.row[parent] - 1 - op.prior_offset;
}

void run_op(const PlaceRows& op) {
  const std::int64_t width = op.listed.empty() ? op.nodes.nodes() : op.listed.dim(1);
  for (std::int64_t tree = 0; tree < op.nodes.trees(); ++tree) {
    const Nodes nodes(op.nodes, tree);
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t r = tree * width + i, number = op.offset + i;
      const auto node = op.listed.empty() ? static_cast<std::int32_t>(i) : ints(op.listed, tree)[i];
      write_empty_row(op.rows, r, tree, slot_of(op.places, tree, ints(op.first)[tree] + number));
      if (op.listed.empty() ? !nodes.has(node) : node == 0) continue;
      nodes.row[node] = static_cast<std::int32_t>(1 + number);
      place_node(op, tree, node, r);
    }
  }
}

void run_op(const CatchUp& op) {
  const std::int64_t trees = op.path.dim(0), width = op.path.dim(1), rows_of_tree = op.choice.dim(0) / trees;
  for (std::int64_t tree = 0; tree < trees; ++tree) {
    const std::int32_t count = ints(op.count)[tree];
    for (std::int64_t j = 0; j < width; ++j) {
      const std::int64_t r = tree * width + j, step_row = tree * rows_of_tree + ints(op.path, tree)[j];
      const std::int32_t position = ints(op.prefix)[tree] + static_cast<std::int32_t>(j), place = position + 1;
      write_empty_row(op.rows, r, tree, slot_of(op.places, tree, place));
      ints(op.feature)[r] = static_cast<std::int32_t>(step_row);
      if (!op.rows.input.empty()) ints(op.rows.input)[r] = static_cast<std::int32_t>(r);
      if (j >= count) continue;
      ints(op.rows.token)[r] = ints(op.choice)[step_row];
      ints(op.rows.position)[r] = position;
      ints(op.rows.begin)[r] = window_begin(ints(op.begin)[tree], place - op.window, op.window);
      ints(op.rows.end)[r] = place;
    }
    ints(op.seed)[tree] = static_cast<std::int32_t>(tree * width) + std::max(count, 1) - 1;
  }
}

// --- the walk and what it keeps -------------------------------------------------------------------------------------

// The row below `row` that carries the token; 0, nobody's child, where there is none.
std::int32_t child_of(const Nodes& tree, std::int64_t rows, std::int32_t row, std::int32_t token) {
  for (std::int32_t child = row + 1; child < rows; ++child)
    if (tree.depth[child] > 0 && tree.parent[child] == row && tree.token[child] == token) return child;
  return 0;
}

void walk_tree(const WalkTrees& op, std::int64_t s) {
  const Nodes tree(op.tree, s);
  const std::int64_t rows = op.tree.nodes(), first = s * rows;
  std::int32_t* const path = ints(op.path, s);
  std::int32_t count = 0, row = 0, outcome = 0;
  for (bool goes_on = true; goes_on && count < op.path.dim(1);) {
    path[count++] = row;
    outcome = ints(op.state)[first + row];
    const std::int32_t child = outcome == 0 ? child_of(tree, rows, row, ints(op.choice)[first + row]) : 0;
    goes_on = child != 0;
    if (goes_on) row = child;
  }
  if (outcome != 0) count = row = 0;
  std::fill(path + count, path + op.path.dim(1), row);
  ints(op.count)[s] = count;
  ints(op.last)[s] = static_cast<std::int32_t>(first) + row;
  ints(op.token)[s] = ints(op.choice)[first + row];
  ints(op.outcome)[s] = outcome;
}

void run_op(const WalkTrees& op) {
  for (std::int64_t tree = 0; tree < op.tree.trees(); ++tree) walk_tree(op, tree);
}

void run_op(const ListMoves& op) {
  const std::int64_t width = op.path.dim(1);
  for (std::int64_t tree = 0; tree < op.path.dim(0); ++tree) {
    const std::int32_t first = ints(op.first)[tree];
    std::int32_t kept = 0;
    for (std::int32_t j = 0; j < width; ++j) {
      const std::int32_t row = ints(op.row, tree)[ints(op.path, tree)[j]];
      const std::int64_t r = tree * width + j;
      if (kept == j && j < ints(op.count)[tree] && row > 0) ++kept;
      ints(op.to)[r] = slot_of(op.places, tree, first + j);
      ints(op.from)[r] = j < kept ? slot_of(op.places, tree, first + row - 1) : ints(op.to)[r];
    }
    ints(op.kept)[tree] = kept;
  }
}

// --- choices --------------------------------------------------------------------------------------------------------

struct Draw {
  float temperature = 0, top_p = 1, min_p = 0;
  std::int64_t top_k = 0;
  double u = 0;
};

// The ids that may be drawn with their weights, ranked as far as a device ranks them.
class RankedTokens {
 public:
  RankedTokens(std::span<const float> x, float largest, float temperature) : t_(x.size()) {
    for (std::size_t j = 0; j < x.size(); ++j) {
      t_[j] = (x[j] - largest) / temperature;
      if (t_[j] > -std::numeric_limits<float>::infinity()) ids_.push_back(static_cast<std::int32_t>(j));  // no NaN
    }
    size_ = std::ssize(ids_);
    ranked_ = ids_;
    const auto ranks = static_cast<std::ptrdiff_t>(std::min(size_, kRankedTokens));
    std::partial_sort(ranked_.begin(), ranked_.begin() + ranks, ranked_.end(),
                      [this](std::int32_t a, std::int32_t b) { return t(a) != t(b) ? t(a) > t(b) : a < b; });
    ranked_.resize(static_cast<std::size_t>(ranks));
  }

  std::int64_t size() const { return size_; }
  // Whether it is known which id has this rank.
  bool knows(std::int64_t rank) const { return rank < std::ssize(ranked_); }
  std::int32_t id(std::int64_t rank) const { return ranked_[static_cast<std::size_t>(rank)]; }
  double weight(std::int64_t rank) const { return exp_f32(t(id(rank))); }
  // count: size() or more, or at most as many as are ranked
  void keep_first(std::int64_t count) {
    if (count >= size_) return;
    ranked_.resize(static_cast<std::size_t>(count));
    ids_ = ranked_;
    std::ranges::sort(ids_);
    size_ = count;
  }
  double total() const {
    double lane[kVocabularyLanes] = {};
    for (const std::int32_t id : ids_) lane[static_cast<std::size_t>(id) % kVocabularyLanes] += exp_f32(t(id));
    return add_halves(lane);
  }

 private:
  float t(std::int32_t id) const { return t_[static_cast<std::size_t>(id)]; }

  std::vector<float> t_;
  std::vector<std::int32_t> ids_;     // kept, ascending
  std::vector<std::int32_t> ranked_;  // the best of them
  std::int64_t size_ = 0;
};

// False: which ids are kept is not decided.
bool cut(const Draw& draw, RankedTokens& ranked) {
  if (draw.top_k > 0) {
    if (draw.top_k < ranked.size() && !ranked.knows(draw.top_k - 1)) return false;
    ranked.keep_first(draw.top_k);
  }
  if (draw.top_p < 1.0f) {
    const double enough = double{draw.top_p} * ranked.total();
    double sum = 0;
    std::int64_t count = 0;
    for (; count < ranked.size() && (count == 0 || sum < enough); ++count) {
      if (!ranked.knows(count)) return false;
      sum += ranked.weight(count);
    }
    ranked.keep_first(count);
  }
  if (draw.min_p > 0.0f) {
    std::int64_t count = 1;  // the largest has weight 1
    for (; count < ranked.size(); ++count) {
      if (!ranked.knows(count)) return false;
      if (ranked.weight(count) < double{draw.min_p}) break;
    }
    ranked.keep_first(count);
  }
  return true;
}

struct Choice {
  std::int32_t token = 0;
  RowState state = RowState::decided;
};

// greedy: the lowest id that has the largest logit, which is finite.
Choice drawn_token(std::span<const float> x, float largest, std::int32_t greedy, const Draw& draw) {
  RankedTokens ranked(x, largest, draw.temperature);
  const Choice undecided{greedy, RowState::undecided};
  if (!cut(draw, ranked)) return undecided;
  const double target = draw.u * ranked.total();
  double sum = 0;
  Choice choice{ranked.id(0)};
  for (std::int64_t rank = 0; rank < ranked.size(); ++rank) {
    if (!ranked.knows(rank)) return undecided;
    const double weight = ranked.weight(rank);
    if (weight == 0) break;  // the rest has no share
    choice.token = ranked.id(rank);
    sum += weight;
    if (sum > target) break;
  }
  return choice;
}

Draw draw_at(const ChooseTokens& op, std::int64_t row) {
  const std::int64_t tree = row / (op.logits.dim(0) / op.temperature.dim(0));
  const std::int32_t* const words = ints(op.seed, tree);
  const std::uint64_t seed = static_cast<std::uint32_t>(words[0]) | std::uint64_t{static_cast<std::uint32_t>(words[1])}
                                                                        << 32;
  return {.temperature = floats(op.temperature)[tree],
          .top_p = floats(op.top_p)[tree],
          .min_p = floats(op.min_p)[tree],
          .top_k = ints(op.top_k)[tree],
          .u = uniform(seed, static_cast<std::uint64_t>(ints(op.position)[row]) + 1)};
}

// --- all ops --------------------------------------------------------------------------------------------------------

class RoundLoops final : public RoundOps {
 public:
  explicit RoundLoops(Device& device) : device_(device) {}

 private:
  void do_run(const RoundOp& op) override {
    std::visit([this](const auto& one) { run(one); }, op);
  }
  template <typename Op>
  void run(const Op& op) {
    run_op(op);
  }

  // The k best of each row, in memory of its own.
  void rank(ConstView logits, std::int64_t k) {
    const std::int64_t rows = logits.dim(0);
    values_.resize(static_cast<std::size_t>(rows * k));
    ids_.resize(values_.size());
    device_.top_k(logits, View(reinterpret_cast<std::byte*>(values_.data()), DType::f32, {rows, k}),
                  View(reinterpret_cast<std::byte*>(ids_.data()), DType::i32, {rows, k}));
  }

  void run(const RankGuesses& op) {
    const std::int64_t rows = op.logits.dim(0), k = op.guesses.token.dim(1);
    rank(op.logits, k);
    normalisers_.resize(static_cast<std::size_t>(rows));
    device_.log_sum_exp(op.logits, op.scale,
                        View(reinterpret_cast<std::byte*>(normalisers_.data()), DType::f32, {rows}));
    for (std::int64_t g = 0; g < rows; ++g) list_guesses(op, g);
  }

  void list_guesses(const RankGuesses& op, std::int64_t g) const {
    const std::int64_t k = op.guesses.token.dim(1);
    std::int32_t* const tokens = ints(op.guesses.token, g);
    double* const log_probabilities = doubles(op.guesses.log_probability, g);
    std::int32_t count = 0;
    for (std::int64_t i = g * k; i < (g + 1) * k; ++i) {
      const std::int32_t column = ids_[static_cast<std::size_t>(i)];
      const std::int32_t token = op.target_ids.empty() ? column : ints(op.target_ids)[column];
      if (token < 0 || token >= op.vocabulary) continue;
      const double scaled = op.scale * values_[static_cast<std::size_t>(i)];
      const double value = scaled - normalisers_[static_cast<std::size_t>(g)];
      tokens[count] = token;
      log_probabilities[count++] = std::isnan(value) ? kNoChance : std::min(value, 0.0);
    }
    ints(op.guesses.count)[g] = count;
    std::fill(tokens + count, tokens + k, 0);
    std::fill(log_probabilities + count, log_probabilities + k, kNoChance);
  }

  void run(const ChooseTokens& op) {
    rank(op.logits, 1);
    for (std::int64_t r = 0; r < op.logits.dim(0); ++r) {
      const float largest = values_[static_cast<std::size_t>(r)];
      const std::int32_t greedy = ids_[static_cast<std::size_t>(r)];
      const Draw draw = draw_at(op, r);
      Choice choice{greedy};
      if (!std::isfinite(largest))
        choice.state = RowState::broken;
      else if (draw.temperature > 0)
        choice = drawn_token({floats(op.logits, r), static_cast<std::size_t>(op.logits.dim(1))}, largest, greedy, draw);
      ints(op.token)[r] = choice.token;
      ints(op.state)[r] = static_cast<std::int32_t>(choice.state);
    }
  }

  Device& device_;
  // Scratch, kept to avoid allocating in every round.
  std::vector<float> values_, normalisers_;
  std::vector<std::int32_t> ids_;
};

}  // namespace

std::unique_ptr<RoundOps> make_round_loops(Device& device) {
  return std::make_unique<RoundLoops>(device);
}

}  // namespace espalier
