// Linears of block-quantised weights for more than a few rows. A block of threads has some groups of outputs and some
// tiles of rows; a warp of it has one group and several tiles, for all of which it unpacks a block once. Weights and
// rows come through shared memory, chunk by chunk, the next ones on their way while this one is computed. Every output
// of every row has its own chain, as for one row.
#include <algorithm>
#include <type_traits>

#include "device/cuda/block_fragments.h"
#include "device/cuda/block_linear.h"
#include "device/cuda/format_switch.h"
#include "device/cuda/kernel.h"

namespace espalier::cuda {
namespace {

// groups of outputs x stacks of `tiles` tiles of rows, a warp each.
template <DType type, int groups, int stacks, int tiles>
struct Share {
  static constexpr int kTiles = stacks * tiles, kWarps = groups * stacks, kThreads = kWarps * kWarp;
  static constexpr int kStageBytes = groups * piece_bytes(type) + kTiles * kTileChunkBytes;
  static constexpr int kFit = static_cast<int>(kSmallSharedBytes) / kStageBytes;
  static constexpr int kStages = kFit < 4 ? kFit : 4;
  static constexpr int kBytes = kStages * (kStageBytes + static_cast<int>(sizeof(std::uint64_t)));
  static_assert(kStages >= 2 && static_cast<std::size_t>(kBytes) <= kSmallSharedBytes);
};

// Where a warp stands in its block of threads, and what it fetches. small: for cards with little shared memory, or
// without copies of many bytes
template <typename Share, DType type, int groups, int stacks, bool small>
class Stages {
 public:
  __device__ Stages(const BlockLinear& call, int warp, int lane)
      : call_(call), warp_(warp), lane_(lane), own_(warp % groups), stack_(warp / groups) {
    const int wanted = static_cast<int>(blockIdx.x) * groups + own_;
    exists_ = wanted < call.groups;
    group_ = exists_ ? wanted : call.groups - 1;
    first_tile_ = static_cast<int>(blockIdx.y) * Share::kTiles;
    const int tiles = static_cast<int>((call.rows + kRowTile - 1) / kRowTile) - first_tile_;
    tiles_there_ = tiles < Share::kTiles ? tiles : Share::kTiles;
    piece_ = call.piece_of(type, group_, 0);
    if constexpr (!small) {
      if (threadIdx.x == 0) {
        for (int i = 0; i < Share::kStages; ++i) begin_arrivals(arrival(i));
        arrivals_are_ready();
      }
      __syncthreads();
    }
  }

  __device__ bool exists() const { return exists_; }
  __device__ int group() const { return group_; }
  __device__ int stack() const { return stack_; }
  __device__ std::int64_t first_tile() const { return first_tile_; }
  __device__ const std::uint8_t* weights(int chunk) const { return stage(chunk) + own_ * piece_bytes(type); }
  __device__ const std::uint8_t* rows(int chunk) const { return stage(chunk) + groups * piece_bytes(type); }

  // The weights of a chunk, each by the warps that have that group.
  __device__ void fetch_weights(int chunk) const {
    const std::uint8_t* const from = piece_ + std::int64_t{chunk} * piece_bytes(type);
    std::uint8_t* const to = stage(chunk) + own_ * piece_bytes(type);
    if constexpr (small) {
#pragma unroll
      for (int i = (stack_ * kWarp + lane_) * 16; i < piece_bytes(type); i += stacks * kWarp * 16)
        copy_ahead(to + i, from + i);
    } else if (lane_ == 0) {
      if (warp_ == 0) expect_bytes(arrival(chunk), groups * piece_bytes(type) + tiles_there_ * kTileChunkBytes);
      if (stack_ == 0) copy_many_ahead(to, from, piece_bytes(type), arrival(chunk));
    }
  }

  // The rows of a chunk, by all warps.
  __device__ void fetch_rows(int chunk) const {
    std::uint8_t* const to = stage(chunk) + groups * piece_bytes(type);
    if constexpr (small) {
      constexpr int kPieces = kTileChunkBytes / 16;
      const int pieces = call_.pairs_of(chunk) * (kTilePairBytes / 16);
      const std::uint8_t* const from = call_.rows_of(first_tile_, chunk);
#pragma unroll
      for (int i = static_cast<int>(threadIdx.x); i < Share::kTiles * kPieces; i += Share::kThreads) {
        const int tile = i / kPieces, piece = i % kPieces;
        if (tile < tiles_there_ && piece < pieces)
          copy_ahead(to + i * 16, from + tile * call_.chunks * kTileChunkBytes + piece * 16);
      }
    } else if (lane_ == 0) {
      for (int tile = warp_; tile < tiles_there_; tile += Share::kWarps)
        copy_many_ahead(to + tile * kTileChunkBytes, call_.rows_of(first_tile_ + tile, chunk), kTileChunkBytes,
                        arrival(chunk));
    }
  }

  // Behind what was fetched for a chunk, also if it was nothing.
  __device__ void end_of_fetch() const {
    if constexpr (small) end_of_copies();
  }
  __device__ void wait(int chunk) const {
    if constexpr (small)
      wait_for_copies<Share::kStages - 2>();
    else
      wait_for_bytes(arrival(chunk), chunk / Share::kStages % 2);
  }

