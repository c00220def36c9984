// Linears of weights of two bytes for more than one row, in the order of sums that float_fragments.h fixes.
//
// A block of threads has eight groups of outputs and some tiles of rows, a warp of it one or two groups and some of the
// tiles. Chunks of weights and rows come through stages of shared memory, the next ones on their way while one is
// computed; blocks stay, and go from one item to the next without a pause. An item is either a whole product, strand
// after strand, or one strand of it: then the sums of strands go through memory, and the block that comes last adds
// them up. Where there is little to share out, strands make four times as much, and each block reads a fourth of the
// rows.
#include <algorithm>
#include <type_traits>

#include "device/cuda/float_linear.h"
#include "device/cuda/format_switch.h"
#include "device/cuda/last_block.h"

namespace espalier::cuda {
namespace {

constexpr std::int64_t kMostSumBytes = 64 << 20;

// warps: by groups and by rows. apart: an item is a strand
template <typename Tag, int term_count, int group_count, int group_warps, int row_warps, int tile_count, bool is_apart,
          bool is_small>
struct RowShape {
  using Element = Tag;
  static constexpr int terms = term_count, groups = group_count, tiles = tile_count;  // of a warp
  static constexpr bool apart = is_apart, small = is_small;
  static constexpr int kGroups = groups * group_warps, kTiles = tiles * row_warps, kGroupWarps = group_warps;
  static constexpr int kWarps = group_warps * row_warps, kThreads = kWarps * kWarp;
  static constexpr int kTileBytes = terms * kFloatTileBytes;
  static constexpr int kStageBytes = kGroups * kFloatPieceBytes + kTiles * kTileBytes;
  static constexpr int kMostBytes = static_cast<int>(small ? kSmallSharedBytes : std::size_t{200} << 10);
  static constexpr int kFit = kMostBytes / kStageBytes;
  static constexpr int kStages = kFit < 4 ? kFit : 4;
  static constexpr int kBytes = kStages * (kStageBytes + static_cast<int>(sizeof(std::uint64_t)));
  static_assert(kStages >= 2 && kBytes + 16 <= static_cast<int>(small ? kSmallSharedBytes : kLargeSharedBytes));
};

// The chunks of a block of threads, in its order: item by item, in an item strand by strand.
template <typename Shape>
class ItemWalk {
 public:
  __device__ ItemWalk(const FloatLinear& call, int warp)
      : call_(call),
        warp_(warp),
        row_blocks_(static_cast<int>((call.rows + Shape::kTiles * kRowTile - 1) / (Shape::kTiles * kRowTile))),
        item_(static_cast<int>(blockIdx.x)) {
    items_ = (call.groups + Shape::kGroups - 1) / Shape::kGroups * row_blocks_ * (Shape::apart ? call.strands() : 1);
    enter_item();
  }

  __device__ bool there() const { return item_ < items_; }
  __device__ void advance() {
    chunk_ += kStrands;
    if (chunk_ < call_.chunks) return;
    if (!Shape::apart && ++strand_ < call_.strands()) {
      chunk_ = strand_;
      return;
    }
    item_ += static_cast<int>(gridDim.x);
    enter_item();
  }

  __device__ int chunk() const { return chunk_; }
  __device__ int strand() const { return strand_; }
  __device__ bool begins_strand() const { return chunk_ < kStrands; }
  __device__ bool ends_strand() const { return chunk_ + kStrands >= call_.chunks; }
  __device__ bool ends_item() const { return ends_strand() && (Shape::apart || strand_ + 1 == call_.strands()); }
  __device__ int first_group() const { return first_group_; }
  __device__ std::int64_t first_tile() const { return first_tile_; }
  __device__ int tiles_there() const { return tiles_there_; }
  // The number of the product that an item belongs to.
  __device__ int product() const { return product_; }
  // The weights that a warp fetches: of a group that is not there, the last one's, whose sums nobody stores.
  __device__ const std::uint8_t* piece() const { return group_ + std::int64_t{chunk_} * kFloatPieceBytes; }

 private:
  __device__ void enter_item() {
    if (!there()) return;
    strand_ = chunk_ = Shape::apart ? item_ % call_.strands() : 0;
    product_ = Shape::apart ? item_ / call_.strands() : item_;
    first_group_ = product_ / row_blocks_ * Shape::kGroups;
    first_tile_ = product_ % row_blocks_ * Shape::kTiles;
    const int left = static_cast<int>((call_.rows + kRowTile - 1) / kRowTile) - first_tile_;
    tiles_there_ = left < Shape::kTiles ? left : Shape::kTiles;
    const int wanted = first_group_ + warp_;
    group_ = call_.piece_of(wanted < call_.groups ? wanted : call_.groups - 1, 0);
  }

