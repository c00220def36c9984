// Linears of block-quantised weights with the bits of the contract: whole integer dots by matrix instructions, then one
// chain of fused multiply-adds for each output of each row. Here for few rows; linear_many_rows.cu has the same chains.
//
// Every multiprocessor has one block of threads, so that groups of outputs are shared out evenly, with room beside it
// for the next kernel's. Every warp fetches its own chunks, weights and rows, some turns ahead into a ring of shared
// memory; the first weights come before the kernel ahead has ended. Where there are groups enough, a warp has one to
// itself. Where there are not, the chunks of a group go to several warps in turn: the chain may not be cut, but all
// else may run ahead of it. Each computes what its chunk adds, waits for the sums of the chunks before, runs its part
// of the chain and passes the sums on.
#include <algorithm>
#include <type_traits>

#include "device/cuda/block_fragments.h"
#include "device/cuda/block_linear.h"
#include "device/cuda/format_switch.h"
#include "device/cuda/kernel.h"

namespace espalier::cuda {
namespace {

constexpr int kMostTiles = 2;

// The pieces of a warp: of its groups every `step`-th chunk, one group after the other.
template <DType type>
struct Walk {
  int group, chunk;
  const std::uint8_t* piece;

  __device__ Walk(const BlockLinear& call, int first_group, int first_chunk, int next_group)
      : group(first_group), chunk(first_chunk), piece(nullptr) {
    enter_group(call, next_group);
  }
  __device__ bool there(const BlockLinear& call) const { return group < call.groups; }
  __device__ void advance(const BlockLinear& call, int step, int next_group) {
    chunk += step;
    piece += step * piece_bytes(type);
    if (chunk >= call.chunks) enter_group(call, next_group);
  }

 private:
  __device__ void enter_group(const BlockLinear& call, int next_group) {
    while (chunk >= call.chunks) chunk -= call.chunks, group += next_group;
    if (there(call)) piece = call.piece_of(type, group, chunk);
  }
};

// The warps of a block of threads and their shared memory: slots of one piece of weights and the same chunk of all
// rows. relay: warps that share a group. small: for cards with little shared memory, or without copies of many bytes
template <DType tag, int column_count, int tile_count, int relay_warps, bool is_small>
struct FewRows {
  static constexpr DType type = tag;
  static constexpr int columns = column_count, tiles = tile_count, relay = relay_warps;
  static constexpr bool small = is_small;
  static constexpr int kWarps = small ? (columns == 1 ? 8 : 4) : tiles == 1 ? 16 : 8;
  // Warps that share a group are shorter of time than of bytes on their way, and leave room for the next kernel's.
  static constexpr int kMostBytes = static_cast<int>(small        ? kSmallSharedBytes
                                                     : relay == 1 ? kLargeSharedBytes
                                                                  : std::size_t{160} << 10);
  static constexpr int kTileBytes = LaneShare<columns>::kTileBytes;
  static constexpr int kSlotBytes = piece_bytes(type) + tiles * kTileBytes;
  static constexpr int kFit = kMostBytes / (kWarps * kSlotBytes);
  static constexpr int kSlots = kFit < 2 ? 2 : kFit < 4 ? kFit : 4;
  static constexpr int kBytes = kWarps * kSlots * (kSlotBytes + static_cast<int>(sizeof(std::uint64_t)));
  static constexpr int kPassedOnBytes = relay == 1 ? 0 : tiles * kWarps / relay * LaneShare<columns>::kSums * kWarp * 4;
  static_assert(static_cast<std::size_t>(kBytes + kPassedOnBytes) <= (small ? kSmallSharedBytes : kLargeSharedBytes));
};

// The ring of one warp whose lanes fetch 16 bytes each.
template <typename Shape>
class RingOfPieces {
 public:
  __device__ RingOfPieces(const BlockLinear& call, int warp, int lane)
      : slots_(shared_memory<std::uint8_t>() + warp * Shape::kSlots * Shape::kSlotBytes), lane_(lane) {
#pragma unroll
    for (int tile = 0; tile < Shape::tiles; ++tile) rows_there_[tile] = static_cast<int>(call.rows) - tile * kRowTile;
  }

  __device__ const std::uint8_t* slot(int i) const {
    return slots_ + i * Shape::kSlotBytes;
  }

  __device__ void fetch_weights(const std::uint8_t* piece, int slot) const {
    constexpr int kPieces = piece_bytes(Shape::type) / 16, kWhole = kPieces / kWarp * kWarp;
    const std::uint8_t* const from = piece + lane_ * 16;
    std::uint8_t* const to = slots_ + slot * Shape::kSlotBytes + lane_ * 16;
#pragma unroll
    for (int i = 0; i < kPieces / kWarp; ++i) copy_ahead(to + i * kWarp * 16, from + i * kWarp * 16);
    if (kWhole < kPieces && lane_ < kPieces - kWhole) copy_ahead(to + kWhole * 16, from + kWhole * 16);
  }

