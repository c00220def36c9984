// The rows of a linear's input as the contract quantises them, alone or in one kernel with the op that makes them; what
// that op stores is stored all the same.
#include <algorithm>

#include "device/cuda/cluster_ops.h"
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/cuda/quantised_ops.h"

namespace espalier::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostThreads = 1024;

// A row for each x of the grid, a block of it a warp.
struct Unit {
  std::int64_t r, block, column;
  __device__ Unit() {
    r = blockIdx.x;
    block = blockIdx.y * (kThreads / kWarp) + threadIdx.x / kWarp;
    column = block * kBlock + threadIdx.x % kWarp;
  }
};

__global__ void quantise_kernel(ConstRows x, QuantisedRows quantised) {
  wait_for_earlier_kernels();
  const Unit unit;
  if (unit.block >= quantised.blocks) return;
  quantise_block(x.data[unit.r * x.stride + unit.column], unit.r, unit.block, quantised);
}

__global__ void swiglu_quantise_kernel(SwigluQuantised call) {
  let_the_next_come();
  wait_and_hold_the_next_back();
  const Unit unit;
  if (unit.block < call.quantised.blocks) swiglu_block(call, unit.r, unit.block);
}

// A row for each x of the grid, its blocks shared out to the warps of all y.
__global__ void __launch_bounds__(kMostThreads) norm_quantise_kernel(NormQuantised call) {
  let_the_next_come();
  const NormShare share(call, blockIdx.x, blockIdx.y, gridDim.y);
  wait_and_hold_the_next_back();
  share.compute();
}

Launch a_warp_each(std::int64_t rows, std::int64_t inputs) {
  return {{static_cast<unsigned>(rows), blocks_for(inputs / kBlock, kThreads / kWarp), 1}, kThreads};
}

}  // namespace

std::int64_t quantised_bytes(std::int64_t rows, std::int64_t inputs) {
  const std::int64_t chunks = (inputs + kBlock * kChunkBlocks - 1) / (kBlock * kChunkBlocks);
  return rows == 1 ? chunks * kOneRowChunkBytes : (rows + kRowTile - 1) / kRowTile * chunks * kTileChunkBytes;
}

void quantise_rows(Queue queue, ConstRows x, std::byte* quantised) {
  launch(queue, "quantise_rows", quantise_kernel, a_warp_each(x.rows, x.columns), x,
         quantised_rows(quantised, x.rows, x.columns));
}

void swiglu_quantised(Queue queue, const SwigluOp& op) {
  if (queue.held != nullptr && queue.held->hold(queue, op)) return;
  launch(queue, "swiglu", swiglu_quantise_kernel, a_warp_each(op.y.rows, op.y.columns), swiglu_call(op));
}

void rms_norm_quantised(Queue queue, const NormOp& op) {
  if (queue.held != nullptr && queue.held->hold(queue, op)) return;
  // A warp a block where rows leave multiprocessors enough for that.
  const std::int64_t blocks = op.y.columns / kBlock, warps = kThreads / kWarp;
  const std::int64_t shares = std::clamp<std::int64_t>(queue.processors / op.y.rows, 1, (blocks + warps - 1) / warps);
  const std::int64_t of_share = (blocks + shares - 1) / shares, most = kMostThreads / kWarp;
  const auto threads = static_cast<unsigned>(std::min(of_share, most) * kWarp);
  launch(queue, "rms_norm", norm_quantise_kernel,
         {{static_cast<unsigned>(op.y.rows), static_cast<unsigned>(shares), 1}, threads}, norm_call(op));
}

}  // namespace espalier::cuda