  const FloatLinear& call_;
  int warp_, row_blocks_, item_, items_;
  int strand_ = 0, chunk_ = 0, product_ = 0, first_group_ = 0, first_tile_ = 0, tiles_there_ = 0;
  const std::uint8_t* group_ = nullptr;
};

// What a block of threads fetches: a chunk of its groups and tiles a stage.
template <typename Shape>
class FloatStages {
 public:
  __device__ FloatStages(const FloatLinear& call, int warp, int lane) : call_(call), warp_(warp), lane_(lane) {
    if constexpr (!Shape::small) {
      if (threadIdx.x == 0) {
        for (int i = 0; i < Shape::kStages; ++i) begin_arrivals(arrival(i));
        arrivals_are_ready();
      }
      __syncthreads();
    }
  }

  __device__ const std::uint8_t* weights(int stage) const { return at(stage); }
  __device__ const std::uint8_t* rows(int stage) const { return at(stage) + Shape::kGroups * kFloatPieceBytes; }

  // A group by each warp.
  __device__ void fetch_weights(const ItemWalk<Shape>& walk, int stage) const {
    static_assert(Shape::kGroups == Shape::kWarps);
    if (!Shape::small && threadIdx.x == 0)
      expect_bytes(arrival(stage), Shape::kGroups * kFloatPieceBytes + walk.tiles_there() * Shape::kTileBytes);
    copy<kFloatPieceBytes>(at(stage) + warp_ * kFloatPieceBytes, walk.piece(), stage);
  }
  __device__ void fetch_rows(const ItemWalk<Shape>& walk, int stage) const {
    std::uint8_t* const to = at(stage) + Shape::kGroups * kFloatPieceBytes;
#pragma unroll 1
    for (int i = warp_; i < walk.tiles_there(); i += Shape::kWarps)
      copy<Shape::kTileBytes>(to + i * Shape::kTileBytes, call_.rows_of(walk.first_tile() + i, walk.chunk()), stage);
  }
  // Behind what was fetched for a turn, also if it was nothing.
  __device__ void end_of_fetch() const {
    if constexpr (Shape::small) end_of_copies();
  }
  // Until a stage is there, the `round`-th time.
  __device__ void wait(int stage, int round) const {
    if constexpr (Shape::small)
      wait_for_copies<Shape::kStages - 2>();
    else
      wait_for_bytes(arrival(stage), round % 2);
  }

 private:
  template <int bytes>
  __device__ void copy(std::uint8_t* to, const std::uint8_t* from, int stage) const {
    if constexpr (Shape::small) {
#pragma unroll
      for (int i = 0; i < bytes; i += kWarp * 16) copy_ahead(to + i + lane_ * 16, from + i + lane_ * 16);
    } else if (lane_ == 0) {
      copy_many_ahead(to, from, bytes, arrival(stage));
    }
  }
  __device__ std::uint8_t* at(int stage) const {
    return shared_memory<std::uint8_t>() + stage * Shape::kStageBytes;
  }
  __device__ std::uint64_t* arrival(int stage) const {
    return reinterpret_cast<std::uint64_t*>(at(Shape::kStages)) + stage;
  }

