// Linears of weights of two bytes for many rows on cards whose warps multiply in quads (9.0), in the order of sums that
// float_fragments.h fixes: the bits of linear_float_rows.cu.
//
// A block of threads has some quads, a quad four groups of outputs and up to 16 tiles of rows. Another warp brings
// chunks of both through stages of shared memory (quad_stages.h); weights go on to registers, since they lie in the
// order in which lanes have them there, rows are read by the instruction. Blocks stay, and go from one item to the next
// (even_share.h): a whole product, or one strand of it, whose sums go through memory, where the warp that comes last
// adds them.
#include <algorithm>
#include <type_traits>

#include "device/cuda/format_switch.h"
#include "device/cuda/last_block.h"
#include "device/cuda/quad_stages.h"

namespace espalier::cuda {
namespace {

// A turn of a quad: half a chunk of its groups times the same of the tiles. The stage before is given back as soon as
// nothing reads it any more; -1: there is none
template <typename Shape>
__device__ void multiply_stage(QuadSums<Shape::tiles>& sum, const QuadStages<Shape>& stages, int stage, int before,
                               int group, int lane) {
  const std::uint8_t* const piece = stages.weights(stage, group);
  const std::uint64_t rows = rows_descriptor(address_in_block(stages.rows(stage)), Shape::kTileBytes);
#pragma unroll
  for (int pair = 0; pair < Shape::kPairs; ++pair) {
    WeightSteps weights;
    weights.load(piece, pair, lane);
    begin_multiplying();
#pragma unroll
    for (int term = 0; term < Shape::terms; ++term)
#pragma unroll
      for (int s = 0; s < 2; ++s)
        multiply_quad<typename Shape::Element, Shape::tiles>(
            sum, weights.step[s], further(rows, pair * Shape::kRowBytes + term * kQuadTileBytes + s * 2 * kCoreBytes));
    end_of_multiplications();
    wait_for_multiplications<1>();  // for the pair before
    if (pair == 0 && before >= 0) stages.has_been_read(before);
  }
}

// A strand of an item, from +0 on.
template <typename Shape>
__device__ void multiply_strand(QuadSums<Shape::tiles>& sum, const QuadLinear& call, const QuadStages<Shape>& stages,
                                StageTurn<Shape>& turn, int strand, int group, int lane) {
#pragma unroll
  for (int tile = 0; tile < Shape::tiles; ++tile) {
    sum[tile][0] = sum[tile][1] = sum[tile][2] = sum[tile][3] = 0;
    settle(sum[tile][0], sum[tile][1]);  // not behind begin_multiplying()
    settle(sum[tile][2], sum[tile][3]);
  }
  const int count = ((call.linear.chunks - strand + kStrands - 1) / kStrands) * Shape::kHalves;
  int before = -1;
#pragma unroll 1
  for (int i = 0; i < count; ++i, turn.advance()) {
    stages.wait_until_there(turn);
    multiply_stage<Shape>(sum, stages, turn.stage, before, group, lane);
    before = turn.stage;
  }
  wait_for_sums<Shape::tiles>(sum);
  stages.has_been_read(before);
}

// What a quad does with an item that has no group for it.
template <typename Shape>
__device__ void let_pass(const QuadLinear& call, const QuadItem& item, const QuadStages<Shape>& stages,
                         StageTurn<Shape>& turn) {
  for (int strand = item.first_strand; strand < item.end_strand; ++strand)
    for (int chunk = strand; chunk < call.linear.chunks; chunk += kStrands)
      for (int half = 0; half < Shape::kHalves; ++half, turn.advance()) {
        stages.wait_until_there(turn);
        stages.has_been_read(turn.stage);
      }
}

// Leaves the sums of a strand; the warp that comes last adds all of them.
template <typename Shape>
__device__ void leave_strand(const QuadLinear& call, const QuadItem& item, int group, int lane,
                             const QuadSums<Shape::tiles>& sum) {
  const EvenShare& share = call.share;
  const std::int64_t of_all = std::int64_t{item.product - share.whole} * share.width + group;
  const auto sums_of = [&](int tile, int strand) {
    return call.linear.strand_sums + ((of_all * share.strands + strand) * Shape::tiles + tile) * kWarp + lane;
  };
#pragma unroll
  for (int tile = 0; tile < Shape::tiles; ++tile)
    if (tile < item.tiles)
      *sums_of(tile, item.first_strand) = make_float4(sum[tile][0], sum[tile][1], sum[tile][2], sum[tile][3]);
  if (!arrive_last_of_warps(call.linear.arrived + of_all, share.strands, lane)) return;
  const LaneOutputs outputs(call.linear, item.first_group + group, lane);
#pragma unroll 2
  for (int tile = 0; tile < item.tiles; ++tile) {
    const float4 first = __ldcg(sums_of(tile, 0));
    float total[4] = {first.x, first.y, first.z, first.w};
#pragma unroll
    for (int strand = 1; strand < kStrands; ++strand) {
      if (strand >= share.strands) break;
      const float4 next = __ldcg(sums_of(tile, strand));
      total[0] = total[0] + next.x, total[1] = total[1] + next.y;
      total[2] = total[2] + next.z, total[3] = total[3] + next.w;
    }
    outputs.store(item.first_tile + tile, total);
  }
}

template <typename Shape>
__device__ void store_group(const QuadLinear& call, const QuadItem& item, int group, int lane,
                            const QuadSums<Shape::tiles>& sum) {
  const LaneOutputs outputs(call.linear, item.first_group + group, lane);
#pragma unroll
  for (int tile = 0; tile < Shape::tiles; ++tile)
    if (tile < item.tiles) outputs.store(item.first_tile + tile, sum[tile]);
}

// What a quad does.
template <typename Shape>
__device__ void multiply_all(const QuadLinear& call, const QuadStages<Shape>& stages, int warp, int lane) {
  StageTurn<Shape> turn;
  wait_and_hold_the_next_back();  // before sums and outputs are touched; the warp that fetches lets the next come
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < call.share.items; number += static_cast<int>(gridDim.x)) {
    const QuadItem item(call, number, Shape::tiles);
    if (warp / kQuadWarps * kQuadWarps >= item.groups) {
      let_pass(call, item, stages, turn);
      continue;
    }
    QuadSums<Shape::tiles> sum, total;
#pragma unroll 1
    for (int strand = item.first_strand; strand < item.end_strand; ++strand) {
      multiply_strand<Shape>(sum, call, stages, turn, strand, warp, lane);
#pragma unroll
      for (int i = 0; i < 4 * Shape::tiles; ++i)
        total[i / 4][i % 4] = strand == item.first_strand ? sum[i / 4][i % 4] : total[i / 4][i % 4] + sum[i / 4][i % 4];
    }
    if (warp >= item.groups) continue;
    if (item.is_apart(call.share))
      leave_strand<Shape>(call, item, warp, lane, total);
    else
      store_group<Shape>(call, item, warp, lane, total);
  }
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::blocks)
    quads_kernel(const __grid_constant__ QuadLinear call) {
  if constexpr (!kHasQuads) {
    __trap();
  } else {
    const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
    const QuadStages<Shape> stages;
    if (warp < Shape::quads * kQuadWarps) {
      if constexpr (Shape::kRegistersChangeHands) take_registers<160>();
      multiply_all<Shape>(call, stages, warp, lane);
    } else {
      if constexpr (Shape::kRegistersChangeHands) give_registers<32>();
      if (warp == Shape::quads * kQuadWarps) fetch_all<Shape>(call, stages, lane);
    }
  }
}

// Tiles of rows of a product: all of few rows, rounded up.
int tiles_of_product(const FloatLinear& call) {
  const auto tiles = static_cast<int>(call.x.tiles);
  return tiles <= 2 ? tiles : tiles <= 4 ? 4 : tiles <= 8 ? 8 : 16;
}

// Calls body with the shape for a linear: few rows leave room beside a block for one of the next kernel, more have as
// many groups as registers allow, since each product reads its rows.
template <typename Element, int terms, typename Body>
auto with_tiles(int tiles, const Body& body) {
  switch (tiles) {
    case 1: return body(QuadShape<Element, terms, 1, 2, 2>{});
    case 2: return body(QuadShape<Element, terms, 2, 2, 2>{});
    case 4: return body(QuadShape<Element, terms, 4, 2, 2>{});
    case 8: return body(QuadShape<Element, terms, 8, 3, 1>{});
    default: return body(QuadShape<Element, terms, 16, 3, 1>{});
  }
}

// In cycles of a multiprocessor that gets 30 bytes in each.
template <typename Shape>
EvenShare share_of(Queue queue, const FloatLinear& call) {
  constexpr double kBytes = 30, kOfPair = 100, kOfMeeting = 1500;
  const double pairs = kFloatPairs * ((call.chunks + kStrands - 1) / kStrands);
  SharedWork work;
  work.groups = call.groups;
  work.row_blocks = static_cast<int>((call.x.tiles + Shape::tiles - 1) / Shape::tiles);
  work.strands = std::min(call.chunks, kStrands);
  work.most_width = Shape::kGroups;
  work.quad_width = kQuadWarps;
  work.fetch_group = pairs * Shape::kPieceBytes / Shape::kPairs / kBytes;
  work.fetch_rows = pairs * (Shape::kRowBytes / kBytes + kOfPair);
  work.multiply_quad = pairs * 2 * Shape::terms * Shape::tiles * kRowTile / 2;
  work.leave_group = 2.0 * Shape::tiles * kWarp * sizeof(float4) / kBytes;
  work.meet = kOfMeeting;
  return share_evenly(work, queue.processors);
}

template <typename Shape>
void launch_quads(Queue queue, const FloatLinear& linear) {
  const QuadLinear call{linear, share_of<Shape>(queue, linear)};
  launch(queue, "linear", quads_kernel<Shape>,
         {{static_cast<unsigned>(std::min(call.share.items, queue.processors)), 1, 1}, Shape::kThreads, Shape::kBytes},
         call);
}

template <typename Shape>
FloatScratchBytes scratch_bytes(Queue queue, const FloatLinear& call) {
  const EvenShare share = share_of<Shape>(queue, call);
  const std::int64_t groups = std::int64_t{share.products - share.whole} * share.width;
  return {groups * share.strands * Shape::tiles * kWarp * static_cast<std::int64_t>(sizeof(float4)),
          groups * static_cast<std::int64_t>(sizeof(std::int32_t))};
}

// What the code says of itself that the GPU chose.
__device__ int has_quads = kHasQuads ? 1 : 0;

}  // namespace

bool code_has_quads() {
  int result = 0;
  check_cuda(cudaMemcpyFromSymbol(&result, has_quads, sizeof result), "cudaMemcpyFromSymbol");
  return result != 0;
}

FloatScratchBytes quad_scratch_bytes(Queue queue, const FloatLinear& call) {
  const auto bytes = [&](auto shape) { return scratch_bytes<decltype(shape)>(queue, call); };
  return queue.terms == 1 ? with_tiles<Bf16Element, 1>(tiles_of_product(call), bytes)
                          : with_tiles<Bf16Element, 2>(tiles_of_product(call), bytes);
}

void linear_float_quads(Queue queue, DType type, const FloatLinear& call) {
  const auto launch_shape = [&](auto shape) { launch_quads<decltype(shape)>(queue, call); };
  with_16_bits(type, [&](auto element) {
    using Element = decltype(element);
    queue.terms == 1 ? with_tiles<Element, 1>(tiles_of_product(call), launch_shape)
                     : with_tiles<Element, 2>(tiles_of_product(call), launch_shape);
  });
}

}  // namespace espalier::cuda
