// Attention by the contract's tiles of 128 key ordinals: every tile of every row by a block of its own, which leaves
// the tile's maximum and sums; the last block of a row adds the tiles up, ascending. A tile that is a row's only one
// stays where it is. What a row sees is read from the tables, so the grid is as large as the tables allow, and a block
// without keys has nothing to do.
#include "device/cuda/attention_keys.h"
#include "device/cuda/attention_tile.h"
#include "device/cuda/float_fragments.h"
#include "device/cuda/format_switch.h"
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/cuda/last_block.h"
#include "device/cuda/quantise_block.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {
namespace {

constexpr int kMostHeads = 4;          // of one kv head that share a block
constexpr int kLanes = 16;             // partial sums of dot16
constexpr int kBatch = 8;              // tiles that are on their way at once when they are added up
constexpr int kTileHead = 4;           // floats before a tile's sums: its maximum, its denominator, and room
constexpr int kStaticBytes = 2 << 10;  // slots and counts of a block's keys and a few numbers, rounded up

// Where the blocks of a call leave what they have.
struct Left {
  float* tiles;             // [rows, heads, tiles, kTileHead + dim]: maximum (minus infinity: counts as no tile; NaN: a
                            // score is), denominator, sums
  std::int32_t* arrived;    // [rows, shares] blocks that have; 0 between calls
  QuantisedRows quantised;  // data null: not wanted
  TermRows terms;           // likewise
  int most_tiles;
};

// The heads of one kv head, at most kMostHeads of them.
struct HeadShare {
  int kv_head, first;
  int count;
};

__host__ __device__ int shares_of(const AttentionCall& call) {
  return (static_cast<int>(call.heads) / static_cast<int>(call.kv_heads) + kMostHeads - 1) / kMostHeads;
}

__device__ HeadShare head_share(const AttentionCall& call, int share) {
  const int group = static_cast<int>(call.heads) / static_cast<int>(call.kv_heads), shares = shares_of(call);
  const int before = share % shares * kMostHeads, left = group - before;
  return {share / shares, share / shares * group + before, left < kMostHeads ? left : kMostHeads};
}

// Adds up the partial sums of 16 lanes in halves and stores the scores of one key.
__device__ void store_scores(const AttentionCall& call, float (&sum)[kMostHeads], int heads, bool stores,
                             float* score) {
#pragma unroll
  for (int h = 0; h < kMostHeads; ++h) {
    if (h >= heads) break;
#pragma unroll
    for (int lanes = kLanes / 2; lanes >= 1; lanes /= 2) sum[h] = sum[h] + __shfl_xor_sync(kAllLanes, sum[h], lanes);
    if (stores) score[h * kKeys] = call.scale * sum[h];
  }
}

// score[h][key] for the heads of a share: 16 lanes a key, element i of a head to lane i mod 16.
template <typename Element>
__device__ void compute_scores(const AttentionCall& call, const HeadShare& heads, const float* q,
                               const std::int32_t* slots, int keys, float* score) {
  const auto* const k = reinterpret_cast<const typename Element::Stored*>(call.k) + heads.kv_head * call.dim;
  const int lane = static_cast<int>(threadIdx.x % kLanes), first = static_cast<int>(threadIdx.x / kLanes);
  constexpr int kAtOnce = kKeys / kLanes;
  for (int j = first; j - first < keys; j += kAtOnce) {  // all lanes of a warp go round equally often
    const auto* const key = k + slots[j < keys ? j : 0] * call.kv_heads * call.dim;
    float sum[kMostHeads];
#pragma unroll
    for (int h = 0; h < kMostHeads; ++h) sum[h] = 0;
#pragma unroll 4
    for (std::int64_t d = lane; d < call.dim; d += kLanes) {
      const float value = Element::widen(key[d]);
#pragma unroll
      for (int h = 0; h < kMostHeads; ++h)
        if (h < heads.count) sum[h] = fmaf(q[h * call.dim + d], value, sum[h]);
    }
    store_scores(call, sum, heads.count, lane == 0 && j < keys, score + (j < keys ? j : 0));
  }
}

// The largest score of a head, or NaN if there is one, by one warp.
__device__ float largest_score(const float* score, int keys) {
  float largest = -infinity();
  bool has_nan = false;
  for (int j = static_cast<int>(threadIdx.x % kWarp); j < keys; j += kWarp) {
    has_nan = has_nan || is_nan(score[j]);
    largest = score[j] > largest ? score[j] : largest;
  }
  float all = has_nan ? not_a_number() : largest;
  for (int lanes = kWarp / 2; lanes >= 1; lanes /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, all, lanes);
    all = is_nan(all) || is_nan(other) ? not_a_number() : other > all ? other : all;
  }
  return all;
}

