// Linears of block-quantised weights for few rows and many groups: where every warp would fetch the rows for itself
// (linear_blocks.cu), they would be most of what comes. Here a block of threads fetches them once for all of its
// groups. Every multiprocessor has one block, whose groups stand in a row; it goes through them in passes, a group a
// warp or two, with weights and rows of a chunk in stages of shared memory. For cards with large blocks. Every output
// of every row has its own chain, as everywhere.
#include <algorithm>
#include <type_traits>

#include "device/cuda/block_fragments.h"
#include "device/cuda/block_linear.h"
#include "device/cuda/format_switch.h"
#include "device/cuda/kernel.h"

namespace espalier::cuda {
namespace {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool kHasLargeBlocks = false;
#else
constexpr bool kHasLargeBlocks = true;
#endif

// slots: groups of a pass. stacks: warps that share a group, each with tiles of its own
template <DType tag, int slot_count, int stack_count, int tile_count>
struct PassShape {
  static constexpr DType type = tag;
  static constexpr int slots = slot_count, stacks = stack_count, tiles = tile_count;
  static constexpr int kTiles = stacks * tiles, kThreads = slots * stacks * kWarp;
  static constexpr int kRowBytes = kTiles * kTileChunkBytes;
  static constexpr int kStageBytes = slots * piece_bytes(type) + kRowBytes;
  static constexpr int kFit = static_cast<int>(std::size_t{200} << 10) / kStageBytes;
  static constexpr int kStages = kFit < 4 ? kFit : 4;
  static constexpr int kBytes = kStages * (kStageBytes + static_cast<int>(sizeof(std::uint64_t)));
  static_assert(kStages >= 2 && kTiles <= slots * stacks);
};

// The chunks of a block of threads: pass by pass, all passes about as wide.
template <typename Shape>
class PassWalk {
 public:
  __device__ explicit PassWalk(const BlockLinear& call) : chunks_(call.chunks) {
    const std::int64_t groups = call.groups;
    first_ = static_cast<int>(groups * blockIdx.x / gridDim.x);
    end_ = static_cast<int>(groups * (blockIdx.x + 1) / gridDim.x);
    const int passes = (end_ - first_ + Shape::slots - 1) / Shape::slots;
    width_ = (end_ - first_ + passes - 1) / passes;
  }
  __device__ bool there() const { return first_ < end_; }
  __device__ void advance() {
    if (++chunk_ < chunks_) return;
    chunk_ = 0;
    first_ += width_;
  }
  __device__ int chunk() const { return chunk_; }
  __device__ bool ends_pass() const { return chunk_ + 1 == chunks_; }
  // Of a slot, if it has one.
  __device__ int group(int slot) const { return first_ + slot; }
  __device__ int groups() const { return width_ < end_ - first_ ? width_ : end_ - first_; }

 private:
  int chunks_, first_, end_, width_, chunk_ = 0;
};

template <typename Shape>
class PassStages {
 public:
  __device__ PassStages(const BlockLinear& call, int warp, int lane)
      : call_(call), warp_(warp), lane_(lane), tiles_there_(static_cast<int>((call.rows + kRowTile - 1) / kRowTile)) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < Shape::kStages; ++i) begin_arrivals(arrival(i));
      arrivals_are_ready();
    }
    __syncthreads();
  }

  __device__ const std::uint8_t* weights(int stage, int slot) const { return at(stage) + slot * kPieceBytes; }
  __device__ const std::uint8_t* rows(int stage, int stack) const {
    return at(stage) + Shape::slots * kPieceBytes + stack * Shape::tiles * kTileChunkBytes;
  }

  // A slot's by the first warp that has it, a tile's by one of all.
  __device__ void fetch_weights(const PassWalk<Shape>& walk, int stage) const {
    if (lane_ != 0) return;
    if (warp_ == 0) expect_bytes(arrival(stage), walk.groups() * kPieceBytes + tiles_there_ * kTileChunkBytes);
    if (warp_ < walk.groups())
      copy_many_ahead(at(stage) + warp_ * kPieceBytes, call_.piece_of(Shape::type, walk.group(warp_), walk.chunk()),
                      kPieceBytes, arrival(stage));
  }
  __device__ void fetch_rows(const PassWalk<Shape>& walk, int stage) const {
    if (lane_ == 0 && warp_ < tiles_there_)
      copy_many_ahead(at(stage) + Shape::slots * kPieceBytes + warp_ * kTileChunkBytes,
                      call_.rows_of(warp_, walk.chunk()), kTileChunkBytes, arrival(stage));
  }
  // Until a stage is there, the `round`-th time.
  __device__ void wait(int stage, int round) const { wait_for_bytes(arrival(stage), round % 2); }

 private:
  static constexpr int kPieceBytes = piece_bytes(Shape::type);

  __device__ std::uint8_t* at(int stage) const { return shared_memory<std::uint8_t>() + stage * Shape::kStageBytes; }
  __device__ std::uint64_t* arrival(int stage) const {
    return reinterpret_cast<std::uint64_t*>(at(Shape::kStages)) + stage;
  }

  const BlockLinear& call_;
  int warp_, lane_, tiles_there_;
};

