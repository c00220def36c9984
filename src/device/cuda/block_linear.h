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

inline BlockLinear block_linear(const LinearPart* parts, int count, const std::byte* quantised) {
  BlockLinear call{};
  set_parts(call, parts, count);
  call.quantised = reinterpret_cast<const std::uint8_t*>(quantised);
  call.blocks = static_cast<int>(parts[0].inputs / kBlock);
  call.chunks = (call.blocks + kChunkBlocks - 1) / kChunkBlocks;
  return call;
}

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

// Where the only sum of a lane goes, of one row alone; what it is added to is read while it is still computed.
class LaneEnd {
 public:
  __device__ void load(const BlockLinear& call, int group, int lane) {
    const BlockLinear::Part& part = call.part_of(group);
    const std::int64_t n = std::int64_t{group - part.first_group} * kGroup + LaneShare<1>::output(lane, 0);
    y_ = lane % 2 == 0 && n < part.outputs ? part.y + n : nullptr;  // its neighbour has the same
    if (y_ == nullptr) return;
    has_bias_ = part.bias != nullptr;
    if (has_bias_) bias_ = part.bias[n];
    added_to_ = part.added_to == nullptr ? nullptr : part.added_to + n;
    if (added_to_ != nullptr) before_ = *added_to_;
  }
  __device__ void store(float sum) const {
    if (y_ == nullptr) return;
    const float y = has_bias_ ? sum + bias_ : sum;
    *y_ = y;
    if (added_to_ != nullptr) *added_to_ = before_ + y;
  }

 private:
  float *y_, *added_to_ = nullptr;
  float bias_ = 0, before_ = 0;
  bool has_bias_ = false;
};

// linear_few_rows.cu: whether it is for a linear of few rows, more than one.
bool rows_are_shared(Queue queue, DType type, const BlockLinear& call);
void linear_few_rows(Queue queue, DType type, const BlockLinear& call);

// linear_many_rows.cu
void linear_many_rows(Queue queue, DType type, const BlockLinear& call);

}  // namespace espalier::cuda
