// A linear of block-quantised weights for few rows, by the warps of a block of threads: alone in its kernel
// (linear_blocks.cu), or one op of several (cluster_ops.cu).
#pragma once

#include "device/cuda/block_fragments.h"
#include "device/cuda/block_linear.h"
#include "device/cuda/kernel.h"
#include "device/cuda/warp_rings.h"

namespace espalier::cuda {

// The warps of a block of threads and their shared memory: slots of one piece of weights and the same chunk of all
// rows. relay: warps that share a group. small: for cards with little shared memory, or without copies of many bytes
template <DType tag, int column_count, int tile_count, int relay_warps, bool is_small>
struct FewRows : KernelOfItsOwn {
  using Call = BlockLinear;
  static constexpr DType type = tag;
  static constexpr int columns = column_count, tiles = tile_count, relay = relay_warps;
  static constexpr bool small = is_small;
  static constexpr int kWarps = small ? (columns == 1 ? 8 : 4) : tiles == 1 ? 16 : 8;
  // Warps that share a group are shorter of time than of bytes on their way, and leave room for the next kernel's.
  static constexpr int kMostBytes = static_cast<int>(small        ? kSmallSharedBytes
                                                     : relay == 1 ? kLargeSharedBytes
                                                                  : std::size_t{160} << 10);
  static constexpr int kTileBytes = LaneShare<columns>::kTileBytes;
  static constexpr int kPieceBytes = piece_bytes(type);
  static constexpr int kSlotBytes = kPieceBytes + tiles * kTileBytes;
  static constexpr int kFit = kMostBytes / (kWarps * kSlotBytes);
  static constexpr int kSlots = kFit < 2 ? 2 : kFit < 4 ? kFit : 4;
  static constexpr int kBytes = kWarps * kSlots * (kSlotBytes + static_cast<int>(sizeof(std::uint64_t)));
  static constexpr int kPassedOnBytes = relay == 1 ? 0 : tiles * kWarps / relay * LaneShare<columns>::kSums * kWarp * 4;
  static_assert(static_cast<std::size_t>(kBytes + kPassedOnBytes) <= (small ? kSmallSharedBytes : kLargeSharedBytes));

  __device__ static const std::uint8_t* piece_of(const BlockLinear& call, int group, int chunk) {
    return call.piece_of(type, group, chunk);
  }
};

// What a chunk adds for the rows of a tile.
template <DType type, int columns>
class ChunkTerms {
 public:
  __device__ void compute(const std::uint8_t* piece, const std::uint8_t* rows, int lane) {
    ChunkWeights<type, columns> weights;
    weights.load(piece, lane);
#pragma unroll
    for (int pair = 0; pair < kChunkBlocks / 2; ++pair) {
      RowPair<columns> of_rows;
      of_rows.load(rows, pair, lane);
#pragma unroll
      for (int block = 2 * pair; block < 2 * pair + 2; ++block) {
        std::uint32_t a[4];
        weights.integers.fragment(block, a);
        terms_[block].compute(a, weights, block, of_rows, lane);
        terms_[block].settle_all();
      }
    }
  }
  // blocks: of this chunk that there are
  __device__ void add_to(float (&sum)[LaneShare<columns>::kSums], int blocks) const {
#pragma unroll
    for (int block = 0; block < kChunkBlocks; ++block)
      if (block < blocks) terms_[block].add_to(sum);
  }

 private:
  BlockTerms<type, columns> terms_[kChunkBlocks];
};

// The end of a group, where a turn is its last.
template <typename Shape>
class GroupEnd {
 public:
  // Before the sums of the chunks ahead are waited for, so that what a sum is added to comes meanwhile.
  __device__ void begin(const BlockLinear& call, const Walk<Shape>& walk, int lane) {
    if constexpr (Shape::columns == 1)
      if (walk.chunk + 1 == call.chunks) end_.load(call, walk.group, lane);
  }
  __device__ void store(const BlockLinear& call, const Walk<Shape>& walk, int tile, int lane,
                        const float (&sum)[LaneShare<Shape::columns>::kSums]) const {
    if (walk.chunk + 1 != call.chunks) return;
    if constexpr (Shape::columns == 1)
      end_.store(sum[0]);
    else
      store_sums<Shape::columns>(call, walk.group, (first_tile<Shape>() + tile) * kRowTile, lane, sum);
  }