// Denominators and weighted sums of values: an element of a head a thread, keys ascending.
template <typename Element>
__device__ void add_values(const AttentionCall& call, const HeadShare& heads, const std::int32_t* slots, int keys,
                           const float* score, float* tile_of_first, int tile_stride) {
  const auto* const v = reinterpret_cast<const typename Element::Stored*>(call.v) + heads.kv_head * call.dim;
  const auto dim = static_cast<int>(call.dim);
  for (int i = static_cast<int>(threadIdx.x); i < heads.count * dim; i += kKeys) {
    const int h = i / dim, d = i % dim;
    float denominator = 0, sum = 0;
#pragma unroll 8
    for (int j = 0; j < keys; ++j) {
      const float weight = score[h * kKeys + j];
      denominator = denominator + weight;
      sum = fmaf(weight, Element::widen(v[slots[j] * call.kv_heads * call.dim + d]), sum);
    }
    float* const tile = tile_of_first + h * tile_stride;
    tile[kTileHead + d] = sum;
    if (d == 0) tile[1] = denominator;
  }
}

// The same two from a staged tile: a key a thread, then two elements of a head a thread.
template <int heads, typename Element, int dim>
__device__ void staged_scores_of(const StagedTile<Element, dim>& staged, const float* q, float scale, int key,
                                 float* score) {
  float dot[heads];
  staged.template dots<heads>(q, key, dot);
#pragma unroll
  for (int h = 0; h < heads; ++h) score[h * kKeys + key] = scale * dot[h];
}

template <typename Element, int dim>
__device__ void staged_scores(const AttentionCall& call, const HeadShare& heads, const StagedTile<Element, dim>& staged,
                              const float* q, int keys, float* score) {
  const auto key = static_cast<int>(threadIdx.x);
  if (key >= keys) return;
  switch (heads.count) {
    case 1: return staged_scores_of<1>(staged, q, call.scale, key, score);
    case 2: return staged_scores_of<2>(staged, q, call.scale, key, score);
    case 3: return staged_scores_of<3>(staged, q, call.scale, key, score);
    default: return staged_scores_of<4>(staged, q, call.scale, key, score);
  }
}

template <typename Element, int dim>
__device__ void staged_values(const HeadShare& heads, const StagedTile<Element, dim>& staged, int keys,
                              const float* score, float* tile_of_first, int tile_stride) {
  for (int i = static_cast<int>(threadIdx.x); i < heads.count * (dim / 2); i += kKeys) {
    const int h = i / (dim / 2), pair = i % (dim / 2);
    float sum[2] = {0, 0}, denominator = 0;
    staged.add_values(score + h * kKeys, keys, pair, sum, denominator);
    float* const tile = tile_of_first + h * tile_stride;
    tile[kTileHead + 2 * pair] = sum[0];
    tile[kTileHead + 2 * pair + 1] = sum[1];
    if (pair == 0) tile[1] = denominator;
  }
}

// The largest maximum of a head's tiles; NaN if one is.
__device__ float largest_of_tiles(const float* tiles, int count, int stride) {
  float largest = -infinity();
  bool has_nan = false;
  for (int t = static_cast<int>(threadIdx.x % kWarp); t < count; t += kWarp) {
    const float m = __ldcg(tiles + t * stride);
    has_nan = has_nan || is_nan(m);
    largest = m > largest ? m : largest;
  }
  float all = has_nan ? not_a_number() : largest;
  for (int lanes = kWarp / 2; lanes >= 1; lanes /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, all, lanes);
    all = is_nan(all) || is_nan(other) ? not_a_number() : other > all ? other : all;
  }
  return all;
}

