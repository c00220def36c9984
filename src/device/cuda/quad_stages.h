// The stages of shared memory through which weights and rows come to the quads of a block of threads (quad_multiply.h):
// one warp fetches, the quads multiply and say what they have read. What a stage holds is half a chunk of the groups of
// a product and of its tiles.
#pragma once

#include "device/cuda/even_share.h"
#include "device/cuda/float_linear.h"
#include "device/cuda/quad_multiply.h"

namespace espalier::cuda {

struct QuadLinear {
  FloatLinear linear;
  EvenShare share;
};

// quads: that multiply, behind which stand the warps that fetch. blocks: of threads that a multiprocessor can have at
// once, so that those of the next kernel fetch while the last of this one multiply
template <typename Tag, int term_count, int tile_count, int quad_count, int block_count>
struct QuadShape {
  using Element = Tag;
  static constexpr int terms = term_count, tiles = tile_count, quads = quad_count, blocks = block_count;
  // With so many sums a thread of a quad needs registers that those of a whole quad of fetching warps give up.
  static constexpr bool kRegistersChangeHands = tiles == 16;
  static constexpr int kMultiplying = quads * kQuadThreads;
  static constexpr int kThreads = kMultiplying + (kRegistersChangeHands ? kQuadThreads : kWarp);
  static constexpr int kGroups = quads * kQuadWarps;
  static constexpr int kPairs = 2, kHalves = kFloatPairs / kPairs;  // of steps of a stage, stages of a chunk
  static constexpr int kPieceBytes = kFloatPieceBytes / kHalves;
  static constexpr int kTileBytes = terms * kQuadTileBytes, kRowBytes = tiles * kTileBytes;  // of a pair
  static constexpr int kStageBytes = kGroups * kPieceBytes + kPairs * kRowBytes;
  static constexpr int kMostBytes = static_cast<int>(kLargeSharedBytes) / blocks - 1024;
  static constexpr int kFit = (kMostBytes - kCoreBytes) / (kStageBytes + static_cast<int>(sizeof(std::uint64_t)));
  static constexpr int kStages = kFit < 6 ? kFit : 6;
  static constexpr int kBytes = kCoreBytes + kStages * (kStageBytes + static_cast<int>(sizeof(std::uint64_t)));
  static_assert(kStages >= 3);
};

// An item of a block of threads: strands [first_strand, end_strand) of a product.
struct QuadItem {
  int product, first_strand, end_strand;
  int first_group, groups;
  int first_tile, tiles;

  __device__ QuadItem(const QuadLinear& call, int item, int most_tiles) {
    const EvenShare& share = call.share;
    const bool is_whole = item < share.whole;
    const int apart = item - share.whole;
    product = is_whole ? item : share.whole + apart / share.strands;
    first_strand = is_whole ? 0 : apart % share.strands;
    end_strand = is_whole ? share.strands : first_strand + 1;
    first_group = product / share.row_blocks * share.width;
    groups = least(share.width, call.linear.groups - first_group);
    first_tile = product % share.row_blocks * most_tiles;
    tiles = least(most_tiles, static_cast<int>(call.linear.x.tiles) - first_tile);
  }
  __device__ bool is_apart(const EvenShare& share) const { return product >= share.whole; }

 private:
  __device__ static int least(int a, int b) { return a < b ? a : b; }
};

// What a stage holds, one after the other: item by item, strand by strand, chunk by chunk, half by half.
template <typename Shape>
class QuadWalk {
 public:
  __device__ explicit QuadWalk(const QuadLinear& call)
      : call_(call), number_(static_cast<int>(blockIdx.x)), item_(call, number_, Shape::tiles) {
    strand_ = chunk_ = item_.first_strand;
  }
  __device__ bool there() const { return number_ < call_.share.items; }
  __device__ void advance() {
    if (++half_ < Shape::kHalves) return;
    half_ = 0;
    chunk_ += kStrands;
    if (chunk_ < call_.linear.chunks) return;
    if (++strand_ == item_.end_strand) {
      number_ += static_cast<int>(gridDim.x);
      item_ = QuadItem(call_, number_, Shape::tiles);
      strand_ = item_.first_strand;
    }
    chunk_ = strand_;
  }
  __device__ const QuadItem& item() const { return item_; }
  __device__ const std::uint8_t* piece(int group) const {
    return call_.linear.piece_of(item_.first_group + group, chunk_) + half_ * Shape::kPieceBytes;
  }
  __device__ const std::uint8_t* rows(int pair) const {
    return call_.linear.x.quads_of(item_.first_tile, chunk_ * kFloatPairs + half_ * Shape::kPairs + pair);
  }

