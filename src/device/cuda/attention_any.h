// Attention for every element type and head size, and for many tiles at once: a block of 128 threads for each tile of a
// row and a share of heads, in the order of sums of attention.cu. Keys and values are read where they lie, or in shared
// memory for the types and head sizes of attention_shared.h.
#pragma once

#include "device/cuda/attention_keys.h"
#include "device/cuda/attention_parts.h"
#include "device/cuda/attention_shared.h"
#include "device/cuda/kernel.h"
#include "device/cuda/last_block.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {

inline constexpr int kLanes = 16;  // partial sums of dot16
inline constexpr int kBatch = 8;   // tiles that are on their way at once when they are added up

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

// The same two from a tile in shared memory: a key a thread, then two elements of a head a thread.
template <int heads, typename Element, int dim>
__device__ void shared_scores_of(const SharedTile<Element, dim>& staged, const float* q, float scale, int key,
                                 float* score) {
  float dot[heads];
  staged.template dots<heads>(q, key, dot);
#pragma unroll
  for (int h = 0; h < heads; ++h) score[h * kKeys + key] = scale * dot[h];
}

template <typename Element, int dim>
__device__ void shared_scores(const AttentionCall& call, const HeadShare& heads, const SharedTile<Element, dim>& staged,
                              const float* q, int keys, float* score) {
  const auto key = static_cast<int>(threadIdx.x);
  if (key >= keys) return;
  switch (heads.count) {
    case 1: return shared_scores_of<1>(staged, q, call.scale, key, score);
    case 2: return shared_scores_of<2>(staged, q, call.scale, key, score);
    case 3: return shared_scores_of<3>(staged, q, call.scale, key, score);
    default: return shared_scores_of<4>(staged, q, call.scale, key, score);
  }
}

template <typename Element, int dim>
__device__ void shared_values(const HeadShare& heads, const SharedTile<Element, dim>& staged, int keys,
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

// The tiles of a share's heads, ascending, into `sums`: [heads, dim]. weights: kMostHeads * (kKeys + 1); both of shared
// memory
template <int width>
__device__ void add_tiles(const AttentionCall& call, const HeadShare& heads, std::int64_t r, const AttentionLeft& left,
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

// A tile of the heads of a share: maximum, denominator and sums of each to `own`.
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
    const SharedTile<Element, dim> staged(staging);
    staged.fetch(reinterpret_cast<const Stored*>(call.k) + heads.kv_head * dim,
                 reinterpret_cast<const Stored*>(call.v) + heads.kv_head * dim, call.kv_heads * dim, slots, keys);
    wait_for_copies<1>();
    __syncthreads();
    shared_scores<Element, dim>(call, heads, staged, q, keys, score);
    __syncthreads();
    weigh(heads, keys, score, own, tile_stride);
    wait_for_copies<0>();
    __syncthreads();
    shared_values<Element, dim>(heads, staged, keys, score, own, tile_stride);
  }
}

// Shared memory, in floats: [kMostHeads, kKeys + 1] scores, [kMostHeads, dim] of q, then of sums, and one tile of each
// head; then keys and values, where they are staged.
__host__ __device__ constexpr int any_shared_floats(int dim) {
  return kMostHeads * (kKeys + 1 + dim + kTileHead + dim);
}

// fixed_dim: the head size where tiles are staged in shared memory; 0: any
template <typename Element, int fixed_dim>
__global__ void __launch_bounds__(kKeys)
    any_attention_kernel(const __grid_constant__ AttentionCall call, const __grid_constant__ AttentionLeft left) {
  __shared__ std::int32_t slots[kKeys];
  __shared__ std::int32_t counts[kKeys + 1];
  const std::int64_t r = blockIdx.z;
  const auto tile = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int dim = fixed_dim != 0 ? fixed_dim : static_cast<int>(call.dim), tile_floats = dim + kTileHead;
  const HeadShare heads = head_share(call, left.heads_at_once, static_cast<int>(blockIdx.y));
  float* const score = shared_memory<float>();
  float* const q = score + kMostHeads * (kKeys + 1);
  float* const only_tile = q + kMostHeads * dim;
  TileKeys keys;
  if (call.tables.mask != nullptr) {
    keys = mask_slots(call, r, tile, thread, kKeys, 1, slots, counts);
  } else {
    const ListedKeys listed(call, r);
    keys = listed.of_tile(tile);
    if (thread < keys.count) slots[thread] = listed.slot(call, r, keys.first + thread);
  }
  wait_for_earlier_kernels();
  if (keys.count == 0 && tile != 0) return;  // tile 0 without keys: of a row that sees none, whose output is NaN
  for (int i = thread; i < heads.count * dim; i += kKeys) q[i] = call.q[(r * call.heads + heads.first) * dim + i];
  __syncthreads();
  const bool alone = keys.tiles <= 1;
  const int head_floats = left.most_tiles * tile_floats;
  float* const own = alone ? only_tile : left.tiles + (r * call.heads + heads.first) * head_floats + tile * tile_floats;
  compute_tile<Element, fixed_dim>(call, heads, q, slots, keys.count, score,
                                   reinterpret_cast<std::uint8_t*>(score + any_shared_floats(dim)), own,
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

}  // namespace espalier::cuda
