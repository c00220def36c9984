// One linear of block-quantised weights as its kernels see it: parts of one type that share rows and inputs.
#pragma once

#include "device/cuda/kernels.h"
#include "device/cuda/packed_layout.h"

namespace espalier::cuda {

struct BlockLinear {
  struct Part {
    const std::uint8_t* packed;
    const float* bias;  // null: none
    float* y;
    std::int64_t y_stride;
    std::int64_t outputs;
    std::int64_t groups;
    std::int64_t first_group;  // of all
    float* added_to;           // null: nothing
    std::int64_t added_stride;
  };
  Part parts[kMostParts];
  int count;
  const std::uint8_t* quantised;
  std::int64_t rows, blocks, chunks;
  std::int64_t groups;  // of all parts

  __device__ const Part& part_of(std::int64_t group) const {
    int i = 0;
    while (i + 1 < count && group >= parts[i + 1].first_group) ++i;
    return parts[i];
  }
  __device__ int blocks_of(std::int64_t chunk) const {
    const std::int64_t left = blocks - chunk * kChunkBlocks;
    return left < kChunkBlocks ? static_cast<int>(left) : kChunkBlocks;
  }
  // The eight rows of a tile, from the first block of a chunk on.
  __device__ const std::uint8_t* rows_of(std::int64_t tile, std::int64_t chunk) const {
    return quantised + (tile * blocks + chunk * kChunkBlocks) * kTileBlockBytes;
  }
};

// The sums of a lane: outputs g and g + 8 of a part's group, for rows 2 t and (with two columns) 2 t + 1 of the tile.
template <int columns>
__device__ void store_sums(const BlockLinear::Part& part, std::int64_t group, std::int64_t first_row, std::int64_t rows,
                           int lane, const float (&sum)[2 * columns]) {
#pragma unroll
  for (int i = 0; i < 2 * columns; ++i) {
    const std::int64_t n = group * kGroup + lane / 4 + i / columns * 8, r = first_row + lane % 4 * 2 + i % columns;
    if (n >= part.outputs || r >= rows) continue;
    const float y = part.bias == nullptr ? sum[i] : sum[i] + part.bias[n];
    part.y[r * part.y_stride + n] = y;
    if (part.added_to != nullptr) {
      float* const x = part.added_to + r * part.added_stride + n;
      *x = *x + y;
    }
  }
}

// linear_many_rows.cu
void linear_many_rows(Queue queue, DType type, const BlockLinear& call);

}  // namespace espalier::cuda
