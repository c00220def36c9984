// Linears of block-quantised weights with the bits of the contract: whole integer dots by matrix instructions, then one
// chain of fused multiply-adds for each output of each row. Here for few rows; linear_many_rows.cu has the same chains.
//
// The chain may not be cut, but all else may run ahead of it. So the chunks of a group of outputs go to kRelay warps in
// turn: each computes what its chunk adds, waits for the sums of the chunks before, runs its part of the chain and
// passes the sums on. A block of threads has several groups, one after the other. Every warp fetches its own chunks,
// weights and rows, some turns ahead into a ring of shared memory; the first weights come before the kernel ahead has
// ended.
#include <algorithm>

#include "device/cuda/block_fragments.h"
#include "device/cuda/block_linear.h"
#include "device/cuda/format_switch.h"
#include "device/cuda/kernel.h"

namespace espalier::cuda {
namespace {

constexpr int kRelay = 4;
constexpr int kMostTiles = 2;

// At barrier 1 + 4 tile + w warp w hands the sums to the next one. By name: a number known only when it runs takes all
// sixteen.
template <int tile>
__device__ void wait_for_warp(int warp) {
  switch (warp) {
    case 0: return wait_at<4 * tile + 1>(2 * kWarp);
    case 1: return wait_at<4 * tile + 2>(2 * kWarp);
    case 2: return wait_at<4 * tile + 3>(2 * kWarp);
    default: return wait_at<4 * tile + 4>(2 * kWarp);
  }
}
template <int tile>
__device__ void pass_on_from_warp(int warp) {
  switch (warp) {
    case 0: return arrive_at<4 * tile + 1>(2 * kWarp);
    case 1: return arrive_at<4 * tile + 2>(2 * kWarp);
    case 2: return arrive_at<4 * tile + 3>(2 * kWarp);
    default: return arrive_at<4 * tile + 4>(2 * kWarp);
  }
}

// One turn of a warp: a chunk of a group, among those that this block of threads has.
struct Turn {
  std::int64_t number, group, chunk;

  __device__ void advance(const BlockLinear& call) {
    number += kRelay;
    chunk += kRelay;
    while (chunk >= call.chunks) {
      chunk -= call.chunks;
      group += gridDim.x;
    }
  }
};

template <DType type, int columns, int tiles>
struct Ring {
  static constexpr int kTileBytes = kChunkBlocks * RowLayout<columns>::kBlockBytes;
  static constexpr int kSlotBytes = piece_bytes(type) + tiles * kTileBytes;
  static constexpr int kSlots = kSlotBytes <= 6400 ? 4 : kSlotBytes <= 8192 ? 3 : 2;
  static constexpr int kBytes = kRelay * kSlots * kSlotBytes;
  static constexpr int kPassedOnBytes = tiles * 2 * columns * kWarp * static_cast<int>(sizeof(float));
  static_assert(kBytes + kPassedOnBytes <= kMostSharedBytes);
};

template <DType type>
__device__ void fetch_weights(const BlockLinear& call, const Turn& turn, int lane, std::uint8_t* slot) {
  constexpr int kPieces = piece_bytes(type) / 16;
  const BlockLinear::Part& part = call.part_of(turn.group);
  const std::uint8_t* const piece =
      part.packed + piece_offset(type, turn.group - part.first_group, turn.chunk, call.chunks);
#pragma unroll
  for (int i = 0; i < (kPieces + kWarp - 1) / kWarp; ++i)
    if (i * kWarp + lane < kPieces) copy_ahead(slot + (i * kWarp + lane) * 16, piece + (i * kWarp + lane) * 16);
}

// The rows of a tile that there are, of the blocks of a chunk that there are.
template <int columns>
__device__ void fetch_rows(const BlockLinear& call, std::int64_t tile, std::int64_t chunk, int lane, std::uint8_t* to) {
  const std::uint8_t* const from = call.rows_of(tile, chunk);
  const int blocks = call.blocks_of(chunk);
  if constexpr (columns == 1) {
    const int block = lane / 3, piece = lane % 3;
    if (block < blocks) copy_ahead(to + lane * 16, from + block * kTileBlockBytes + (piece == 2 ? 256 : piece * 16));
  } else {
    const std::int64_t rows = call.rows - tile * kRowTile;
    const int block = lane / 4, first = lane % 4;
    if (block >= blocks) return;
#pragma unroll
    for (int i = 0; i < 5; ++i) {
      const int piece = first + 4 * i;  // two for each row, then one for the scales of two rows
      if (i < 4 ? piece / 2 < rows : 2 * first < rows)
        copy_ahead(to + block * kTileBlockBytes + piece * 16, from + block * kTileBlockBytes + piece * 16);
    }
  }
}

// What a tile of rows has of a turn: its chunk's part of the chain, and at the end of a group the outputs.
template <DType type, int columns, int tile>
__device__ void take_turn(const BlockLinear& call, const Turn& turn, std::int64_t turns, const std::uint8_t* piece,
                          const std::uint8_t* rows, int warp, int lane) {
  constexpr int kSums = ChunkProducts<type, columns>::kSums;
  __shared__ float passed_on[kSums][kWarp];
  ChunkProducts<type, columns> products;
  products.compute(piece, rows, lane);
  float sum[kSums];
  if (turn.number > 0) wait_for_warp<tile>((warp + kRelay - 1) % kRelay);
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum[i] = turn.chunk == 0 ? 0.0f : passed_on[i][lane];
  products.add_to(sum, call.blocks_of(turn.chunk));
#pragma unroll
  for (int i = 0; i < kSums; ++i) passed_on[i][lane] = sum[i];
  if (turn.number + 1 < turns) pass_on_from_warp<tile>(warp);
  if (turn.chunk + 1 == call.chunks) {
    const BlockLinear::Part& part = call.part_of(turn.group);
    store_sums<columns>(part, turn.group - part.first_group, tile * kRowTile, call.rows, lane, sum);
  }
}

// Groups of outputs, every gridDim.x-th of them, and all rows, by kRelay warps. columns: 1 for one row, else 2
template <DType type, int columns, int tiles>
__global__ void __launch_bounds__(kRelay* kWarp) relay_kernel(const __grid_constant__ BlockLinear call) {
  using Ring = Ring<type, columns, tiles>;
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
  std::uint8_t* const ring = shared_memory<std::uint8_t>() + warp * Ring::kSlots * Ring::kSlotBytes;
  const std::int64_t own_groups = (call.groups - blockIdx.x + gridDim.x - 1) / gridDim.x;
  const std::int64_t turns = own_groups * call.chunks;
  const auto fetch_rows_of = [&](const Turn& turn, std::uint8_t* slot) {
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile)
      fetch_rows<columns>(call, tile, turn.chunk, lane, slot + piece_bytes(type) + tile * Ring::kTileBytes);
  };

