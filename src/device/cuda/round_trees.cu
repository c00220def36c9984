// The ops of rounds over trees and rows: grow_level, choose_rows, place_rows, walk_trees, list_moves, catch_up. A block
// of threads for each tree, with what it looks up again and again in shared memory.
#include "device/cuda/kernel.h"
#include "device/cuda/round_kernels.h"
#include "device/cuda/sorting.h"

namespace espalier::cuda {
namespace {

constexpr int kMostThreads = 256;
constexpr int kMostSortThreads = 1024;

__device__ int tree_number() {
  return static_cast<int>(blockIdx.x);
}

// One tree of NodeArrays.
struct Nodes {
  std::int32_t *token, *parent, *depth, *row;
  double* score;

  __device__ Nodes(const NodeArrays& all, int tree)
      : token(all.token.data + tree * all.token.stride),
        parent(all.parent.data + tree * all.parent.stride),
        depth(all.depth.data + tree * all.depth.stride),
        row(all.row.data + tree * all.row.stride),
        score(all.score.data + tree * all.score.stride) {}

  __device__ void clear(int node) const { token[node] = parent[node] = depth[node] = row[node] = 0, score[node] = 0; }
};

__device__ std::int32_t slot_of(const PlaceArrays& places, int tree, int place) {
  const std::int32_t block = places.blocks[std::int64_t{tree} * places.block_columns + place / places.block_size];
  return block * places.block_size + place % places.block_size;
}

// --- growing --------------------------------------------------------------------------------------------------------

// A column of the level.
struct Column {
  double score;
  std::int32_t token, entry;
  bool guessed;  // its entry is there and has such a guess
  bool there;
};

__device__ Column guessed_column(const GrowLevelCall& call, const Nodes& nodes, int w) {
  const std::int64_t tree = tree_number();
  const std::int32_t entry = call.entry[w], rank = call.rank[w];
  const std::int32_t parent = call.frontier[tree * call.frontier_columns + entry];
  const std::int64_t row = call.guess_row[tree * call.frontier_columns + entry];
  Column column{0, 0, entry, false, false};
  if (call.level > call.levels[tree] || nodes.depth[parent] != call.level - 1 || rank >= call.guesses.count[row])
    return column;
  column.token = call.guesses.token[row * call.guesses.k + rank];
  column.score = nodes.score[parent] + call.guesses.log_probability[row * call.guesses.k + rank];
  column.guessed = true;
  return column;
}

// Whether a guess before it below the same entry carries its token. The first of them is there.
__device__ bool is_carried(const Column* columns, int w) {
  for (int before = w; before-- > 0 && columns[before].entry == columns[w].entry;)
    if (columns[before].guessed && columns[before].token == columns[w].token) return true;
  return false;
}

__device__ void write_column(const GrowLevelCall& call, const Nodes& nodes, Column* columns, int w) {
  const int node = call.nodes.nodes - call.width + w;
  Column& column = columns[w];
  column.there = column.guessed && !is_carried(columns, w);
  if (!column.there) return nodes.clear(node);
  nodes.token[node] = column.token;
  nodes.parent[node] = call.frontier[std::int64_t{tree_number()} * call.frontier_columns + column.entry];
  nodes.depth[node] = call.level;
  nodes.score[node] = column.score;
  nodes.row[node] = 0;
}

// How many columns that are there are better than column w.
__device__ int rank_in_level(const Column* columns, int width, int w) {
  const double score = columns[w].score;
  int better = 0;
#pragma unroll 4
  for (int v = 0; v < width; ++v)
    better += columns[v].there && (columns[v].score > score || (columns[v].score == score && v < w));
  return better;
}

__device__ void choose_frontier(const GrowLevelCall& call, const Column* columns) {
  std::int32_t* const next = call.next + std::int64_t{tree_number()} * call.next_columns;
  const int first = call.nodes.nodes - call.width;
  const bool goes_on = call.level < call.levels[tree_number()];
  const bool listed = goes_on && call.listed != nullptr;
  for_each_of(call.next_columns,
              [&](int i) { next[i] = listed && columns[call.listed[i] - first].there ? call.listed[i] : 0; });
  if (!goes_on || listed) return;
  __syncthreads();  // zeros first
  for_each_of(call.width, [&](int w) {
    if (!columns[w].there) return;
    const int rank = rank_in_level(columns, call.width, w);
    if (rank < call.next_columns) next[rank] = first + w;
  });
}

__global__ void __launch_bounds__(kMostThreads) grow_level_kernel(const __grid_constant__ GrowLevelCall call) {
  wait_and_hold_the_next_back();
  const Nodes nodes(call.nodes, tree_number());
  auto* const columns = shared_memory<Column>();
  if (call.level == 1 && threadIdx.x == 0) {
    nodes.clear(0);
    nodes.token[0] = call.root[tree_number()];
    nodes.row[0] = call.root_row;
  }
  __syncthreads();
  for_each_of(call.width, [&](int w) { columns[w] = guessed_column(call, nodes, w); });
  __syncthreads();
  for_each_of(call.width, [&](int w) { write_column(call, nodes, columns, w); });
  if (call.next == nullptr) return;
  __syncthreads();
  choose_frontier(call, columns);
}

// --- the tree to verify ---------------------------------------------------------------------------------------------

// A node's score as an integer that is larger the better it is; never 0.
__device__ std::uint64_t score_key(double score) {
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  const auto bits = score == 0 ? 0 : static_cast<std::uint64_t>(__double_as_longlong(score));
  return bits & kSign ? ~bits : bits | kSign;
}

// Shared memory of choose_rows: the keys of nodes, then what is known of the chosen ones, best first.
struct ChosenNodes {
  std::uint64_t* key;  // 0: it is not there
  std::int32_t *node, *depth, *parent_row;
  std::int32_t* row;  // [nodes] where a node comes in breadth-first order

