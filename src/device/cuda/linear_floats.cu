// Linears of weights of two bytes by matrix instructions, in an order of sums that float_fragments.h fixes. Here for
// one row; linear_float_rows.cu and linear_float_quads.cu have the same order for more.
//
// Every multiprocessor has one block of threads, with room beside it for the next kernel's. A group of outputs goes to
// four warps, a strand each, which fetch their own chunks (warp_rings.h); then one of them adds the strands.
#include <algorithm>
#include <type_traits>

#include "device/cuda/float_linear.h"
#include "device/cuda/format_switch.h"
#include "device/cuda/warp_rings.h"

namespace espalier::cuda {
namespace {

// relay: warps that share a group, one for each strand; or 1 where a strand has one chunk at most.
template <typename Tag, int term_count, int relay_warps, bool is_small>
struct OneRow : KernelOfItsOwn {
  using Call = FloatLinear;
  using Element = Tag;
  static constexpr int columns = 1, tiles = 1, relay = relay_warps, terms = term_count;
  static constexpr bool small = is_small;
  static constexpr int kWarps = small ? 4 : 8;
  static constexpr int kMostBytes = static_cast<int>(small ? kSmallSharedBytes : kLargeSharedBytes / 2);
  static constexpr int kPieceBytes = kFloatPieceBytes, kTileBytes = terms * kFloatRowBytes;
  static constexpr int kSlotBytes = kPieceBytes + kTileBytes;
  static constexpr int kFit = (kMostBytes - 1024) / (kWarps * kSlotBytes);
  static constexpr int kSlots = kFit < 4 ? kFit : 4;
  static constexpr int kBytes = kWarps * kSlots * (kSlotBytes + static_cast<int>(sizeof(std::uint64_t)));
  static_assert(kSlots >= 2 && kBytes + 2 * kWarps * kGroup * 4 <= kMostBytes);

