// What the kernels of attention share: the heads of a block of threads, and where blocks leave what they have.
#pragma once

#include "device/cuda/attention_keys.h"
#include "device/cuda/attention_tile.h"
#include "device/cuda/float_fragments.h"
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/cuda/quantise_block.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {

inline constexpr int kTileHead = 4;  // floats before a tile's sums: its maximum, its denominator, and room

struct AttentionLeft {
  float* tiles;             // [rows, heads, tiles, kTileHead + dim]: maximum (minus infinity: counts as no tile; NaN: a
                            // score is), denominator, sums
  std::int32_t* arrived;    // [rows, shares] blocks that have; 0 between calls
  QuantisedRows quantised;  // data null: not wanted
  TermRows terms;           // likewise
  int most_tiles;
  int heads_at_once;  // of one kv head: a share, at most kMostHeads
};

// The heads of one kv head that a block has.
struct HeadShare {
  int kv_head, first;
  int count;
};

__host__ __device__ inline int shares_of(const AttentionCall& call, int heads_at_once) {
  return (static_cast<int>(call.heads) / static_cast<int>(call.kv_heads) + heads_at_once - 1) / heads_at_once;
}

__device__ inline HeadShare head_share(const AttentionCall& call, int heads_at_once, int share) {
  const int group = static_cast<int>(call.heads) / static_cast<int>(call.kv_heads);
  const int shares = shares_of(call, heads_at_once), before = share % shares * heads_at_once, left = group - before;
  return {share / shares, share / shares * group + before, left < heads_at_once ? left : heads_at_once};
}

// What a tile counts for beside the largest of all; below 0: it counts as no tile.
__device__ inline float tile_weight(float maximum, float largest) {
  return maximum == -infinity() ? -1.0f : exp_f32(maximum - largest);
}

// How many tiles a row of a call can have, by the size of its tables.
inline std::int64_t most_tiles(const AttentionCall& call) {
  const AttentionTables& t = call.tables;
  const std::int64_t keys =
      t.mask == nullptr ? t.block_columns * call.block_size + t.ancestor_columns + 1 : t.mask_columns;
  return (keys + kKeys - 2) / kKeys + 1;  // the first may begin anywhere in its tile
}

inline AttentionLeft attention_left(Queue queue, const AttentionCall& call, const AttentionScratch& scratch,
                                    const AttentionForms& forms) {
  return {reinterpret_cast<float*>(scratch.tiles),
          reinterpret_cast<std::int32_t*>(scratch.counts),
          {reinterpret_cast<std::uint8_t*>(forms.quantised), call.heads * call.dim / kBlock, call.rows == 1},
          term_rows(queue, forms.terms, call.rows, call.heads * call.dim),
          static_cast<int>(most_tiles(call)),
          kMostHeads};
}

inline constexpr int kAttentionBlocks = 2;  // of threads, that a multiprocessor can have at once

// As few heads a share as leave no of `processors` multiprocessors with more than it can have at once.
inline int heads_at_once(int processors, const AttentionCall& call) {
  const std::int64_t each = call.rows * call.kv_heads * most_tiles(call);
  for (int heads = 1; heads < kMostHeads; ++heads)
    if (each * shares_of(call, heads) <= kAttentionBlocks * processors) return heads;
  return kMostHeads;
}

// Rows of q and outputs that can be copied 16 bytes at a time.
inline bool is_aligned(const AttentionCall& call) {
  const auto address = [](const float* p) { return reinterpret_cast<std::uintptr_t>(p); };
  return (address(call.q) | address(call.out)) % 16 == 0;
}

}  // namespace espalier::cuda