  // The rows that there are, of the pairs of blocks that there are.
  __device__ void fetch_rows(const BlockLinear& call, int chunk, int slot) const {
    std::uint8_t* const to = slots_ + slot * Shape::kSlotBytes + piece_bytes(Shape::type);
    if constexpr (Shape::columns == 1) {
      if (lane_ < kOneRowChunkBytes / 16) copy_ahead(to + lane_ * 16, call.one_row_of(chunk) + lane_ * 16);
    } else {
      const int pairs = call.pairs_of(chunk);
#pragma unroll
      for (int tile = 0; tile < Shape::tiles; ++tile) {
        const std::uint8_t* const from = call.rows_of(tile, chunk);
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

 private:
  std::uint8_t* slots_;
  int lane_;
  int rows_there_[Shape::tiles];
};

// The ring of one warp whose first lane fetches all.
template <typename Shape>
class RingOfSlots {
 public:
  __device__ RingOfSlots(const BlockLinear&, int warp, int lane)
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
    copy_many_ahead(slots_ + slot * Shape::kSlotBytes, piece, piece_bytes(Shape::type), arrivals_ + slot);
  }
  // Whole tiles and chunks: what there is not is not used.
  __device__ void fetch_rows(const BlockLinear& call, int chunk, int slot) const {
    if (lane_ != 0) return;
    std::uint8_t* const to = slots_ + slot * Shape::kSlotBytes + piece_bytes(Shape::type);
#pragma unroll
    for (int tile = 0; tile < Shape::tiles; ++tile)
      copy_many_ahead(to + tile * Shape::kTileBytes,
                      Shape::columns == 1 ? call.one_row_of(chunk) : call.rows_of(tile, chunk), Shape::kTileBytes,
                      arrivals_ + slot);
  }
  __device__ void end_of_turn() const {}
  __device__ void wait(int slot) {
    wait_for_bytes(arrivals_ + slot, parity_);
    if (slot + 1 == Shape::kSlots) parity_ ^= 1;
  }

 private:
  std::uint8_t* slots_;
  std::uint64_t* arrivals_;
  int lane_;
  int parity_ = 0;
};

// Goes through the pieces of a warp: take(walk, piece, rows) for each, when it is there.
template <typename Shape, typename Take>
__device__ void go_through(const BlockLinear& call, Walk<Shape::type> walk, int next_group, int warp, int lane,
                           Take take) {
  constexpr int step = Shape::relay;
  std::conditional_t<Shape::small, RingOfPieces<Shape>, RingOfSlots<Shape>> ring(call, warp, lane);
  Walk<Shape::type> ahead = walk;
#pragma unroll 1
  for (int i = 0; i < Shape::kSlots - 1 && ahead.there(call); ++i, ahead.advance(call, step, next_group))
    ring.fetch_weights(ahead.piece, i);
  wait_for_earlier_kernels();
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
    take(walk, piece, piece + piece_bytes(Shape::type));
    slot = slot + 1 == Shape::kSlots ? 0 : slot + 1;
  }
}

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

// A group for each warp.
template <typename Shape>
__device__ void compute_alone(const BlockLinear& call, int warp, int lane) {
  using Share = LaneShare<Shape::columns>;
  const int grid = static_cast<int>(gridDim.x), next_group = grid * Shape::kWarps;
  float sum[Shape::tiles][Share::kSums];
  go_through<Shape>(call, {call, static_cast<int>(blockIdx.x) + grid * warp, 0, next_group}, next_group, warp, lane,
                    [&](const Walk<Shape::type>& walk, const std::uint8_t* piece, const std::uint8_t* rows) {
                      const int blocks = call.blocks_of(walk.chunk);
#pragma unroll
                      for (int tile = 0; tile < Shape::tiles; ++tile) {
                        if (walk.chunk == 0)
#pragma unroll
                          for (int i = 0; i < Share::kSums; ++i) sum[tile][i] = 0;
                        ChunkTerms<Shape::type, Shape::columns> terms;
                        terms.compute(piece, rows + tile * Share::kTileBytes, lane);
                        terms.add_to(sum[tile], blocks);
                        if (walk.chunk + 1 == call.chunks)
                          store_sums<Shape::columns>(call, walk.group, tile * kRowTile, lane, sum[tile]);
                      }
                    });
}

// What a tile of rows has of a turn: its chunk's part of the chain, and at the end of a group the outputs. At its own
// barrier a warp hands the sums to the next one.
template <typename Shape, int tile>
__device__ void take_turn(const BlockLinear& call, const Walk<Shape::type>& walk, bool first, bool last,
                          const std::uint8_t* piece, const std::uint8_t* rows, int warp, int lane) {
  constexpr int kSums = LaneShare<Shape::columns>::kSums, kRelay = Shape::relay;
  __shared__ float passed_on[Shape::kWarps / kRelay][kSums][kWarp];
  float(&passed)[kSums][kWarp] = passed_on[warp / kRelay];
  const int before = warp / kRelay * kRelay + (warp + kRelay - 1) % kRelay;
  ChunkTerms<Shape::type, Shape::columns> terms;
  terms.compute(piece, rows + tile * Shape::kTileBytes, lane);
  float sum[kSums];
  if (!first) wait_at(Shape::kWarps * tile + before, 2 * kWarp);
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum[i] = walk.chunk == 0 ? 0.0f : passed[i][lane];
  terms.add_to(sum, call.blocks_of(walk.chunk));
#pragma unroll
  for (int i = 0; i < kSums; ++i) passed[i][lane] = sum[i];
  if (!last) arrive_at(Shape::kWarps * tile + warp, 2 * kWarp);
  if (walk.chunk + 1 == call.chunks) store_sums<Shape::columns>(call, walk.group, tile * kRowTile, lane, sum);
}

// A group for some warps in turn.
template <typename Shape>
__device__ void compute_in_turn(const BlockLinear& call, int warp, int lane) {
  static_assert(Shape::kWarps * Shape::tiles <= 16);  // barriers
  const int grid = static_cast<int>(gridDim.x), next_group = grid * (Shape::kWarps / Shape::relay);
  bool first = warp % Shape::relay == 0;
  go_through<Shape>(
      call, {call, static_cast<int>(blockIdx.x) + grid * (warp / Shape::relay), warp % Shape::relay, next_group},
      next_group, warp, lane, [&](const Walk<Shape::type>& walk, const std::uint8_t* piece, const std::uint8_t* rows) {
        const bool last = walk.chunk + 1 == call.chunks && walk.group + next_group >= call.groups;
        take_turn<Shape, 0>(call, walk, first, last, piece, rows, warp, lane);
        if constexpr (Shape::tiles == 2) take_turn<Shape, 1>(call, walk, first, last, piece, rows, warp, lane);
        first = false;
      });
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::kWarps* kWarp) few_rows_kernel(const __grid_constant__ BlockLinear call) {
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
  if constexpr (Shape::relay == 1)
    compute_alone<Shape>(call, warp, lane);
  else
    compute_in_turn<Shape>(call, warp, lane);
}

template <typename Shape>
void launch_few_rows(Queue queue, const BlockLinear& call) {
  const int blocks = std::min(call.groups, queue.processors);
  launch(queue, "linear", few_rows_kernel<Shape>,
         {{static_cast<unsigned>(blocks), 1, 1}, Shape::kWarps * kWarp, Shape::kBytes}, call);
}

// A warp for each group where that is enough for the GPU, else four.
template <DType type, int columns, int tiles, bool small>
void launch_enough_warps(Queue queue, const BlockLinear& call) {
  constexpr int kEnoughGroups = 8;  // for a multiprocessor
  if (call.groups >= kEnoughGroups * queue.processors || call.chunks == 1)
    launch_few_rows<FewRows<type, columns, tiles, 1, small>>(queue, call);
  else
    launch_few_rows<FewRows<type, columns, tiles, 4, small>>(queue, call);
}

BlockLinear block_linear(const LinearPart* parts, int count, const std::byte* quantised) {
  BlockLinear call{};
  call.count = count;
  for (int i = 0; i < count; ++i) {
    const LinearPart& from = parts[i];
    call.parts[i] = {reinterpret_cast<const std::uint8_t*>(from.packed),
                     from.bias,
                     from.y.data,
                     from.y.stride,
                     from.outputs,
                     call.groups,
                     from.added_to,
                     from.added_stride};
    call.groups += static_cast<int>((from.outputs + kGroup - 1) / kGroup);
  }
  call.quantised = reinterpret_cast<const std::uint8_t*>(quantised);
  call.rows = parts[0].y.rows;
  call.blocks = static_cast<int>(parts[0].inputs / kBlock);
  call.chunks = (call.blocks + kChunkBlocks - 1) / kChunkBlocks;
  return call;
}

}  // namespace

void linear_blocks(Queue queue, const LinearPart* parts, int count, const std::byte* quantised) {
  const BlockLinear call = block_linear(parts, count, quantised);
  if (call.rows > kMostTiles * kRowTile) return linear_many_rows(queue, parts[0].type, call);
  const auto launch_on_card = [&](auto format, auto small) {
    if (call.rows == 1)
      launch_enough_warps<format(), 1, 1, small()>(queue, call);
    else if (call.rows <= kRowTile)
      launch_enough_warps<format(), 2, 1, small()>(queue, call);
    else
      launch_enough_warps<format(), 2, 2, small()>(queue, call);
  };
  with_format(parts[0].type, [&](auto format) {
    queue.small_blocks ? launch_on_card(format, std::true_type{}) : launch_on_card(format, std::false_type{});
  });
}

}  // namespace espalier::cuda
