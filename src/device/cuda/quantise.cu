// The rows of a linear's input as the contract quantises them, alone or in one kernel with the op that makes them; what
// that op stores is stored all the same.
#include <algorithm>

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/cuda/quantise_block.h"
#include "device/cuda/rms_row.h"
#include "device/cuda/scalar_math.h"

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

__global__ void swiglu_quantise_kernel(const float* x, Rows y, QuantisedRows quantised) {
  let_the_next_come();
  wait_and_hold_the_next_back();
  const Unit unit;
  if (unit.block >= quantised.blocks) return;
  const float* const row = x + unit.r * 2 * y.columns;
  const float gate = row[unit.column], up = row[unit.column + y.columns];
  const float value = silu_f32(gate) * up;
  y.data[unit.r * y.stride + unit.column] = value;
  quantise_block(value, unit.r, unit.block, quantised);
}

// A row for each x of the grid, its blocks shared out to the warps of all y: each y has the row's factor for itself.
__global__ void __launch_bounds__(kMostThreads)
    norm_quantise_kernel(const float* x, const float* w, float eps, Rows y, QuantisedRows quantised) {
  let_the_next_come();
  const std::int64_t r = blockIdx.x, warps = blockDim.x / kWarp, step = gridDim.y * warps;
  const std::int64_t first = blockIdx.y * warps + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const float first_weight =
      first < quantised.blocks ? w[first * kBlock + lane] : 0.0f;  // on its way while others still work
  wait_and_hold_the_next_back();
  const RmsRow row = rms_row(x + r * y.columns, y.columns, eps);
  for (std::int64_t block = first; block < quantised.blocks; block += step) {
    const std::int64_t c = block * kBlock + lane;
    const float value = (row[c] * row.factor) * (block == first ? first_weight : w[c]);
    y.data[r * y.stride + c] = value;
    quantise_block(value, r, block, quantised);
  }
}

QuantisedRows rows_at(std::byte* quantised, std::int64_t rows, std::int64_t inputs) {
  return {reinterpret_cast<std::uint8_t*>(quantised), inputs / kBlock, rows == 1};
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
         rows_at(quantised, x.rows, x.columns));
}

void swiglu_quantised(Queue queue, const float* x, Rows y, std::byte* quantised) {
  launch(queue, "swiglu", swiglu_quantise_kernel, a_warp_each(y.rows, y.columns), x, y,
         rows_at(quantised, y.rows, y.columns));
}

void rms_norm_quantised(Queue queue, const float* x, const float* w, float eps, Rows y, std::byte* quantised) {
  // A warp a block where rows leave multiprocessors enough for that.
  const std::int64_t blocks = y.columns / kBlock, warps = kThreads / kWarp;
  const std::int64_t shares = std::clamp<std::int64_t>(queue.processors / y.rows, 1, (blocks + warps - 1) / warps);
  const std::int64_t of_share = (blocks + shares - 1) / shares, most = kMostThreads / kWarp;
  const auto threads = static_cast<unsigned>(std::min(of_share, most) * kWarp);
  launch(queue, "rms_norm", norm_quantise_kernel,
         {{static_cast<unsigned>(y.rows), static_cast<unsigned>(shares), 1}, threads}, x, w, eps, y,
         rows_at(quantised, y.rows, y.columns));
}

}  // namespace espalier::cuda