// Adds kBatch tiles from t on to `width` neighbouring elements of a head. All are read before the first is added, also
// those that do not exist, which are left out.
template <int width>
__device__ void add_batch(const float* tile, int tile_floats, const float* weights, int t, int count, int d,
                          float (&sum)[width], float& below) {
  float value[kBatch][width], denominator[kBatch];
#pragma unroll
  for (int u = 0; u < kBatch; ++u) {
    const float* const from = tile + (t + u < count ? t + u : t) * tile_floats;
    denominator[u] = __ldcg(from + 1);
    if constexpr (width == 4) {
      const float4 four = __ldcg(reinterpret_cast<const float4*>(from + kTileHead + d));
      value[u][0] = four.x, value[u][1] = four.y, value[u][2] = four.z, value[u][3] = four.w;
    } else {
      value[u][0] = __ldcg(from + kTileHead + d);
    }
  }
#pragma unroll
  for (int u = 0; u < kBatch; ++u) {
    const float w = t + u < count ? weights[t + u] : -1.0f;
    if (w < 0) continue;
    below = fmaf(w, denominator[u], below);
#pragma unroll
    for (int e = 0; e < width; ++e) sum[e] = fmaf(w, value[u][e], sum[e]);
  }
}

// What a tile counts for beside the largest of all; below 0: it counts as no tile.
__device__ float tile_weight(float maximum, float largest) {
  return maximum == -infinity() ? -1.0f : exp_f32(maximum - largest);
}

// The tiles of a share's heads, ascending, into `sums`: [heads, dim]. weights: kMostHeads * (kKeys + 1); both of shared
// memory
template <int width>
__device__ void add_tiles(const AttentionCall& call, const HeadShare& heads, std::int64_t r, const Left& left,
                          int all_tiles, float* weights, float* sums) {
  __shared__ float largest[kMostHeads], denominator[kMostHeads];
  const auto dim = static_cast<int>(call.dim);
  const int tile_floats = dim + kTileHead, head_floats = left.most_tiles * tile_floats;
  const float* const tiles = left.tiles + (r * call.heads + heads.first) * head_floats;
  const auto thread = static_cast<int>(threadIdx.x);
  for (int h = thread / kWarp; h < heads.count; h += kKeys / kWarp) {
    const float found = largest_of_tiles(tiles + std::int64_t{h} * head_floats, all_tiles, tile_floats);
    if (thread % kWarp == 0) largest[h] = found, denominator[h] = 0;
  }
  for (int i = thread; i < heads.count * dim; i += kKeys) sums[i] = 0;
  for (int begin = 0; begin < all_tiles; begin += kKeys) {
    const int count = all_tiles - begin < kKeys ? all_tiles - begin : kKeys;
    __syncthreads();
    for (int i = thread; i < heads.count * kKeys; i += kKeys) {
      const int h = i / kKeys, t = i % kKeys;
      if (t >= count) continue;
      const float* const tile = tiles + std::int64_t{h} * head_floats + (begin + t) * tile_floats;
      weights[i] = tile_weight(__ldcg(tile), largest[h]);
    }
    __syncthreads();
    for (int i = thread * width; i < heads.count * dim; i += kKeys * width) {
      const int h = i / dim, d = i % dim;
      const float* const tile = tiles + std::int64_t{h} * head_floats + begin * tile_floats;
      float sum[width], below = denominator[h];
#pragma unroll
      for (int e = 0; e < width; ++e) sum[e] = sums[i + e];
      for (int t = 0; t < count; t += kBatch)
        add_batch<width>(tile, tile_floats, weights + h * kKeys, t, count, d, sum, below);
      const bool ends = begin + count == all_tiles, finite = is_finite(largest[h]);
#pragma unroll
      for (int e = 0; e < width; ++e) sums[i + e] = !ends ? sum[e] : finite ? sum[e] / below : not_a_number();
      if (d == 0) weights[kMostHeads * kKeys + h] = below;  // while others still read the old one
    }
    __syncthreads();
    if (thread < heads.count) denominator[thread] = weights[kMostHeads * kKeys + thread];
  }
  __syncthreads();
}

