// Which keys of a row lie in a tile of 128 ordinals, and in which slots: by the lists of the row tables, or by the
// mask.
#pragma once

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

namespace espalier::cuda {

inline constexpr int kKeys = 128;  // of a tile

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

__device__ inline std::int32_t slot_at(const AttentionCall& call, std::int32_t sequence, std::int64_t position) {
  const std::int32_t* const blocks = call.tables.blocks + sequence * call.tables.block_columns;
  const auto p = static_cast<std::uint32_t>(position), size = static_cast<std::uint32_t>(call.block_size);
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(blocks[p / size]) * size + p % size);
}

// What a row sees by the lists: context, ancestors, the row itself. All is asked for at once.
class ListedKeys {
 public:
  __device__ ListedKeys(const AttentionCall& call, std::int64_t r)
      : begin_(call.tables.begin[r]),
        end_(call.tables.end[r]),
        ancestors_(call.tables.ancestor_count[r]),
        own_(call.tables.slot[r]),
        sequence_(call.tables.sequence[r]) {}

  __device__ TileKeys of_tile(int tile) const { return tile_keys(begin_, context() + ancestors_ + 1, tile); }
  // Of key i of those that it sees.
  __device__ std::int32_t slot(const AttentionCall& call, std::int64_t r, int i) const {
    if (i < context()) return slot_at(call, sequence_, begin_ + i);
    return i < context() + ancestors_ ? call.tables.ancestors[r * call.tables.ancestor_columns + i - context()] : own_;
  }

 private:
  __device__ int context() const { return end_ > begin_ ? end_ - begin_ : 0; }

  std::int32_t begin_, end_, ancestors_, own_, sequence_;
};

// Slots of the keys of a tile by the mask: the shown columns, ascending. By a group of threads that meet at `barrier`,
// this one the `thread`th; the first kKeys share out the columns. slots, counts: kKeys and kKeys + 1 integers of
// shared memory
__device__ inline TileKeys mask_slots(const AttentionCall& call, std::int64_t r, int tile, int thread, int threads,
                                      int barrier, std::int32_t* slots, std::int32_t* counts) {
  const std::int64_t columns = call.tables.mask_columns, share = (columns + kKeys - 1) / kKeys;
  const std::uint8_t* const hidden = call.tables.mask + r * columns;
  const std::int64_t from = thread * share < columns ? thread * share : columns;
  const std::int64_t to = from + share < columns ? from + share : columns;
  int shown = 0;
  for (std::int64_t c = from; c < to; ++c) shown += hidden[c] == 0 ? 1 : 0;
  if (thread < kKeys) counts[thread] = shown;
  wait_at(barrier, threads);
  if (thread == 0) {
    std::int32_t before = 0;
    for (int i = 0; i < kKeys; ++i) {
      const std::int32_t own = counts[i];
      counts[i] = before;
      before += own;
    }
    counts[kKeys] = before;
  }
  wait_at(barrier, threads);
  const TileKeys keys = tile_keys(call.tables.begin[r], counts[kKeys], tile);
  if (thread < kKeys) {
    std::int64_t i = counts[thread] - keys.first;
    for (std::int64_t c = from; c < to; ++c) {
      if (hidden[c] != 0) continue;
      if (i >= 0 && i < keys.count) slots[i] = slot_at(call, call.tables.sequence[r], c);
      ++i;
    }
  }
  wait_at(barrier, threads);
  return keys;
}

}  // namespace espalier::cuda
