// Linears of block-quantised weights with the bits of the contract: whole integer dots by matrix instructions, then one
// chain of fused multiply-adds for each output of each row. Here for few rows; linear_few_rows.cu and
// linear_many_rows.cu have the same chains.
//
// Every multiprocessor has one block of threads, so that groups of outputs are shared out evenly, with room beside it
// for the next kernel's. Every warp fetches its own chunks, weights and rows, some turns ahead into a ring of shared
// memory; the first weights come before the kernel ahead has ended. Where there are groups enough, a warp has one to
// itself. Where there are not, the chunks of a group go to several warps in turn: the chain may not be cut, but all
// else may run ahead of it. Each computes what its chunk adds, waits for the sums of the chunks before, runs its part
// of the chain and passes the sums on.
#include <algorithm>
#include <type_traits>

#include "device/cuda/block_linear.h"
#include "device/cuda/cluster_ops.h"
#include "device/cuda/few_rows.h"
#include "device/cuda/format_switch.h"
#include "device/cuda/kernel.h"

namespace espalier::cuda {
namespace {

constexpr int kMostTiles = 2;

template <typename Shape>
__global__ void __launch_bounds__(Shape::kWarps* kWarp) few_rows_kernel(const __grid_constant__ BlockLinear call) {
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
  if constexpr (Shape::small && !kHasSmallBlocks)
    __trap();
  else if constexpr (Shape::relay == 1)
    compute_alone<Shape>(call, warp, lane);
  else
    compute_in_turn<Shape>(call, warp, lane);
}

template <typename Shape>
void launch_few_rows(Queue queue, const BlockLinear& call) {
  const int blocks = std::min(call.groups, queue.processors);
  const unsigned tiles = blocks_for(call.rows, Shape::tiles * kRowTile);
  launch(queue, "linear", few_rows_kernel<Shape>,
         {{static_cast<unsigned>(blocks), tiles, 1}, Shape::kWarps * kWarp, Shape::kBytes}, call);
}

// A warp for each group where that is enough for the GPU, else four, or eight of one row, whose part of a chain is
// short.
template <DType type, int columns, int tiles, bool small>
void launch_enough_warps(Queue queue, const BlockLinear& call) {
  constexpr int kEnoughGroups = 8;  // for a multiprocessor
  constexpr int kTeam = columns == 1 && !small ? 8 : 4;
  if (call.groups >= kEnoughGroups * queue.processors || call.chunks == 1)
    launch_few_rows<FewRows<type, columns, tiles, 1, small>>(queue, call);
  else
    launch_few_rows<FewRows<type, columns, tiles, kTeam, small>>(queue, call);
}

}  // namespace

void linear_blocks(Queue queue, const LinearPart* parts, int count, const std::byte* quantised) {
  if (queue.held != nullptr && queue.held->hold(queue, LinearOp(parts, count, quantised))) return;
  const BlockLinear call = block_linear(parts, count, quantised);
  if (call.rows > kMostTiles * kRowTile) return linear_many_rows(queue, parts[0].type, call);
  if (call.rows > 1 && rows_are_shared(queue, parts[0].type, call)) return linear_few_rows(queue, parts[0].type, call);
  const auto launch_on_card = [&](auto format, auto small) {
    if (call.rows == 1) launch_enough_warps<format(), 1, 1, small()>(queue, call);
    // Where multiprocessors would be left without a group, each tile has blocks of its own: the chain is the way to go.
    else if (call.rows <= kRowTile || kMostTiles * call.groups <= queue.processors)
      launch_enough_warps<format(), 2, 1, small()>(queue, call);
    else
      launch_enough_warps<format(), 2, 2, small()>(queue, call);
  };
  with_format(parts[0].type, [&](auto format) {
    queue.small_blocks ? launch_on_card(format, std::true_type{}) : launch_on_card(format, std::false_type{});
  });
}

}  // namespace espalier::cuda