// The same where a row has one tile, which lies in `tiles` of shared memory: [heads, kTileHead + dim].
__device__ void finish_only_tile(const HeadShare& heads, int dim, const float* tiles, float* sums) {
  for (int i = static_cast<int>(threadIdx.x); i < heads.count * dim; i += kKeys) {
    const int h = i / dim, d = i % dim;
    const float* const tile = tiles + h * (dim + kTileHead);
    const float weight = tile_weight(tile[0], tile[0]);
    const float sum = fmaf(weight, tile[kTileHead + d], 0.0f), below = fmaf(weight, tile[1], 0.0f);
    sums[i] = is_finite(tile[0]) ? sum / below : not_a_number();
  }
  __syncthreads();
}

// Scores become weights: exp(score - largest of the head), by all threads.
__device__ void weigh(const HeadShare& heads, int keys, float* score, float* tile_of_first, int tile_stride) {
  __shared__ float largest[kMostHeads];
  const auto thread = static_cast<int>(threadIdx.x);
  for (int h = thread / kWarp; h < heads.count; h += kKeys / kWarp) {
    const float found = largest_score(score + h * kKeys, keys);
    if (thread % kWarp == 0) largest[h] = found, tile_of_first[h * tile_stride] = found;
  }
  __syncthreads();
  for (int i = thread; i < heads.count * kKeys; i += kKeys)
    if (i % kKeys < keys) score[i] = exp_f32(score[i] - largest[i / kKeys]);
}

// A tile of the heads of a share: maximum, denominator and sums of each to `own`. shared: what launch_attention gives
template <typename Element, int dim>
__device__ void compute_tile(const AttentionCall& call, const HeadShare& heads, const float* q,
                             const std::int32_t* slots, int keys, float* score, std::uint8_t* staging, float* own,
                             int tile_stride) {
  if constexpr (dim == 0) {
    compute_scores<Element>(call, heads, q, slots, keys, score);
    __syncthreads();
    weigh(heads, keys, score, own, tile_stride);
    __syncthreads();
    add_values<Element>(call, heads, slots, keys, score, own, tile_stride);
  } else {
    using Stored = typename Element::Stored;
    const StagedTile<Element, dim> staged(staging);
    staged.fetch(reinterpret_cast<const Stored*>(call.k) + heads.kv_head * dim,
                 reinterpret_cast<const Stored*>(call.v) + heads.kv_head * dim, call.kv_heads * dim, slots, keys);
    wait_for_copies<1>();
    __syncthreads();
    staged_scores<Element, dim>(call, heads, staged, q, keys, score);
    __syncthreads();
    weigh(heads, keys, score, own, tile_stride);
    wait_for_copies<0>();
    __syncthreads();
    staged_values<Element, dim>(heads, staged, keys, score, own, tile_stride);
  }
}

// Shared memory, in floats: [kMostHeads, kKeys + 1] scores, [kMostHeads, dim] of q, then of sums, one tile of each
// head, and the staged keys and values.
__host__ __device__ constexpr int shared_floats(int dim) {
  return kMostHeads * (kKeys + 1 + dim + kTileHead + dim);
}