  Turn turn{warp, blockIdx.x, warp};
  while (turn.chunk >= call.chunks) turn.chunk -= call.chunks, turn.group += gridDim.x;
  Turn ahead = turn;
  for (int i = 0; i < Ring::kSlots - 1; ++i, ahead.advance(call))
    if (ahead.number < turns) fetch_weights<type>(call, ahead, lane, ring + i * Ring::kSlotBytes);
  wait_for_earlier_kernels();
  ahead = turn;
  for (int i = 0; i < Ring::kSlots - 1; ++i, ahead.advance(call)) {
    if (ahead.number < turns) fetch_rows_of(ahead, ring + i * Ring::kSlotBytes);
    end_of_copies();
  }
  for (int slot = 0; turn.number < turns; turn.advance(call), slot = slot + 1 == Ring::kSlots ? 0 : slot + 1) {
    wait_for_copies<Ring::kSlots - 2>();
    __syncwarp();  // the other lanes' copies are there too, and they have read the slot before this
    if (ahead.number < turns) {
      std::uint8_t* const before = ring + (slot == 0 ? Ring::kSlots - 1 : slot - 1) * Ring::kSlotBytes;
      fetch_weights<type>(call, ahead, lane, before);
      fetch_rows_of(ahead, before);
      ahead.advance(call);
    }
    end_of_copies();
    __syncwarp();  // all lanes together again, as matrix instructions and barriers want them
    const std::uint8_t* const piece = ring + slot * Ring::kSlotBytes;
    const std::uint8_t* const rows = piece + piece_bytes(type);
    take_turn<type, columns, 0>(call, turn, turns, piece, rows, warp, lane);
    if constexpr (tiles == 2)
      take_turn<type, columns, 1>(call, turn, turns, piece, rows + Ring::kTileBytes, warp, lane);
  }
}

// As many blocks of threads as can be at work at once, or fewer if the groups are then shared out more evenly.
std::int64_t even_blocks(std::int64_t groups, std::int64_t processors, std::int64_t most_each) {
  std::int64_t best = 0, best_load = 0;
  for (std::int64_t each = most_each; each >= 1 && each >= most_each / 2; --each) {
    const std::int64_t blocks = processors * each, load = each * ((groups + blocks - 1) / blocks);
    if (best == 0 || load < best_load) best = blocks, best_load = load;
  }
  return std::min(best, groups);
}

template <DType type, int columns, int tiles>
void launch_relay(Queue queue, const BlockLinear& call) {
  constexpr int kBytes = Ring<type, columns, tiles>::kBytes;
  const std::int64_t most_each = std::clamp((queue.ring_kilobytes << 10) / kBytes, 1, 4);
  const std::int64_t blocks = even_blocks(call.groups, queue.processors, most_each);
  launch(queue, "linear", relay_kernel<type, columns, tiles>,
         {{static_cast<unsigned>(blocks), 1, 1}, kRelay * kWarp, kBytes}, call);
}

BlockLinear block_linear(const LinearPart* parts, int count, const std::byte* quantised) {
  BlockLinear call{};
  call.count = count;
  for (int i = 0; i < count; ++i) {
    const LinearPart& from = parts[i];
    const std::int64_t groups = (from.outputs + kGroup - 1) / kGroup;
    call.parts[i] = {reinterpret_cast<const std::uint8_t*>(from.packed),
                     from.bias,
                     from.y.data,
                     from.y.stride,
                     from.outputs,
                     groups,
                     call.groups,
                     from.added_to,
                     from.added_stride};
    call.groups += groups;
  }
  call.quantised = reinterpret_cast<const std::uint8_t*>(quantised);
  call.rows = parts[0].y.rows;
  call.blocks = parts[0].inputs / kBlock;
  call.chunks = (call.blocks + kChunkBlocks - 1) / kChunkBlocks;
  return call;
}

}  // namespace

void linear_blocks(Queue queue, const LinearPart* parts, int count, const std::byte* quantised) {
  const BlockLinear call = block_linear(parts, count, quantised);
  if (call.rows > kMostTiles * kRowTile) return linear_many_rows(queue, parts[0].type, call);
  with_format(parts[0].type, [&](auto format) {
    if (call.rows == 1)
      launch_relay<format(), 1, 1>(queue, call);
    else if (call.rows <= kRowTile)
      launch_relay<format(), 2, 1>(queue, call);
    else
      launch_relay<format(), 2, 2>(queue, call);
  });
}

}  // namespace espalier::cuda
