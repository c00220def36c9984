// Attention by the contract's tiles of 128 key ordinals: a team of warps for every tile of every row and a share of
// heads, one or two teams a block of threads (where tiles are many, other blocks: attention_any.h). Tiles that lie in
// one block are added up there; of more, every block leaves maxima and sums, and the last block of a row adds them up,
// ascending. What a row sees is read from the tables, so the grid is as large as the tables allow, and a block without
// keys has nothing to do.
//
// A step of one row is a chain of waits, so whatever does not need the kernel ahead comes before it has ended: tables,
// and where that kernel is known to write no slots but a few (AttentionCall::fresh) all other keys and values.
#include <algorithm>

#include "device/cuda/attention_any.h"
#include "device/cuda/attention_parts.h"
#include "device/cuda/attention_team.h"
#include "device/cuda/cluster_ops.h"
#include "device/cuda/format_switch.h"
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/cuda/last_block.h"

namespace espalier::cuda {
namespace {

template <typename Element, int dim, int teams>
__global__ void __launch_bounds__(teams* StagedTile<Element, dim>::kThreads)
    attention_kernel(const __grid_constant__ AttentionCall call, const __grid_constant__ AttentionLeft left) {
  const int first_tile = static_cast<int>(blockIdx.x) * teams;
  const int number = static_cast<int>(threadIdx.x) / StagedTile<Element, dim>::kThreads;
  Team<Element, dim> team(call, left, {first_tile + number, static_cast<int>(blockIdx.y), blockIdx.z, number});
  team.prepare();
  wait_for_earlier_kernels();
  if (first_tile != 0 && first_tile >= team.tiles()) return;
  if (team.works()) team.compute();
  if (team.tiles() <= teams) {
    if (team.tile() == 1) team.leave_sums();
    __syncthreads();
    if (team.tile() == 0) team.finish_here();
  } else {
    if (team.works()) team.leave_tile();
    if (!arrive_last(left.arrived + blockIdx.z * gridDim.y + blockIdx.y, (team.tiles() + teams - 1) / teams)) return;
    if (team.tile() == first_tile) team.finish_all();
  }
}

template <typename Element, int dim, int teams>
void launch_teams(Queue queue, const AttentionCall& call, const AttentionLeft& left) {
  using Tile = StagedTile<Element, dim>;
  static_assert(Tile::kBytes < static_cast<int>(kSmallSharedBytes));
  const Launch how{
      {blocks_for(left.most_tiles, teams), static_cast<unsigned>(call.kv_heads * shares_of(call, left.heads_at_once)),
       static_cast<unsigned>(call.rows)},
      teams * Tile::kThreads,
      static_cast<std::size_t>(teams) * Tile::kBytes};
  launch(queue, "attention", attention_kernel<Element, dim, teams>, how, call, left);
}

template <typename Element, int dim>
void launch_any(Queue queue, const AttentionCall& call, const AttentionLeft& left) {
  auto shared = static_cast<std::size_t>(any_shared_floats(static_cast<int>(call.dim))) * sizeof(float);
  if constexpr (dim != 0) shared += SharedTile<Element, dim>::kBytes;
  const Launch how{
      {static_cast<unsigned>(left.most_tiles),
       static_cast<unsigned>(call.kv_heads * shares_of(call, left.heads_at_once)), static_cast<unsigned>(call.rows)},
      kKeys,
      shared};
  launch(queue, "attention", any_attention_kernel<Element, dim>, how, call, left);
}

// Teams where tiles are so few that the wait for one counts; two tiles a block where a row may have no more than a few:
// they need not meet in memory.
template <typename Element, int dim>
void launch_staged(Queue queue, const AttentionCall& call, AttentionLeft left) {
  constexpr int kFewTiles = 4, kFewBlocks = 5;  // of a row, of a multiprocessor
  const std::int64_t blocks = call.rows * call.kv_heads * shares_of(call, kMostHeads) * left.most_tiles;
  if (blocks > kFewBlocks * queue.processors) return launch_any<Element, dim>(queue, call, left);
  left.heads_at_once = heads_at_once(queue.processors, call);
  if (left.most_tiles <= kFewTiles && left.heads_at_once == 1 && !queue.small_blocks)
    launch_teams<Element, dim, 2>(queue, call, left);
  else
    launch_teams<Element, dim, 1>(queue, call, left);
}

}  // namespace

std::int64_t attention_tile_bytes(const AttentionCall& call) {
  return call.heads * most_tiles(call) * (call.dim + kTileHead) * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t attention_count_bytes(const AttentionCall& call) {
  return call.rows * call.heads * static_cast<std::int64_t>(sizeof(std::int32_t));
}

void attention(Queue queue, const AttentionCall& call, const AttentionScratch& scratch, const AttentionForms& forms) {
  if (queue.held != nullptr && queue.held->hold(queue, AttentionOp{call, scratch, forms})) return;
  const AttentionLeft left = attention_left(queue, call, scratch, forms);
  with_element(call.kv_type, [&](auto element) {
    using Element = decltype(element);
    if constexpr (sizeof(typename Element::Stored) == 2) {
      if (call.dim == 64 && is_aligned(call)) return launch_staged<Element, 64>(queue, call, left);
      if (call.dim == 96 && is_aligned(call)) return launch_staged<Element, 96>(queue, call, left);
      if (call.dim == 128 && is_aligned(call)) return launch_staged<Element, 128>(queue, call, left);
    }
    launch_any<Element, 0>(queue, call, left);
  });
}

}  // namespace espalier::cuda