 private:
  LaneEnd end_;
};

// A group for each warp.
template <typename Shape>
__device__ void compute_alone(const BlockLinear& call, int warp, int lane) {
  using Share = LaneShare<Shape::columns>;
  const int grid = static_cast<int>(gridDim.x), next_group = grid * Shape::kWarps;
  float sum[Shape::tiles][Share::kSums];
  go_through<Shape>(call, {call, static_cast<int>(blockIdx.x) + grid * warp, 0, next_group}, next_group, warp, lane,
                    [&](const Walk<Shape>& walk, const std::uint8_t* piece, const std::uint8_t* rows) {
                      const int blocks = call.blocks_of(walk.chunk);
#pragma unroll
                      for (int tile = 0; tile < Shape::tiles; ++tile) {
                        if (walk.chunk == 0)
#pragma unroll
                          for (int i = 0; i < Share::kSums; ++i) sum[tile][i] = 0;
                        ChunkTerms<Shape::type, Shape::columns> terms;
                        terms.compute(piece, rows + tile * Share::kTileBytes, lane);
                        GroupEnd<Shape> end;
                        end.begin(call, walk, lane);
                        terms.add_to(sum[tile], blocks);
                        end.store(call, walk, tile, lane, sum[tile]);
                      }
                    });
}

// What a tile of rows has of a turn: its chunk's part of the chain, and at the end of a group the outputs. At its own
// barrier a warp hands the sums to the next one.
template <typename Shape, int tile>
__device__ void take_turn(const BlockLinear& call, const Walk<Shape>& walk, bool first, bool last,
                          const std::uint8_t* piece, const std::uint8_t* rows, int warp, int lane) {
  constexpr int kSums = LaneShare<Shape::columns>::kSums, kRelay = Shape::relay;
  __shared__ float passed_on[Shape::kWarps / kRelay][kSums][kWarp];
  float(&passed)[kSums][kWarp] = passed_on[warp / kRelay];
  const int before = warp / kRelay * kRelay + (warp + kRelay - 1) % kRelay;
  ChunkTerms<Shape::type, Shape::columns> terms;
  terms.compute(piece, rows + tile * Shape::kTileBytes, lane);
  GroupEnd<Shape> end;
  end.begin(call, walk, lane);
  float sum[kSums];
  if (!first) wait_at(Shape::kFirstBarrier + Shape::kWarps * tile + before, 2 * kWarp);
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum[i] = walk.chunk == 0 ? 0.0f : passed[i][lane];
  terms.add_to(sum, call.blocks_of(walk.chunk));
#pragma unroll
  for (int i = 0; i < kSums; ++i) passed[i][lane] = sum[i];
  if (!last) arrive_at(Shape::kFirstBarrier + Shape::kWarps * tile + warp, 2 * kWarp);
  end.store(call, walk, tile, lane, sum);
}

// A group for some warps in turn.
template <typename Shape>
__device__ void compute_in_turn(const BlockLinear& call, int warp, int lane) {
  static_assert(Shape::kFirstBarrier + Shape::kWarps * Shape::tiles <= 16);  // barriers
  const int grid = static_cast<int>(gridDim.x), next_group = grid * (Shape::kWarps / Shape::relay);
  bool first = warp % Shape::relay == 0;
  go_through<Shape>(
      call, {call, static_cast<int>(blockIdx.x) + grid * (warp / Shape::relay), warp % Shape::relay, next_group},
      next_group, warp, lane, [&](const Walk<Shape>& walk, const std::uint8_t* piece, const std::uint8_t* rows) {
        const bool last = walk.chunk + 1 == call.chunks && walk.group + next_group >= call.groups;
        take_turn<Shape, 0>(call, walk, first, last, piece, rows, warp, lane);
        if constexpr (Shape::tiles == 2) take_turn<Shape, 1>(call, walk, first, last, piece, rows, warp, lane);
        first = false;
      });
}

}  // namespace espalier::cuda
