// One linear of block-quantised weights as its kernels see it: parts of one type that share rows and inputs.
#pragma once

#include "device/cuda/block_fragments.h"
#include "device/cuda/linear_parts.h"
#include "device/cuda/packed_layout.h"

namespace espalier::cuda {

struct BlockLinear : LinearParts {
  const std::uint8_t* quantised;
  int blocks, chunks;

  __device__ int blocks_of(int chunk) const {
    const int left = blocks - chunk * kChunkBlocks;
    return left < kChunkBlocks ? left : kChunkBlocks;
  }
  __device__ int pairs_of(int chunk) const { return (blocks_of(chunk) + 1) / 2; }
  // Where the piece of a group and a chunk lies.
  __device__ const std::uint8_t* piece_of(DType type, int group, int chunk) const {
    const Part& part = part_of(group);
    return part.packed + piece_offset(type, group - part.first_group, chunk, chunks);
  }
  // A chunk of the eight rows of a tile.
  __device__ const std::uint8_t* rows_of(std::int64_t tile, int chunk) const {
    return quantised + (tile * chunks + chunk) * kTileChunkBytes;
  }
  __device__ const std::uint8_t* one_row_of(int chunk) const { return quantised + chunk * kOneRowChunkBytes; }
};

// The sums of a lane (LaneShare): of a group of all, for the rows of a tile.
template <int columns>
__device__ void store_sums(const BlockLinear& call, int group, std::int64_t first_row, int lane,
                           const float (&sum)[LaneShare<columns>::kSums]) {
  if (columns == 1 && lane % 2 != 0) return;  // its neighbour has the same
  const BlockLinear::Part& part = call.part_of(group);
#pragma unroll
  for (int i = 0; i < LaneShare<columns>::kSums; ++i) {
    const std::int64_t n =
        std::int64_t{group - part.first_group} * kGroup + LaneShare<columns>::output(lane, i / columns);
    const std::int64_t r = columns == 1 ? 0 : first_row + lane % 4 * 2 + i % columns;
    if (n >= part.outputs || r >= call.rows) continue;
    store_sum(part, r, n, sum[i]);
  }
}

// linear_many_rows.cu
void linear_many_rows(Queue queue, DType type, const BlockLinear& call);

}  // namespace espalier::cuda