// A chunk of a warp's group and tiles.
template <typename Shape>
__device__ void add_chunk(const BlockLinear& call, int chunk, const std::uint8_t* piece, const std::uint8_t* rows,
                          int lane, float (&sum)[Shape::tiles][4]) {
  ChunkWeights<Shape::type, 2> weights;
  weights.load(piece, lane);
  const auto add_blocks = [&](int there) {
#pragma unroll
    for (int pair = 0; pair < kChunkBlocks / 2; ++pair)
      add_pair<Shape::type, Shape::tiles>(weights, pair, there, rows, lane, sum);
  };
  const int blocks = call.blocks_of(chunk);
  blocks == kChunkBlocks ? add_blocks(kChunkBlocks) : add_blocks(blocks);  // the first without a branch between blocks
}

template <typename Shape>
__device__ void go_through_passes(const BlockLinear& call) {
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
  const int slot = warp % Shape::slots, stack = warp / Shape::slots;
  const PassStages<Shape> stages(call, warp, lane);
  PassWalk<Shape> walk(call), ahead(call);
  int filled = 0;
  for (PassWalk<Shape> first(call); filled < Shape::kStages - 1 && first.there(); ++filled, first.advance())
    stages.fetch_weights(first, filled);
  wait_for_earlier_kernels();
  for (int i = 0; i < filled; ++i, ahead.advance()) stages.fetch_rows(ahead, i);
  float sum[Shape::tiles][4];
  int stage = 0, round = 0;
#pragma unroll 1
  for (; walk.there(); walk.advance()) {
    stages.wait(stage, round);
    __syncthreads();  // all have read the chunk before this
    if (ahead.there()) {
      const int before = stage == 0 ? Shape::kStages - 1 : stage - 1;
      stages.fetch_weights(ahead, before);
      stages.fetch_rows(ahead, before);
      ahead.advance();
    }
    __syncwarp();
    if (slot < walk.groups()) {
      if (walk.chunk() == 0)
#pragma unroll
        for (int i = 0; i < 4 * Shape::tiles; ++i) sum[i / 4][i % 4] = 0;
      add_chunk<Shape>(call, walk.chunk(), stages.weights(stage, slot), stages.rows(stage, stack), lane, sum);
      if (walk.ends_pass())
#pragma unroll
        for (int tile = 0; tile < Shape::tiles; ++tile)
          store_sums<2>(call, walk.group(slot), (stack * Shape::tiles + tile) * kRowTile, lane, sum[tile]);
    }
    if (++stage == Shape::kStages) stage = 0, ++round;
  }
}

// Code for cards without large blocks is empty.
template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) passes_kernel(const __grid_constant__ BlockLinear call) {
  if constexpr (kHasLargeBlocks)
    go_through_passes<Shape>(call);
  else
    __trap();
}

template <typename Shape>
void launch_passes(Queue queue, const BlockLinear& call) {
  launch(queue, "linear", passes_kernel<Shape>,
         {{static_cast<unsigned>(std::min(call.groups, queue.processors)), 1, 1}, Shape::kThreads, Shape::kBytes},
         call);
}

// Formats whose blocks take so many instructions, or bytes, that what shared rows cost does not count with one tile.
constexpr bool is_heavy(DType type) {
  return block_format(type).bits == 8 || block_format(type).file_elements == 256;
}

// Groups that each multiprocessor has, from which a warp has one to itself with all rows.
constexpr int kManyGroups = 8;

}  // namespace

bool rows_are_shared(Queue queue, DType type, const BlockLinear& call) {
  if (queue.small_blocks) return false;
  if (call.rows <= kRowTile) return is_heavy(type) && call.groups >= kManyGroups * queue.processors;
  return call.groups > 2 * queue.processors;
}

void linear_few_rows(Queue queue, DType type, const BlockLinear& call) {
  with_format(type, [&](auto format) {
    if (call.rows <= kRowTile) {
      if constexpr (is_heavy(format())) launch_passes<PassShape<format(), 16, 1, 1>>(queue, call);
    } else if (call.groups >= kManyGroups * queue.processors) {
      launch_passes<PassShape<format(), 16, 1, 2>>(queue, call);
    } else {
      launch_passes<PassShape<format(), 8, 2, 1>>(queue, call);
    }
  });
}

}  // namespace espalier::cuda