 private:
  const QuadLinear& call_;
  int number_;
  QuadItem item_;
  int strand_ = 0, chunk_ = 0, half_ = 0;
};

// Which stage it is the turn of, and the how manyth time.
template <typename Shape>
struct StageTurn {
  int stage = 0, round = 0;
  __device__ void advance() {
    if (++stage == Shape::kStages) stage = 0, ++round;
  }
};

template <typename Shape>
class QuadStages {
 public:
  // All threads of the block
  __device__ QuadStages() {
    auto* const begin = shared_memory<std::uint8_t>();  // aligned so that a core is no more than it has to be
    base_ = begin + (kCoreBytes - reinterpret_cast<std::uintptr_t>(begin) % kCoreBytes) % kCoreBytes;
    if (threadIdx.x == 0) {
      for (int i = 0; i < Shape::kStages; ++i) begin_arrivals(arrival(i));
      arrivals_are_ready();
    }
    __syncthreads();
  }

  __device__ const std::uint8_t* weights(int stage, int group) const { return at(stage) + group * Shape::kPieceBytes; }
  __device__ std::uint8_t* rows(int stage) const { return at(stage) + Shape::kGroups * Shape::kPieceBytes; }

  // By the warp that fetches.
  __device__ void fetch_weights(const QuadWalk<Shape>& walk, int stage, int lane) const {
    const QuadItem& item = walk.item();
    if (lane == 0)
      expect_bytes(arrival(stage), item.groups * Shape::kPieceBytes + Shape::kPairs * item.tiles * Shape::kTileBytes);
    __syncwarp();
    static_assert(Shape::kGroups <= kWarp);
    if (lane < item.groups)
      copy_many_ahead(at(stage) + lane * Shape::kPieceBytes, walk.piece(lane), Shape::kPieceBytes, arrival(stage));
  }
  __device__ void fetch_rows(const QuadWalk<Shape>& walk, int stage, int lane) const {
    if (lane < Shape::kPairs)
      copy_many_ahead(rows(stage) + lane * Shape::kRowBytes, walk.rows(lane), walk.item().tiles * Shape::kTileBytes,
                      arrival(stage));
  }
  __device__ void wait_until_read(int stage) const { wait_at(barrier_of(stage), Shape::kMultiplying + kWarp); }

  // By the others.
  __device__ void wait_until_there(const StageTurn<Shape>& turn) const {
    wait_for_bytes(arrival(turn.stage), turn.round % 2);
    __syncwarp();
  }
  __device__ void has_been_read(int stage) const { arrive_at(barrier_of(stage), Shape::kMultiplying + kWarp); }

 private:
  __device__ static int barrier_of(int stage) { return 1 + stage; }  // 0 is that of __syncthreads
  __device__ std::uint8_t* at(int stage) const { return base_ + stage * Shape::kStageBytes; }
  __device__ std::uint64_t* arrival(int stage) const {
    return reinterpret_cast<std::uint64_t*>(at(Shape::kStages)) + stage;
  }

  std::uint8_t* base_;
};

// What the warp that fetches does. It ends when all has been read.
template <typename Shape>
__device__ void fetch_all(const QuadLinear& call, const QuadStages<Shape>& stages, int lane) {
  QuadWalk<Shape> first(call), ahead(call);
  int filled = 0;
  for (; filled < Shape::kStages && first.there(); ++filled, first.advance()) stages.fetch_weights(first, filled, lane);
  wait_for_earlier_kernels();
  for (int i = 0; i < filled; ++i, ahead.advance()) stages.fetch_rows(ahead, i, lane);
  StageTurn<Shape> turn;
#pragma unroll 1
  for (; ahead.there(); ahead.advance(), turn.advance()) {
    stages.wait_until_read(turn.stage);
    stages.fetch_weights(ahead, turn.stage, lane);
    stages.fetch_rows(ahead, turn.stage, lane);
  }
  for (int i = 0; i < filled; ++i, turn.advance()) stages.wait_until_read(turn.stage);
}

}  // namespace espalier::cuda
