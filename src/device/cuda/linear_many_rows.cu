// Linears of block-quantised weights for more than a few rows. A warp has one group of outputs and several tiles of
// rows, for all of which it unpacks a block once; the warps of a block of threads share the rows through shared memory,
// chunk by chunk, the next one on its way while this one is computed. Every output of every row has its own chain, as
// for one row.
#include "device/cuda/block_fragments.h"
#include "device/cuda/block_linear.h"
#include "device/cuda/format_switch.h"
#include "device/cuda/kernel.h"

namespace espalier::cuda {
namespace {

constexpr int kChunkBytes = kChunkBlocks * kTileBlockBytes;  // of a tile

// The rows of a chunk to shared memory: [tiles][kChunkBytes].
template <int tiles, int threads>
__device__ void fetch_rows(const BlockLinear& call, std::int64_t first_tile, std::int64_t chunk, std::uint8_t* shared) {
  constexpr int kPieces = kChunkBytes / 16;
  const std::int64_t all_tiles = (call.rows + kRowTile - 1) / kRowTile;
  const int pieces = call.blocks_of(chunk) * (kTileBlockBytes / 16);
  for (int i = static_cast<int>(threadIdx.x); i < tiles * kPieces; i += threads) {
    const int tile = i / kPieces, piece = i % kPieces;
    if (first_tile + tile < all_tiles && piece < pieces)
      copy_ahead(shared + i * 16, call.rows_of(first_tile + tile, chunk) + piece * 16);
  }
}

// One block of weights against the same block of some tiles of rows: all dots first, then the chains, so that none
// waits for another's dots.
template <DType type, int tiles>
__device__ void add_block(const ChunkWeights<type>& weights, int block, const std::uint8_t* rows, int lane,
                          float (&sum)[tiles][4]) {
  constexpr bool kHasMinimum = ChunkScales<type>::kHasMinimum;
  constexpr int kDots = type == DType::q6_k ? 2 : 1;
  std::uint32_t a[4];
  weights.integers.fragment(block, a);
  int dot[tiles][kDots][4];
  float4 d[tiles];
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile) {
    const std::uint8_t* const x = rows + tile * kChunkBytes + block * kTileBlockBytes;
    const uint2 b = reinterpret_cast<const uint2*>(x)[lane];
    d[tile] = reinterpret_cast<const float4*>(x + 256)[lane % 4];
    if constexpr (kDots == 1) {
      multiply_bytes_32(dot[tile][0], a, b.x, b.y, kMagicBits);
    } else {
      multiply_bytes_16(dot[tile][0], a[0], a[1], b.x, kMagicBits);
      multiply_bytes_16(dot[tile][1], a[2], a[3], b.y, kMagicBits);
    }
  }
#pragma unroll
  for (int half = 0; half < kDots; ++half) {
    const float scale[2] = {weights.scales.scale(block, 0, half), weights.scales.scale(block, 1, half)};
    const float minimum[2] = {weights.scales.minimum(block, 0), weights.scales.minimum(block, 1)};
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float product = scale[i / 2] * (i % 2 ? d[tile].y : d[tile].x);
        sum[tile][i] = fmaf(product, __int_as_float(dot[tile][half][i]) - kMagic, sum[tile][i]);
        if constexpr (kHasMinimum) sum[tile][i] = fmaf(minimum[i / 2], i % 2 ? d[tile].w : d[tile].z, sum[tile][i]);
      }
  }
}

// groups of outputs x stacks of `tiles` tiles of rows, a warp each.
template <DType type, int groups, int stacks, int tiles>
__global__ void __launch_bounds__(groups* stacks* kWarp) many_rows_kernel(const __grid_constant__ BlockLinear call) {
  constexpr int kTiles = stacks * tiles, kThreads = groups * stacks * kWarp;
  std::uint8_t* const shared = shared_memory<std::uint8_t>();  // two chunks of rows
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
  const int stack = warp / groups;
  const std::int64_t wanted = std::int64_t{blockIdx.x} * groups + warp % groups;
  const bool exists = wanted < call.groups;
  const std::int64_t any_group = exists ? wanted : call.groups - 1;
  const BlockLinear::Part& part = call.part_of(any_group);
  const std::int64_t group = any_group - part.first_group, first_tile = std::int64_t{blockIdx.y} * kTiles;
  const auto piece = [&](std::int64_t chunk) { return part.packed + piece_offset(type, group, chunk, call.chunks); };

  float sum[tiles][4];
#pragma unroll
  for (int i = 0; i < 4 * tiles; ++i) sum[i / 4][i % 4] = 0;
  ChunkWeights<type> weights, next;
  next.load(piece(0), lane);
  wait_for_earlier_kernels();
  fetch_rows<kTiles, kThreads>(call, first_tile, 0, shared);
  end_of_copies();
  for (std::int64_t chunk = 0; chunk < call.chunks; ++chunk) {
    weights = next;
    if (chunk + 1 < call.chunks) {
      next.load(piece(chunk + 1), lane);
      fetch_rows<kTiles, kThreads>(call, first_tile, chunk + 1, shared + (chunk + 1) % 2 * kTiles * kChunkBytes);
    }
    end_of_copies();
    wait_for_copies<1>();
    __syncthreads();
    const std::uint8_t* const rows = shared + (chunk % 2 * kTiles + stack * tiles) * kChunkBytes;
    const int blocks = call.blocks_of(chunk);
    if (blocks == kChunkBlocks) {  // without a branch between blocks, so that they overlap
#pragma unroll
      for (int block = 0; block < kChunkBlocks; ++block) add_block<type, tiles>(weights, block, rows, lane, sum);
    } else {
#pragma unroll
      for (int block = 0; block < kChunkBlocks; ++block)
        if (block < blocks) add_block<type, tiles>(weights, block, rows, lane, sum);
    }
    __syncthreads();  // before others overwrite it
  }
  if (!exists) return;
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile)
    store_sums<2>(part, group, (first_tile + stack * tiles + tile) * kRowTile, call.rows, lane, sum[tile]);
}

template <DType type, int groups, int stacks, int tiles>
void launch_many(Queue queue, const BlockLinear& call) {
  static_assert(2 * stacks * tiles * kChunkBytes <= kMostSharedBytes);
  const Launch how{{blocks_for(call.groups, groups), blocks_for(call.rows, stacks * tiles * kRowTile), 1},
                   groups * stacks * kWarp,
                   2 * stacks * tiles * kChunkBytes};
  launch(queue, "linear", many_rows_kernel<type, groups, stacks, tiles>, how, call);
}

}  // namespace

// Warps enough for the GPU come first, then as many tiles a warp as possible.
void linear_many_rows(Queue queue, DType type, const BlockLinear& call) {
  const std::int64_t tiles = (call.rows + kRowTile - 1) / kRowTile;
  const std::int64_t few_warps = 16 * queue.processors;
  with_format(type, [&](auto format) {
    if (tiles <= 4)
      call.groups * 2 < few_warps ? launch_many<format(), 2, 4, 1>(queue, call)
                                  : launch_many<format(), 4, 2, 2>(queue, call);
    else if (call.groups * tiles < 4 * few_warps)
      launch_many<format(), 2, 4, 2>(queue, call);
    else
      launch_many<format(), 4, 2, 4>(queue, call);
  });
}

}  // namespace espalier::cuda