 private:
  __device__ std::uint8_t* stage(int chunk) const {
    return shared_memory<std::uint8_t>() + chunk % Share::kStages * Share::kStageBytes;
  }
  __device__ std::uint64_t* arrival(int chunk) const {
    return reinterpret_cast<std::uint64_t*>(shared_memory<std::uint8_t>() + Share::kStages * Share::kStageBytes) +
           chunk % Share::kStages;
  }

  const BlockLinear& call_;
  int warp_, lane_, own_, stack_;
  bool exists_;
  int group_, first_tile_, tiles_there_;
  const std::uint8_t* piece_;
};

template <DType type, int groups, int stacks, int tiles, bool small>
__global__ void __launch_bounds__(groups* stacks* kWarp, 2) many_rows_kernel(const __grid_constant__ BlockLinear call) {
  using Share = Share<type, groups, stacks, tiles>;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const Stages<Share, type, groups, stacks, small> stages(call, static_cast<int>(threadIdx.x / kWarp), lane);
  float sum[tiles][4];
#pragma unroll
  for (int i = 0; i < 4 * tiles; ++i) sum[i / 4][i % 4] = 0;
  for (int chunk = 0; chunk < Share::kStages - 1 && chunk < call.chunks; ++chunk) stages.fetch_weights(chunk);
  wait_and_hold_the_next_back();
  for (int chunk = 0; chunk < Share::kStages - 1; ++chunk) {
    if (chunk < call.chunks) stages.fetch_rows(chunk);
    stages.end_of_fetch();
  }
#pragma unroll 1
  for (int chunk = 0; chunk < call.chunks; ++chunk) {
    stages.wait(chunk);
    __syncthreads();  // all threads' copies of this chunk are there, and all have read the chunk before it
    if (const int ahead = chunk + Share::kStages - 1; ahead < call.chunks) {
      stages.fetch_weights(ahead);
      stages.fetch_rows(ahead);
    }
    stages.end_of_fetch();
    __syncwarp();
    const std::uint8_t* const rows = stages.rows(chunk) + stages.stack() * tiles * kTileChunkBytes;
    ChunkWeights<type, 2> weights;
    weights.load(stages.weights(chunk), lane);
    const int blocks = call.blocks_of(chunk);
    const auto add_chunk = [&](int there) {
#pragma unroll
      for (int pair = 0; pair < kChunkBlocks / 2; ++pair) add_pair<type, tiles>(weights, pair, there, rows, lane, sum);
    };
    blocks == kChunkBlocks ? add_chunk(kChunkBlocks) : add_chunk(blocks);  // the first without a branch between blocks
  }
  if (!stages.exists()) return;
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile)
    store_sums<2>(call, stages.group(), (stages.first_tile() + stages.stack() * tiles + tile) * kRowTile, lane,
                  sum[tile]);
}

template <DType type, int groups, int stacks, int tiles, bool small>
void launch_many(Queue queue, const BlockLinear& call) {
  using Share = Share<type, groups, stacks, tiles>;
  launch(queue, "linear", many_rows_kernel<type, groups, stacks, tiles, small>,
         {{blocks_for(call.groups, groups), blocks_for(call.rows, Share::kTiles * kRowTile), 1},
          Share::kThreads,
          Share::kBytes},
         call);
}

// About how long a multiprocessor that has most of the work needs, in instructions of one of its warps.
double cost(Queue queue, const BlockLinear& call, int groups, int stacks, int tiles) {
  constexpr double kOfTile = 19, kOfBlock = 11, kWarpsWanted = 8;
  const std::int64_t blocks =
      std::int64_t{blocks_for(call.groups, groups)} * blocks_for(call.rows, stacks * tiles * kRowTile);
  const auto most = static_cast<double>((blocks + queue.processors - 1) / queue.processors);
  const double warps = std::max(most * groups * stacks, kWarpsWanted);
  return warps * (tiles * kOfTile + kOfBlock);
}

}  // namespace

void linear_many_rows(Queue queue, DType type, const BlockLinear& call) {
  const double narrow = cost(queue, call, 2, 4, 1), flat = cost(queue, call, 4, 2, 2),
               tall = cost(queue, call, 2, 4, 2), large = cost(queue, call, 4, 2, 4);
  const double least = std::min({narrow, flat, tall, large});
  const auto launch_least = [&](auto format, auto small) {
    if (least == large)
      launch_many<format(), 4, 2, 4, small()>(queue, call);
    else if (least == tall)
      launch_many<format(), 2, 4, 2, small()>(queue, call);
    else if (least == flat)
      launch_many<format(), 4, 2, 2, small()>(queue, call);
    else
      launch_many<format(), 2, 4, 1, small()>(queue, call);
  };
  with_format(type, [&](auto format) {
    queue.small_blocks ? launch_least(format, std::true_type{}) : launch_least(format, std::false_type{});
  });
}

}  // namespace espalier::cuda
