// How the warps of a linear of few rows come by their weights: every warp fetches its own pieces, with the same chunk
// of the rows, some turns ahead into a ring of shared memory; the first weights come before the kernel ahead has ended.
//
// A Shape says how: Call, what the kernel computes; piece_of(call, group, chunk) and kPieceBytes, where a piece of
// weights lies; kTileBytes, of a chunk of a tile of rows; tiles, and columns: 1 if there is one row alone; relay, how
// many warps share a group; kWarps, kSlots and kSlotBytes of a ring; small: for cards with little shared memory, or
// without copies of many bytes; and what KernelOfItsOwn says.
#pragma once

#include <type_traits>

#include "device/cuda/kernel.h"
#include "device/cuda/packed_layout.h"

namespace espalier::cuda {

// Of a Shape: a linear is all that its kernel computes.
struct KernelOfItsOwn {
  static constexpr bool kEndsKernel = true;
  static constexpr int kFirstBarrier = 0;  // of those by which warps hand on sums
  // Before anything is fetched; and until the rows are there.
  __device__ static void begin() {}
  __device__ static void wait_for_rows() { wait_for_earlier_kernels(); }
};

// The pieces of a warp: of its groups every `step`-th chunk, one group after the other.
template <typename Shape>
struct Walk {
  int group, chunk;
  const std::uint8_t* piece;

  __device__ Walk(const typename Shape::Call& call, int first_group, int first_chunk, int next_group)
      : group(first_group), chunk(first_chunk), piece(nullptr) {
    enter_group(call, next_group);
  }
  __device__ bool there(const typename Shape::Call& call) const { return group < call.groups; }
  __device__ void advance(const typename Shape::Call& call, int step, int next_group) {
    chunk += step;
    piece += step * Shape::kPieceBytes;
    if (chunk >= call.chunks) enter_group(call, next_group);
  }

 private:
  __device__ void enter_group(const typename Shape::Call& call, int next_group) {
    while (chunk >= call.chunks) chunk -= call.chunks, group += next_group;
    if (there(call)) piece = Shape::piece_of(call, group, chunk);
  }
};

// The tiles of rows of a block of threads begin here: others have those of another y of the grid.
template <typename Shape>
__device__ int first_tile() {
  return static_cast<int>(blockIdx.y) * Shape::tiles;
}

// The ring of one warp whose lanes fetch 16 bytes each.
template <typename Shape>
class RingOfPieces {
 public:
  __device__ RingOfPieces(const typename Shape::Call& call, int warp, int lane)
      : slots_(shared_memory<std::uint8_t>() + warp * Shape::kSlots * Shape::kSlotBytes), lane_(lane) {
#pragma unroll
    for (int tile = 0; tile < Shape::tiles; ++tile)
      rows_there_[tile] = static_cast<int>(call.rows) - (first_tile<Shape>() + tile) * kRowTile;
  }

  __device__ const std::uint8_t* slot(int i) const {
    return slots_ + i * Shape::kSlotBytes;
  }

  __device__ void fetch_weights(const std::uint8_t* piece, int slot) const {
    constexpr int kPieces = Shape::kPieceBytes / 16, kWhole = kPieces / kWarp * kWarp;
    const std::uint8_t* const from = piece + lane_ * 16;
    std::uint8_t* const to = slots_ + slot * Shape::kSlotBytes + lane_ * 16;
#pragma unroll
    for (int i = 0; i < kPieces / kWarp; ++i) copy_ahead(to + i * kWarp * 16, from + i * kWarp * 16);
    if (kWhole < kPieces && lane_ < kPieces - kWhole) copy_ahead(to + kWhole * 16, from + kWhole * 16);
  }

  // The rows that there are, of the pairs of blocks that there are.
  __device__ void fetch_rows(const typename Shape::Call& call, int chunk, int slot) const {
    std::uint8_t* const to = slots_ + slot * Shape::kSlotBytes + Shape::kPieceBytes;
    if constexpr (Shape::columns == 1) {
      if (lane_ < Shape::kTileBytes / 16) copy_ahead(to + lane_ * 16, call.one_row_of(chunk) + lane_ * 16);
    } else {
      const int pairs = call.pairs_of(chunk);
#pragma unroll
      for (int tile = 0; tile < Shape::tiles; ++tile) {
        const std::uint8_t* const from = call.rows_of(first_tile<Shape>() + tile, chunk);
#pragma unroll
        for (int pair = 0; pair < kChunkBlocks / 2; ++pair) {
          const int place = pair * kTilePairBytes + lane_ * 16;
          if (pair < pairs && lane_ / 4 < rows_there_[tile])
            copy_ahead(to + tile * kTileChunkBytes + place, from + place);
        }
        const int place = lane_ / 8 * kTilePairBytes + 2 * kRowTile * kBlock + lane_ % 8 * 16;
        if (lane_ / 8 < pairs && lane_ % 4 * 2 < rows_there_[tile])
          copy_ahead(to + tile * kTileChunkBytes + place, from + place);
      }
    }
  }
  // Behind what was fetched for a turn, also if it was nothing.
  __device__ void end_of_turn() const {
    end_of_copies();
  }
  // Until the next slot is there.
  __device__ void wait(int) {
    wait_for_copies<Shape::kSlots - 2>();
  }
  // Behind the last slot, where shared memory is used for something else then.
  __device__ void end() const {}

