// Which keys of a row lie in a tile of 128 ordinals, and in which slots: by the lists of the row tables, or by the
// mask. For blocks of as many threads as a tile has keys.
#pragma once

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

namespace espalier::cuda {

inline constexpr int kKeys = 128;  // of a tile; threads of a block

// The keys of one row that lie in one tile: of those it sees, from 0, `first` to first + count; and how many tiles the
// row has in all, from tile 0 on.
struct TileKeys {
  int first = 0;
  int count = 0;
  int tiles = 0;
};

__device__ inline TileKeys tile_keys(std::int32_t begin, int keys, int tile) {
  const int before = begin % kKeys;  // ordinals of tile 0 that the row does not see
  int from = tile * kKeys - before, to = from + kKeys;
  if (from < 0) from = 0;
  if (to > keys) to = keys;
  return {from, from < to ? to - from : 0, (before + keys + kKeys - 1) / kKeys};
}

__device__ inline std::int32_t slot_at(const AttentionCall& call, std::int64_t r, std::int64_t position) {
  const std::int32_t* const blocks = call.tables.blocks + call.tables.sequence[r] * call.tables.block_columns;
  const auto p = static_cast<std::uint32_t>(position), size = static_cast<std::uint32_t>(call.block_size);
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(blocks[p / size]) * size + p % size);
}

// The slots of a tile's keys by the lists: context, ancestors, the row itself.
__device__ inline TileKeys list_slots(const AttentionCall& call, std::int64_t r, int tile, std::int32_t* slots) {
  const AttentionTables& t = call.tables;
  const std::int32_t begin = t.begin[r], end = t.end[r], ancestors = t.ancestor_count[r];
  const int context = end > begin ? end - begin : 0;
  const TileKeys keys = tile_keys(begin, context + ancestors + 1, tile);
  if (static_cast<int>(threadIdx.x) < keys.count) {
    const int i = keys.first + static_cast<int>(threadIdx.x);
    slots[threadIdx.x] = i < context               ? slot_at(call, r, begin + i)
                         : i < context + ancestors ? t.ancestors[r * t.ancestor_columns + i - context]
                                                   : t.slot[r];
  }
  return keys;
}

// The same by the mask: the shown columns, ascending. counts: kKeys + 1 integers of shared memory
__device__ inline TileKeys mask_slots(const AttentionCall& call, std::int64_t r, int tile, std::int32_t* slots,
                                      std::int32_t* counts) {
  const std::int64_t columns = call.tables.mask_columns, share = (columns + kKeys - 1) / kKeys;
  const std::uint8_t* const hidden = call.tables.mask + r * columns;
  const std::int64_t from = threadIdx.x * share;
  const std::int64_t to = from + share < columns ? from + share : columns;
  int shown = 0;
  for (std::int64_t c = from; c < to; ++c) shown += hidden[c] == 0 ? 1 : 0;
  counts[threadIdx.x] = shown;
  __syncthreads();
  if (threadIdx.x == 0) {
    std::int32_t before = 0;
    for (int i = 0; i < kKeys; ++i) {
      const std::int32_t own = counts[i];
      counts[i] = before;
      before += own;
    }
    counts[kKeys] = before;
  }
  __syncthreads();
  const TileKeys keys = tile_keys(call.tables.begin[r], counts[kKeys], tile);
  std::int64_t i = counts[threadIdx.x] - keys.first;
  for (std::int64_t c = from; c < to; ++c) {
    if (hidden[c] != 0) continue;
    if (i >= 0 && i < keys.count) slots[i] = slot_at(call, r, c);
    ++i;
  }
  return keys;
}

}  // namespace espalier::cuda