  __device__ ChosenNodes(std::uint64_t* memory, int sorted)
      : key(memory),
        node(reinterpret_cast<std::int32_t*>(memory + sorted)),
        depth(node + sorted),
        parent_row(depth + sorted),
        row(parent_row + sorted) {}
  static constexpr std::size_t kBytes = sizeof(std::uint64_t) + 4 * sizeof(std::int32_t);  // of a node

  __device__ bool comes_before(int a, int b) const { return key[a] != key[b] ? key[a] > key[b] : node[a] < node[b]; }
  __device__ void swap(int a, int b) const {
    exchange_values(key[a], key[b]);
    exchange_values(node[a], node[b]);
  }
};

// As many are ranked by counting, for each, who is better: that many steps without a barrier. More are sorted.
constexpr int kMostCounted = 512;

// Finds the `wanted` best nodes that are there, or all, and returns how many that are. sorted: a power of two
__device__ int best_nodes(const ChosenNodes& chosen, const Nodes& nodes, int count, int sorted, int wanted) {
  __shared__ std::int32_t there;
  if (threadIdx.x == 0) there = 0;
  for_each_of(sorted, [&](int i) {
    chosen.node[i] = i;
    chosen.key[i] = i > 0 && i < count && nodes.depth[i] > 0 ? score_key(nodes.score[i]) : 0;
  });
  if (count > kMostCounted)
    sort_block(
        sorted, [&](int a, int b) { return chosen.comes_before(a, b); }, [&](int a, int b) { chosen.swap(a, b); });
  __syncthreads();
  for_each_of(sorted, [&](int i) {
    const std::uint64_t key = chosen.key[i];
    if (key == 0) return;
    int better = i;
    if (count <= kMostCounted) {
      better = 0;
#pragma unroll 8
      for (int j = 0; j < count; ++j) better += chosen.key[j] > key || (chosen.key[j] == key && j < i);
      if (better < wanted) chosen.node[better] = i;
    }
    if (better < wanted) atomicMin(&there, -1 - better);
  });
  __syncthreads();
  return -there;
}

// The rows of the first `count` chosen nodes: by level, in a level by the parent's row, below one parent best first.
// Level by level, since parents have their rows first.
__device__ void order_by_breadth(const ChosenNodes& chosen, const Nodes& nodes, int count) {
  __shared__ std::int32_t deepest;
  if (threadIdx.x == 0) chosen.row[0] = deepest = 0;
  __syncthreads();
  for_each_of(count, [&](int i) {
    chosen.depth[i] = nodes.depth[chosen.node[i]];
    chosen.parent_row[i] = nodes.parent[chosen.node[i]];  // the node, until its row is known
    atomicMin(&deepest, -chosen.depth[i]);
  });
  __syncthreads();
  for (int level = 1; level <= -deepest; ++level) {
    for_each_of(count, [&](int i) {
      if (chosen.depth[i] == level) chosen.parent_row[i] = chosen.row[chosen.parent_row[i]];
    });
    __syncthreads();
    for_each_of(count, [&](int i) {
      if (chosen.depth[i] != level) return;
      const std::int32_t parent_row = chosen.parent_row[i];
      int before = 0;
#pragma unroll 4
      for (int j = 0; j < count; ++j)
        before += chosen.depth[j] < level ||
                  (chosen.depth[j] == level &&
                   (chosen.parent_row[j] < parent_row || (chosen.parent_row[j] == parent_row && j < i)));
      chosen.row[chosen.node[i]] = 1 + before;
    });
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kMostSortThreads)
    choose_rows_kernel(const __grid_constant__ ChooseRowsCall call, int sorted) {
  wait_and_hold_the_next_back();
  const int tree = tree_number(), width = call.tree.nodes;
  const Nodes nodes(call.nodes, tree), rows(call.tree, tree);
  std::int32_t* const drafted = call.drafted + std::int64_t{tree} * width;
  const ChosenNodes chosen(shared_memory<std::uint64_t>(), sorted);
  const int count = best_nodes(chosen, nodes, call.nodes.nodes, sorted, call.rows[tree] - 1);
  order_by_breadth(chosen, nodes, count);
  for_each_of(count + 1, [&](int i) {
    const std::int32_t node = i == 0 ? 0 : chosen.node[i - 1], r = chosen.row[node];
    rows.token[r] = nodes.token[node];
    rows.depth[r] = nodes.depth[node];
    rows.score[r] = nodes.score[node];
    rows.parent[r] = i == 0 ? 0 : chosen.parent_row[i - 1];
    rows.row[r] = 0;
    drafted[r] = nodes.row[node];
  });
  for_each_of(width, [&](int r) {
    if (r <= count) return;
    rows.clear(r);
    drafted[r] = 0;
  });
  if (threadIdx.x == 0) call.size[tree] = count + 1;
}

// --- rows of a pass -------------------------------------------------------------------------------------------------

// A row that is not there: it writes a slot of its own and sees nothing but itself.
__device__ void write_empty_row(const RowArrays& rows, std::int64_t r, std::int32_t slot) {
  rows.token[r] = rows.position[r] = rows.begin[r] = rows.end[r] = rows.ancestor_count[r] = 0;
  if (rows.input != nullptr) rows.input[r] = 0;
  rows.slot[r] = slot;
  rows.sequence[r] = tree_number();
}

// The ancestors of `count` rows from `first` on: none yet.
__device__ void clear_ancestors(const RowArrays& rows, std::int64_t first, int count) {
  for_each_of(count * rows.ancestor_columns, [&](int i) { rows.ancestors[first * rows.ancestor_columns + i] = 0; });
}

__device__ std::int32_t window_begin(std::int32_t begin, std::int32_t seen_before, int window) {
  return window == 0 || begin > seen_before ? begin : seen_before;
}

// parent, row: those of all nodes, in shared memory
__device__ void write_ancestors(const PlaceRowsCall& call, std::int32_t node, std::int64_t r, std::int32_t first,
                                const std::int32_t* parent, const std::int32_t* row) {
  int above = 0;
  for (std::int32_t n = node; n != 0;) {
    n = parent[n];
    above += row[n] > 0;
  }
  const std::int32_t beyond = call.rows.begin[r] - first, hidden = beyond > 0 ? beyond : 0;
  call.rows.ancestor_count[r] = above > hidden ? above - hidden : 0;
  for (std::int32_t n = node, left = above - hidden; n != 0 && left > 0;) {  // from the node up, the root's side first
    n = parent[n];
    if (row[n] <= 0) continue;
    --left;
    if (left < call.rows.ancestor_columns)
      call.rows.ancestors[r * call.rows.ancestor_columns + left] =
          slot_of(call.places, tree_number(), first + row[n] - 1);
  }
}

__device__ void place_node(const PlaceRowsCall& call, const Nodes& nodes, std::int32_t node, std::int64_t r,
                           const std::int32_t* parent, const std::int32_t* row) {
  const int tree = tree_number();
  const std::int32_t first = call.first[tree], position = call.root_position[tree] + nodes.depth[node];
  call.rows.token[r] = nodes.token[node];
  call.rows.position[r] = position;
  call.rows.begin[r] = window_begin(call.begin[tree], position - (call.window - 1), call.window);
  call.rows.end[r] = first;
  write_ancestors(call, node, r, first, parent, row);
  if (call.rows.input == nullptr) return;
  const std::int32_t above = parent[node];
  call.rows.input[r] = above == 0 ? call.seed[tree] : tree * call.prior_rows + row[above] - 1 - call.prior_offset;
}

__global__ void __launch_bounds__(kMostThreads) place_rows_kernel(const __grid_constant__ PlaceRowsCall call) {
  wait_and_hold_the_next_back();
  const int tree = tree_number(), count = call.nodes.nodes;
  const std::int64_t first_row = std::int64_t{tree} * call.width;
  const Nodes nodes(call.nodes, tree);
  std::int32_t *const parent = shared_memory<std::int32_t>(), *const row = parent + count;
  // The node of row i; -1: the row is not there.
  const auto node_of = [&](int i) {
    if (call.listed == nullptr) return i == 0 || nodes.depth[i] > 0 ? i : -1;
    const std::int32_t node = call.listed[first_row + i];
    return node > 0 ? node : -1;
  };
  for_each_of(count, [&](int n) {
    parent[n] = nodes.parent[n];
    row[n] = nodes.row[n];
  });
  clear_ancestors(call.rows, first_row, call.width);
  __syncthreads();
  for_each_of(call.width, [&](int i) {
    if (const int node = node_of(i); node >= 0) nodes.row[node] = row[node] = 1 + call.offset + i;
  });
  __syncthreads();
  for_each_of(call.width, [&](int i) {
    write_empty_row(call.rows, first_row + i, slot_of(call.places, tree, call.first[tree] + call.offset + i));
    if (const int node = node_of(i); node >= 0) place_node(call, nodes, node, first_row + i, parent, row);
  });
}

__global__ void __launch_bounds__(kMostThreads) catch_up_kernel(const __grid_constant__ CatchUpCall call) {
  wait_and_hold_the_next_back();
  const int tree = tree_number();
  const std::int64_t first_row = std::int64_t{tree} * call.length;
  const std::int32_t count = call.count[tree];
  for_each_of(call.length, [&](int j) {
    const std::int64_t r = first_row + j, step_row = std::int64_t{tree} * call.tree_rows + call.path[first_row + j];
    const std::int32_t position = call.prefix[tree] + j, place = position + 1;
    write_empty_row(call.rows, r, slot_of(call.places, tree, place));
    call.feature[r] = static_cast<std::int32_t>(step_row);
    if (call.rows.input != nullptr) call.rows.input[r] = static_cast<std::int32_t>(r);
    if (j >= count) return;
    call.rows.token[r] = call.choice[step_row];
    call.rows.position[r] = position;
    call.rows.begin[r] = window_begin(call.begin[tree], place - call.window, call.window);
    call.rows.end[r] = place;
  });
  clear_ancestors(call.rows, first_row, call.length);
  if (threadIdx.x == 0) call.seed[tree] = static_cast<std::int32_t>(first_row) + (count > 1 ? count : 1) - 1;
}

// --- the walk and what it keeps -------------------------------------------------------------------------------------

// What a walk leaves for all threads of the block.
struct Walked {
  std::int32_t count, row;
};

// By one thread. child: of each row, the one that carries its choice, or kNoChild
constexpr std::int32_t kNoChild = 0x7fffffff;
__device__ Walked walk(const WalkTreesCall& call, const std::int32_t* child, const std::int32_t* state) {
  const int tree = tree_number();
  const std::int64_t first = std::int64_t{tree} * call.tree.nodes;
  std::int32_t* const path = call.path + std::int64_t{tree} * call.length;
  std::int32_t count = 0, row = 0, outcome = 0;
  for (bool goes_on = true; goes_on && count < call.length;) {
    path[count++] = row;
    outcome = state[row];
    goes_on = outcome == 0 && child[row] != kNoChild;
    if (goes_on) row = child[row];
  }
  if (outcome != 0) count = row = 0;
  call.count[tree] = count;
  call.last[tree] = static_cast<std::int32_t>(first) + row;
  call.token[tree] = call.choice[first + row];
  call.outcome[tree] = outcome;
  return {count, row};
}

__global__ void __launch_bounds__(kMostThreads) walk_trees_kernel(const __grid_constant__ WalkTreesCall call) {
  wait_and_hold_the_next_back();
  __shared__ Walked walked;
  const int tree = tree_number(), rows = call.tree.nodes;
  const std::int64_t first = std::int64_t{tree} * rows;
  const Nodes nodes(call.tree, tree);
  std::int32_t *const child = shared_memory<std::int32_t>(), *const state = child + rows;
  for_each_of(rows, [&](int r) {
    child[r] = kNoChild;
    state[r] = call.state[first + r];
  });
  __syncthreads();
  for_each_of(rows, [&](int r) {
    const std::int32_t parent = nodes.parent[r];
    if (nodes.depth[r] > 0 && parent < r && nodes.token[r] == call.choice[first + parent])
      atomicMin(child + parent, r);  // the first of them
  });
  __syncthreads();
  if (threadIdx.x == 0) walked = walk(call, child, state);
  __syncthreads();
  for_each_of(call.length, [&](int j) {
    if (j >= walked.count) call.path[std::int64_t{tree} * call.length + j] = walked.row;
  });
}

__global__ void __launch_bounds__(kMostThreads) list_moves_kernel(const __grid_constant__ ListMovesCall call) {
  wait_and_hold_the_next_back();
  __shared__ std::int32_t kept;
  const int tree = tree_number();
  const std::int64_t first_row = std::int64_t{tree} * call.length;
  const std::int32_t first = call.first[tree], count = call.count[tree];
  const auto row_at = [&](int j) { return call.row[std::int64_t{tree} * call.tree_rows + call.path[first_row + j]]; };
  if (threadIdx.x == 0) kept = count < call.length ? count : call.length;
  __syncthreads();
  for_each_of(call.length, [&](int j) {
    if (row_at(j) <= 0) atomicMin(&kept, j);
  });
  __syncthreads();
  for_each_of(call.length, [&](int j) {
    const std::int32_t to = slot_of(call.places, tree, first + j);
    call.to[first_row + j] = to;
    call.from[first_row + j] = j < kept ? slot_of(call.places, tree, first + row_at(j) - 1) : to;
  });
  if (threadIdx.x == 0) call.kept[tree] = kept;
}

// A block for each tree, with a thread for each of `items`, if that can be.
Launch block_for_each(int trees, int items, int most, std::size_t shared_bytes) {
  const int threads = items < most ? items : most;
  return {{static_cast<unsigned>(trees), 1, 1}, blocks_for(threads, kWarp) * kWarp, shared_bytes};
}

}  // namespace

void grow_level(Queue queue, const GrowLevelCall& call) {
  const std::size_t shared = sizeof(Column) * static_cast<std::size_t>(call.width);
  launch(queue, "grow_level", grow_level_kernel, block_for_each(call.nodes.trees, call.width, kMostThreads, shared),
         call);
}

void choose_rows(Queue queue, const ChooseRowsCall& call) {
  const int sorted = sorted_size(call.nodes.nodes);
  const std::size_t shared = ChosenNodes::kBytes * static_cast<std::size_t>(sorted);
  launch(queue, "choose_rows", choose_rows_kernel,
         block_for_each(call.nodes.trees, call.nodes.nodes <= kMostCounted ? call.nodes.nodes : sorted / 2,
                        kMostSortThreads, shared),
         call, sorted);
}

void place_rows(Queue queue, const PlaceRowsCall& call) {
  const std::size_t shared = 2 * sizeof(std::int32_t) * static_cast<std::size_t>(call.nodes.nodes);
  launch(queue, "place_rows", place_rows_kernel,
         block_for_each(call.nodes.trees, call.nodes.nodes, kMostThreads, shared), call);
}

void walk_trees(Queue queue, const WalkTreesCall& call) {
  const std::size_t shared = 2 * sizeof(std::int32_t) * static_cast<std::size_t>(call.tree.nodes);
  launch(queue, "walk_trees", walk_trees_kernel, block_for_each(call.tree.trees, call.tree.nodes, kMostThreads, shared),
         call);
}

void list_moves(Queue queue, const ListMovesCall& call) {
  launch(queue, "list_moves", list_moves_kernel, block_for_each(call.trees, call.length, kMostThreads, 0), call);
}

void catch_up(Queue queue, const CatchUpCall& call) {
  launch(queue, "catch_up", catch_up_kernel,
         block_for_each(call.trees, call.length * call.rows.ancestor_columns, kMostThreads, 0), call);
}

}  // namespace espalier::cuda