// fixed_dim: the head size where tiles are staged; 0: any
template <typename Element, int fixed_dim>
__global__ void __launch_bounds__(kKeys) attention_kernel(const __grid_constant__ AttentionCall call, Left left) {
  __shared__ std::int32_t slots[kKeys];
  __shared__ std::int32_t counts[kKeys + 1];
  const std::int64_t r = blockIdx.z;
  const auto tile = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int dim = fixed_dim != 0 ? fixed_dim : static_cast<int>(call.dim), tile_floats = dim + kTileHead;
  const HeadShare heads = head_share(call, static_cast<int>(blockIdx.y));
  float* const score = shared_memory<float>();
  float* const q = score + kMostHeads * (kKeys + 1);
  float* const only_tile = q + kMostHeads * dim;
  const TileKeys keys =
      call.tables.mask == nullptr ? list_slots(call, r, tile, slots) : mask_slots(call, r, tile, slots, counts);
  wait_for_earlier_kernels();
  if (keys.count == 0 && tile != 0) return;  // tile 0 without keys: of a row that sees none, whose output is NaN
  for (int i = thread; i < heads.count * dim; i += kKeys) q[i] = call.q[(r * call.heads + heads.first) * dim + i];
  __syncthreads();
  const bool alone = keys.tiles <= 1;
  const int head_floats = left.most_tiles * tile_floats;
  float* const own = alone ? only_tile : left.tiles + (r * call.heads + heads.first) * head_floats + tile * tile_floats;
  compute_tile<Element, fixed_dim>(call, heads, q, slots, keys.count, score,
                                   reinterpret_cast<std::uint8_t*>(score + shared_floats(dim)), own,
                                   alone ? tile_floats : head_floats);
  if (alone) {
    __syncthreads();
    finish_only_tile(heads, dim, only_tile, q);
  } else {
    if (!arrive_last(left.arrived + r * gridDim.y + blockIdx.y, keys.tiles)) return;
    if (dim % 4 == 0)
      add_tiles<4>(call, heads, r, left, keys.tiles, score, q);
    else
      add_tiles<1>(call, heads, r, left, keys.tiles, score, q);
  }
  for (int i = thread; i < heads.count * dim; i += kKeys) {
    const std::int64_t column = heads.first * dim + i;
    call.out[r * call.heads * dim + column] = q[i];
    if (left.quantised.data != nullptr) quantise_block(q[i], r, column / kBlock, left.quantised);
    if (left.terms.data != nullptr) store_terms<Bf16Element>(q[i], r, column, left.terms);
  }
}

std::int64_t most_tiles(const AttentionCall& call) {
  const AttentionTables& t = call.tables;
  const std::int64_t keys =
      t.mask == nullptr ? t.block_columns * call.block_size + t.ancestor_columns + 1 : t.mask_columns;
  return (keys + kKeys - 2) / kKeys + 1;  // the first may begin anywhere in its tile
}

template <typename Element, int dim>
void launch_attention(Queue queue, const AttentionCall& call, const Left& left) {
  auto shared = static_cast<std::size_t>(shared_floats(static_cast<int>(call.dim))) * sizeof(float);
  if constexpr (dim != 0) {
    using Tile = StagedTile<Element, dim>;
    static_assert(Tile::kBytes + shared_floats(dim) * 4 + kStaticBytes <= static_cast<int>(kSmallSharedBytes));
    shared += Tile::kBytes;
  }
  const Launch how{{static_cast<unsigned>(left.most_tiles), static_cast<unsigned>(call.kv_heads * shares_of(call)),
                    static_cast<unsigned>(call.rows)},
                   kKeys,
                   shared};
  launch(queue, "attention", attention_kernel<Element, dim>, how, call, left);
}

}  // namespace

std::int64_t attention_tile_bytes(const AttentionCall& call) {
  return call.heads * most_tiles(call) * (call.dim + kTileHead) * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t attention_count_bytes(const AttentionCall& call) {
  return call.rows * call.kv_heads * shares_of(call) * static_cast<std::int64_t>(sizeof(std::int32_t));
}

void attention(Queue queue, const AttentionCall& call, const AttentionScratch& scratch, const AttentionForms& forms) {
  const Left left{reinterpret_cast<float*>(scratch.tiles),
                  reinterpret_cast<std::int32_t*>(scratch.counts),
                  {reinterpret_cast<std::uint8_t*>(forms.quantised), call.heads * call.dim / kBlock, call.rows == 1},
                  term_rows(queue, forms.terms, call.rows, call.heads * call.dim),
                  static_cast<int>(most_tiles(call))};
  with_element(call.kv_type, [&](auto element) {
    using Element = decltype(element);
    if constexpr (sizeof(typename Element::Stored) == 2) {
      if (call.dim == 64) return launch_attention<Element, 64>(queue, call, left);
      if (call.dim == 96) return launch_attention<Element, 96>(queue, call, left);
      if (call.dim == 128) return launch_attention<Element, 128>(queue, call, left);
    }
    launch_attention<Element, 0>(queue, call, left);
  });
}

}  // namespace espalier::cuda