  const FloatLinear& call_;
  int warp_, lane_;
};

template <typename Shape>
using WarpSums = float[Shape::groups][Shape::tiles][4];

// A chunk of a warp's groups and tiles.
template <typename Shape>
__device__ void add_chunk(WarpSums<Shape>& sum, const std::uint8_t* weights, const std::uint8_t* rows, int lane) {
#pragma unroll
  for (int pair = 0; pair < kFloatPairs; ++pair) {
    WeightSteps of_group[Shape::groups];
#pragma unroll
    for (int g = 0; g < Shape::groups; ++g) of_group[g].load(weights + g * kFloatPieceBytes, pair, lane);
#pragma unroll
    for (int term = 0; term < Shape::terms; ++term) {
      uint4 of_rows[Shape::tiles];
#pragma unroll
      for (int tile = 0; tile < Shape::tiles; ++tile)
        of_rows[tile] = row_steps<false>(rows + tile * Shape::kTileBytes + term * kFloatTileBytes, pair, lane);
#pragma unroll
      for (int s = 0; s < 2; ++s)
#pragma unroll
        for (int tile = 0; tile < Shape::tiles; ++tile)
#pragma unroll
          for (int g = 0; g < Shape::groups; ++g)
            add_step<typename Shape::Element>(sum[g][tile], of_group[g], of_rows[tile], s);
    }
  }
}

// A lane's outputs of a group and a tile.
__device__ inline void store_lane(const FloatLinear& call, int group, std::int64_t tile, int lane,
                                  const float (&sum)[4]) {
  if (group >= call.groups) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) call.store(group, lane / 4 + i / 2 * 8, tile * kRowTile + lane % 4 * 2 + i % 2, sum[i]);
}

// Where a warp's groups and tiles are, of all.
struct WarpPlace {
  int group;
  std::int64_t tile;
  int tiles;  // that there are
};

template <typename Shape>
__device__ void store_all(const FloatLinear& call, const WarpPlace& place, int lane, const WarpSums<Shape>& sum) {
#pragma unroll
  for (int g = 0; g < Shape::groups; ++g)
#pragma unroll
    for (int tile = 0; tile < Shape::tiles; ++tile)
      if (tile < place.tiles) store_lane(call, place.group + g, place.tile + tile, lane, sum[g][tile]);
}

// Leaves the sums of a strand; the block that comes last adds all of them.
template <typename Shape>
__device__ void leave_strand(const FloatLinear& call, const ItemWalk<Shape>& walk, const WarpPlace& place, int lane,
                             WarpSums<Shape>& sum) {
  const std::int64_t all_tiles = (call.rows + kRowTile - 1) / kRowTile;
  const auto sums_of = [&](int g, int tile, int strand) {
    return call.strand_sums +
           ((std::int64_t{place.group + g} * kStrands + strand) * all_tiles + place.tile + tile) * kWarp + lane;
  };
#pragma unroll
  for (int g = 0; g < Shape::groups; ++g)
#pragma unroll
    for (int tile = 0; tile < Shape::tiles; ++tile)
      if (place.group + g < call.groups && tile < place.tiles)
        *sums_of(g, tile, walk.strand()) =
            make_float4(sum[g][tile][0], sum[g][tile][1], sum[g][tile][2], sum[g][tile][3]);
  if (!arrive_last(call.arrived + walk.product(), call.strands())) return;
#pragma unroll
  for (int g = 0; g < Shape::groups; ++g)
#pragma unroll 2
    for (int tile = 0; tile < Shape::tiles; ++tile) {
      if (place.group + g >= call.groups || tile >= place.tiles) continue;
      float4 all[kStrands];
#pragma unroll
      for (int strand = 0; strand < kStrands; ++strand)
        if (strand < call.strands()) all[strand] = __ldcg(sums_of(g, tile, strand));
      float total[4] = {all[0].x, all[0].y, all[0].z, all[0].w};
#pragma unroll
      for (int strand = 1; strand < kStrands; ++strand) {
        if (strand >= call.strands()) break;
        total[0] = total[0] + all[strand].x, total[1] = total[1] + all[strand].y;
        total[2] = total[2] + all[strand].z, total[3] = total[3] + all[strand].w;
      }
      store_lane(call, place.group + g, place.tile + tile, lane, total);
    }
}

// Adds the sums of a strand to those of the strands before.
template <typename Shape>
__device__ void add_strand(WarpSums<Shape>& total, const WarpSums<Shape>& sum, bool first) {
#pragma unroll
  for (int g = 0; g < Shape::groups; ++g)
#pragma unroll
    for (int tile = 0; tile < Shape::tiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) total[g][tile][i] = first ? sum[g][tile][i] : total[g][tile][i] + sum[g][tile][i];
}

template <typename Shape>
__device__ void clear(WarpSums<Shape>& sum) {
#pragma unroll
  for (int g = 0; g < Shape::groups; ++g)
#pragma unroll
    for (int tile = 0; tile < Shape::tiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[g][tile][i] = 0;
}

template <typename Shape>
__device__ void compute_rows(const FloatLinear& call) {
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
  const int own_group = warp % Shape::kGroupWarps * Shape::groups, own_tile = warp / Shape::kGroupWarps * Shape::tiles;
  const FloatStages<Shape> stages(call, warp, lane);
  ItemWalk<Shape> walk(call, warp), first(call, warp), ahead(call, warp);
  for (int i = 0; i < Shape::kStages - 1 && first.there(); ++i, first.advance()) stages.fetch_weights(first, i);
  wait_for_earlier_kernels();
  for (int i = 0; i < Shape::kStages - 1; ++i) {
    if (ahead.there()) {
      stages.fetch_rows(ahead, i);
      ahead.advance();
    }
    stages.end_of_fetch();
  }
  WarpSums<Shape> sum, total;
  int stage = 0, round = 0;
#pragma unroll 1
  for (; walk.there(); walk.advance()) {
    stages.wait(stage, round);
    __syncthreads();  // all threads' copies of this chunk are there, and all have read the chunk before it
    if (ahead.there()) {
      const int before = stage == 0 ? Shape::kStages - 1 : stage - 1;
      stages.fetch_weights(ahead, before);
      stages.fetch_rows(ahead, before);
      ahead.advance();
    }
    stages.end_of_fetch();
    __syncwarp();
    const WarpPlace place{walk.first_group() + own_group, walk.first_tile() + own_tile, walk.tiles_there() - own_tile};
    if (walk.begins_strand()) clear<Shape>(sum);
    if (place.tiles > 0)
      add_chunk<Shape>(sum, stages.weights(stage) + own_group * kFloatPieceBytes,
                       stages.rows(stage) + own_tile * Shape::kTileBytes, lane);
    if (walk.ends_strand()) {
      if constexpr (Shape::apart) {
        leave_strand<Shape>(call, walk, place, lane, sum);
      } else {
        add_strand<Shape>(total, sum, walk.strand() == 0);
        if (walk.ends_item()) store_all<Shape>(call, place, lane, total);
      }
    }
    if (++stage == Shape::kStages) stage = 0, ++round;
  }
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) rows_kernel(const __grid_constant__ FloatLinear call) {
  if constexpr (Shape::small && !kHasSmallBlocks)
    __trap();
  else
    compute_rows<Shape>(call);
}

std::int64_t products_of(const FloatLinear& call, int groups, int tiles) {
  return std::int64_t{blocks_for(call.groups, groups)} * blocks_for(call.rows, tiles * kRowTile);
}

template <typename Shape>
void launch_rows(Queue queue, const FloatLinear& call) {
  const std::int64_t strands = std::min(call.chunks, kStrands);
  const std::int64_t items = products_of(call, Shape::kGroups, Shape::kTiles) * (Shape::apart ? strands : 1);
  launch(
      queue, "linear", rows_kernel<Shape>,
      {{static_cast<unsigned>(std::min<std::int64_t>(items, queue.processors)), 1, 1}, Shape::kThreads, Shape::kBytes},
      call);
}

constexpr int kGroupsOfBlock = 8;

// Tiles of rows that a block of threads has: all of few rows, rounded up.
int tiles_of_block(Queue queue, const FloatLinear& call) {
  const unsigned tiles = blocks_for(call.rows, kRowTile);
  if (queue.small_blocks) return tiles == 1 ? 1 : 4;
  return tiles <= 2 ? static_cast<int>(tiles) : tiles <= 4 ? 4 : tiles <= 8 ? 8 : 16;
}

std::int64_t bytes_of_sums(const FloatLinear& call) {
  return std::int64_t{call.groups} * blocks_for(call.rows, kRowTile) * kStrands * kWarp *
         static_cast<std::int64_t>(sizeof(float4));
}

// Whether strands are computed apart: where that shares out so much better that it outweighs their way through memory.
bool strands_apart(Queue queue, const FloatLinear& call) {
  constexpr double kWayThroughMemory = 1.1;
  if (bytes_of_sums(call) > kMostSumBytes) return false;
  const std::int64_t products = products_of(call, kGroupsOfBlock, tiles_of_block(queue, call));
  const auto turns = [&](std::int64_t items) { return (items + queue.processors - 1) / queue.processors; };
  return static_cast<double>(turns(products * kStrands)) * kWayThroughMemory <
         static_cast<double>(turns(products) * kStrands);
}

// Few rows: all of them in every block of threads, a group a warp. Many rows: two groups a warp.
template <typename Element, int terms, bool apart, bool small>
void launch_tiles(Queue queue, const FloatLinear& call) {
  const int tiles = tiles_of_block(queue, call);
  const auto launch_few = [&](auto count) {
    launch_rows<RowShape<Element, terms, 1, kGroupsOfBlock, 1, count(), apart, small>>(queue, call);
  };
  if (tiles == 1) return launch_few(std::integral_constant<int, 1>{});
  if constexpr (small) {
    launch_rows<RowShape<Element, terms, 2, kGroupsOfBlock / 2, 2, 2, apart, small>>(queue, call);
  } else {
    if (tiles == 2) return launch_few(std::integral_constant<int, 2>{});
    if (tiles == 4) return launch_few(std::integral_constant<int, 4>{});
    if (tiles == 8) return launch_few(std::integral_constant<int, 8>{});
    launch_rows<RowShape<Element, terms, 2, kGroupsOfBlock / 2, 2, 8, apart, small>>(queue, call);
  }
}

}  // namespace

std::int64_t strand_sum_bytes(Queue queue, const FloatLinear& call) {
  return strands_apart(queue, call) ? bytes_of_sums(call) : 0;
}

std::int64_t strand_count_bytes(const FloatLinear& call) {
  return products_of(call, kGroupsOfBlock, 1) * static_cast<std::int64_t>(sizeof(std::int32_t));
}

void linear_float_rows(Queue queue, DType type, const FloatLinear& call) {
  with_16_bits(type, [&](auto element) {
    using Element = decltype(element);
    with_terms(queue, [&](auto terms, auto small) {
      if (strands_apart(queue, call))
        launch_tiles<Element, terms(), true, small()>(queue, call);
      else
        launch_tiles<Element, terms(), false, small()>(queue, call);
    });
  });
}

}  // namespace espalier::cuda