  __device__ static const std::uint8_t* piece_of(const FloatLinear& call, int group, int chunk) {
    return call.piece_of(group, chunk);
  }
};

template <typename Shape>
__device__ void add_chunk(float (&sum)[4], const std::uint8_t* piece, const std::uint8_t* row, int lane) {
#pragma unroll
  for (int pair = 0; pair < kFloatPairs; ++pair) {
    WeightSteps weights;
    weights.load(piece, pair, lane);
#pragma unroll
    for (int term = 0; term < Shape::terms; ++term) {
      const uint4 of_row = row_steps<true>(row + term * kFloatRowBytes, pair, lane);
#pragma unroll
      for (int s = 0; s < 2; ++s) add_step<typename Shape::Element>(sum, weights, of_row, s);
    }
  }
}

// A group for each warp, whose chunks are strands.
template <typename Shape>
__device__ void compute_alone(const FloatLinear& call, int warp, int lane) {
  const int grid = static_cast<int>(gridDim.x), next_group = grid * Shape::kWarps;
  float sums[4];
  go_through<Shape>(call, {call, static_cast<int>(blockIdx.x) + grid * warp, 0, next_group}, next_group, warp, lane,
                    [&](const Walk<Shape>& walk, const std::uint8_t* piece, const std::uint8_t* row) {
                      float strand[4] = {};
                      add_chunk<Shape>(strand, piece, row, lane);
#pragma unroll
                      for (int i = 0; i < 4; ++i) sums[i] = walk.chunk == 0 ? strand[i] : sums[i] + strand[i];
                      if (walk.chunk + 1 < call.chunks || lane % 4 != 0) return;  // the others have the same
                      call.store(walk.group, lane / 4, 0, sums[0]);
                      call.store(walk.group, lane / 4 + 8, 0, sums[2]);
                    });
}

// A group for the four warps of a team. They meet once a group; what they leave for each other lies in two places in
// turn, so that nobody writes where another still reads.
template <typename Shape>
__device__ void compute_in_team(const FloatLinear& call, int warp, int lane) {
  static_assert(Shape::relay == kStrands);
  constexpr int kTeams = Shape::kWarps / kStrands;
  __shared__ float left[2][kTeams][kStrands][kGroup];
  const int grid = static_cast<int>(gridDim.x), next_group = grid * kTeams, team = warp / kStrands;
  int place = 0;
  float sum[4];
  go_through<Shape>(call, {call, static_cast<int>(blockIdx.x) + grid * team, warp % kStrands, next_group}, next_group,
                    warp, lane, [&](const Walk<Shape>& walk, const std::uint8_t* piece, const std::uint8_t* row) {
                      if (walk.chunk < kStrands) sum[0] = sum[1] = sum[2] = sum[3] = 0;
                      add_chunk<Shape>(sum, piece, row, lane);
                      if (walk.chunk + kStrands < call.chunks) return;
                      const int strand = walk.chunk % kStrands;
                      float(&strands)[kStrands][kGroup] = left[place][team];
                      if (lane % 4 == 0) {
                        strands[strand][lane / 4] = sum[0];
                        strands[strand][lane / 4 + 8] = sum[2];
                      }
                      __syncwarp();
                      wait_at(team, kStrands * kWarp);
                      if (strand == 0 && lane < kGroup)
                        call.store(walk.group, lane, 0,
                                   ((strands[0][lane] + strands[1][lane]) + strands[2][lane]) + strands[3][lane]);
                      place ^= 1;
                    });
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::kWarps* kWarp) one_row_kernel(const __grid_constant__ FloatLinear call) {
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
  if constexpr (Shape::small && !kHasSmallBlocks)
    __trap();
  else if constexpr (Shape::relay == 1)
    compute_alone<Shape>(call, warp, lane);
  else
    compute_in_team<Shape>(call, warp, lane);
}

template <typename Element, int terms, bool small>
void launch_one_row(Queue queue, const FloatLinear& call) {
  const auto launch_shape = [&](auto shape) {
    using Shape = decltype(shape);
    launch(
        queue, "linear", one_row_kernel<Shape>,
        {{static_cast<unsigned>(std::min(call.groups, queue.processors)), 1, 1}, Shape::kWarps * kWarp, Shape::kBytes},
        call);
  };
  call.chunks < kStrands ? launch_shape(OneRow<Element, terms, 1, small>{})
                         : launch_shape(OneRow<Element, terms, kStrands, small>{});
}

// rows: null where only sizes are wanted
FloatLinear float_linear(Queue queue, const LinearPart* parts, int count, std::byte* rows) {
  FloatLinear call{};
  set_parts(call, parts, count);
  call.x = term_rows(queue, rows, call.rows, parts[0].inputs);
  call.chunks = static_cast<int>(call.x.chunks);
  if (parts[0].type == DType::f16 && rows != nullptr) call.row_scales = term_scales(call.x);
  return call;
}

}  // namespace

bool matrices_are_emulated() {
  return kEmulatedMatrices;
}

FloatScratchBytes float_scratch_bytes(Queue queue, const LinearPart* parts, int count) {
  const FloatLinear call = float_linear(queue, parts, count, nullptr);
  if (call.rows == 1) return {};
  if (call.x.form == TermForm::quads) return quad_scratch_bytes(queue, call);
  return {strand_sum_bytes(queue, call), strand_count_bytes(call)};
}

void linear_floats(Queue queue, const LinearPart* parts, int count, std::byte* rows, const FloatScratch& scratch) {
  FloatLinear call = float_linear(queue, parts, count, rows);
  call.strand_sums = reinterpret_cast<float4*>(scratch.sums);
  call.arrived = reinterpret_cast<std::int32_t*>(scratch.counts);
  if (call.x.form == TermForm::quads) return linear_float_quads(queue, parts[0].type, call);
  if (call.rows > 1) return linear_float_rows(queue, parts[0].type, call);
  with_16_bits(parts[0].type, [&](auto element) {
    with_terms(queue,
               [&](auto terms, auto small) { launch_one_row<decltype(element), terms(), small()>(queue, call); });
  });
}

}  // namespace espalier::cuda