 private:
  std::uint8_t* slots_;
  int lane_;
  int rows_there_[Shape::tiles];
};

// The ring of one warp whose first lane fetches all.
template <typename Shape>
class RingOfSlots {
 public:
  __device__ RingOfSlots(const typename Shape::Call&, int warp, int lane)
      : slots_(shared_memory<std::uint8_t>() + warp * Shape::kSlots * Shape::kSlotBytes),
        arrivals_(reinterpret_cast<std::uint64_t*>(shared_memory<std::uint8_t>() +
                                                   Shape::kWarps * Shape::kSlots * Shape::kSlotBytes) +
                  warp * Shape::kSlots),
        lane_(lane) {
    if (lane_ == 0) {
      for (int i = 0; i < Shape::kSlots; ++i) begin_arrivals(arrivals_ + i);
      arrivals_are_ready();
    }
    __syncwarp();
  }

  __device__ const std::uint8_t* slot(int i) const { return slots_ + i * Shape::kSlotBytes; }

  __device__ void fetch_weights(const std::uint8_t* piece, int slot) const {
    if (lane_ != 0) return;
    expect_bytes(arrivals_ + slot, Shape::kSlotBytes);
    copy_many_ahead(slots_ + slot * Shape::kSlotBytes, piece, Shape::kPieceBytes, arrivals_ + slot);
  }
  // Whole tiles and chunks: what there is not is not used.
  __device__ void fetch_rows(const typename Shape::Call& call, int chunk, int slot) const {
    if (lane_ != 0) return;
    std::uint8_t* const to = slots_ + slot * Shape::kSlotBytes + Shape::kPieceBytes;
#pragma unroll
    for (int tile = 0; tile < Shape::tiles; ++tile)
      copy_many_ahead(to + tile * Shape::kTileBytes,
                      Shape::columns == 1 ? call.one_row_of(chunk) : call.rows_of(first_tile<Shape>() + tile, chunk),
                      Shape::kTileBytes, arrivals_ + slot);
  }
  __device__ void end_of_turn() const {}
  __device__ void wait(int slot) {
    wait_for_bytes(arrivals_ + slot, parity_);
    if (slot + 1 == Shape::kSlots) parity_ ^= 1;
  }
  __device__ void end() const {
    __syncwarp();
    if (lane_ == 0)
      for (int i = 0; i < Shape::kSlots; ++i) end_arrivals(arrivals_ + i);
  }

 private:
  std::uint8_t* slots_;
  std::uint64_t* arrivals_;
  int lane_;
  int parity_ = 0;
};

// Goes through the pieces of a warp: take(walk, piece, rows) for each, when it is there.
template <typename Shape, typename Take>
__device__ void go_through(const typename Shape::Call& call, Walk<Shape> walk, int next_group, int warp, int lane,
                           Take take) {
  constexpr int step = Shape::relay;
  Shape::begin();
  std::conditional_t<Shape::small, RingOfPieces<Shape>, RingOfSlots<Shape>> ring(call, warp, lane);
  Walk<Shape> ahead = walk;
#pragma unroll 1
  for (int i = 0; i < Shape::kSlots - 1 && ahead.there(call); ++i, ahead.advance(call, step, next_group))
    ring.fetch_weights(ahead.piece, i);
  Shape::wait_for_rows();
  ahead = walk;
#pragma unroll 1
  for (int i = 0; i < Shape::kSlots - 1; ++i) {
    if (ahead.there(call)) {
      ring.fetch_rows(call, ahead.chunk, i);
      ahead.advance(call, step, next_group);
    }
    ring.end_of_turn();
  }
#pragma unroll 1
  for (int slot = 0; walk.there(call); walk.advance(call, step, next_group)) {
    ring.wait(slot);
    __syncwarp();  // the other lanes' copies are there too, and they have read the slot before this
    if (ahead.there(call)) {
      const int before = slot == 0 ? Shape::kSlots - 1 : slot - 1;
      ring.fetch_weights(ahead.piece, before);
      ring.fetch_rows(call, ahead.chunk, before);
      ahead.advance(call, step, next_group);
    }
    ring.end_of_turn();
    __syncwarp();  // all lanes together again, as matrix instructions and barriers want them
    const std::uint8_t* const piece = ring.slot(slot);
    take(walk, piece, piece + Shape::kPieceBytes);
    slot = slot + 1 == Shape::kSlots ? 0 : slot + 1;
  }
  if constexpr (!Shape::kEndsKernel) ring.end();
}

}  // namespace espalier::cuda
