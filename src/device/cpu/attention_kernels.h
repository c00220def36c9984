// Attention over the vector type of a simd_*.h, which must be included before, as must be the attention_on_*.h that
// suits it. Internal linkage.
//
// A unit of work is one tile of 128 ordinals for all rows and query heads ("pairs") of one kv head: K and V of the tile
// are read once. What the tiles of a pair have summed is combined at the end.
#pragma once

#include "device/cpu/attention_scores.h"
#include "device/cpu/attention_sums.h"

namespace espalier::cpu {
namespace {

// kPairs: whose weighted sums of values run side by side.
template <typename Kv, int kVectors, int kPairs>
void weigh_few(const TilePairs& pairs, const KeyRange& all, float* scratch) {
  if (pairs.count() <= kFewPairs && pairs.shape.dim % kPanel == 0) {
    weigh_stored<PairBatch<Kv, kPairs, kWeighedVectors, true, kFolded<Kv, kVectors>>, Kv>(pairs, all);
  } else {
    weigh_widened<PairBatch<KvF32, kPairs, kWeighedVectors, true>, Kv>(pairs, all, scratch);
  }
  weigh_tails<PairBatch<KvF32, kPairs, kWeighedVectors, true>, Kv>(pairs, scratch);
}

template <typename Kv, int kVectors>
void sums_of_few(const TilePairs& pairs, const KeyRange& all, float* scratch) {
  if (pairs.count() <= kFewPairs) {
    score_few<Kv, kVectors>(pairs, all);
  } else {
    score_stored<Kv, kVectors>(pairs, all);
  }
  score_tails<Kv, kVectors>(pairs);
  softmax(pairs);
  if (pairs.count() == kFewWeighed) {
    weigh_few<Kv, kVectors, kFewWeighed>(pairs, all, scratch);
  } else {
    weigh_few<Kv, kVectors, kWeighedPairs>(pairs, all, scratch);
  }
}

// Heads that fill no vectors are taken like few pairs, however many there are.
template <typename Kv>
void sums_of_tile(const TilePairs& pairs, float* scratch) {
  const KeyRange all = pairs.context_of_all();
  for_vectors(pairs.shape.dim, [&](auto vectors) {
    constexpr int kVectors = decltype(vectors)::count;
    if (pairs.count() > kFewPairs && pairs.shape.dim % kPanel == 0) {
      sums_of_many<Kv, kVectors>(pairs, all, scratch);
    } else {
      sums_of_few<Kv, kVectors>(pairs, all, scratch);
    }
  });
}

void attention_tile(const AttentionShape& shape, const AttentionRows& rows, std::int64_t kv_head, std::int64_t tile,
                    float* scratch) {
  const TilePairs pairs{shape, rows, kv_head, tile, scratch + kKeyChunk * attention_padded(shape.dim)};
  switch (shape.type) {
    case KvType::f16: sums_of_tile<KvF16>(pairs, scratch); break;
    case KvType::bf16: sums_of_tile<KvBf16>(pairs, scratch); break;
    case KvType::f32: sums_of_tile<KvF32>(pairs, scratch); break;
  }
}

// One pair over the tiles of its rows.
struct PairTiles {
  const float* sums;  // of the first tile
  std::int64_t stride;
  std::int64_t tiles;
  std::int64_t width;
  const float* of(std::int64_t tile) const { return sums + tile * stride; }
  float largest(std::int64_t tile) const { return of(tile)[width]; }
  float denominator(std::int64_t tile) const { return of(tile)[width + 1]; }

  // NaN if one of them is.
  float largest_of_all() const {
    float most = -kInfinity;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      if (largest(tile) != largest(tile)) return largest(tile);
      most = largest(tile) > most ? largest(tile) : most;
    }
    return most;
  }
};

// Adds tiles [first, first + count), at most sixteen, to `sum` and to the denominator.
inline void combine_sixteen(const PairTiles& pair, std::int64_t first, std::int64_t count, float most, float* sum,
                            float& denominator) {
  float weights[kPanel] = {};
  for (std::int64_t t = 0; t < count; ++t) weights[t] = pair.largest(first + t) - most;
  store(weights, exp_f32(load(weights)));
  const auto exists = [&](std::int64_t t) { return pair.largest(first + t) > -kInfinity; };
  for (std::int64_t t = 0; t < count; ++t)
    if (exists(t)) denominator = __builtin_fmaf(weights[t], pair.denominator(first + t), denominator);
  const auto add_vectors = [&](std::int64_t i, auto vectors) {
    constexpr int kVectors = decltype(vectors)::count;
    F32 acc[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[v] = load(sum + i + v * kPanel);
    for (std::int64_t t = 0; t < count; ++t) {
      if (!exists(t)) continue;
      const F32 weight = broadcast(weights[t]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[v] = fma(weight, load(pair.of(first + t) + i + v * kPanel), acc[v]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) store(sum + i + v * kPanel, acc[v]);
  };
  std::int64_t i = 0;
  for (; i + 4 * kPanel <= pair.width; i += 4 * kPanel) add_vectors(i, Vectors<4>());
  for (; i < pair.width; i += kPanel) add_vectors(i, Vectors<1>());
}

// One query head of one row: its tiles together, into `out`.
inline void combine_pair(const PairTiles& pair, std::int64_t dim, float* scratch, float* out) {
  const float most = pair.largest_of_all();
  const bool valid = most < kInfinity && most > -kInfinity;
  float denominator = 0.0f;
  for (std::int64_t i = 0; i < pair.width; i += kPanel) store(scratch + i, broadcast(0.0f));
  for (std::int64_t first = 0; valid && first < pair.tiles; first += kPanel)
    combine_sixteen(pair, first, smaller(kPanel, pair.tiles - first), most, scratch, denominator);
  for_each_vector(dim, [&](std::int64_t i, std::int64_t count) {
    const F32 quotient = div(load(scratch + i), broadcast(denominator));
    store_up_to(out + i, valid ? quotient : broadcast(__builtin_nanf("")), count);
  });
}

void attention_combine(const AttentionShape& shape, const AttentionRows& rows, std::int64_t kv_head, float* scratch) {
  const std::int64_t width = attention_padded(shape.dim), pairs = rows.row_count * shape.group;
  const std::int64_t floats = attention_sum_floats(shape.dim), stride = shape.kv_heads * pairs * floats;
  for (std::int64_t r = 0; r < rows.row_count; ++r)
    for (std::int64_t h = 0; h < shape.group; ++h) {
      const float* const sums = rows.sums + (kv_head * pairs + r * shape.group + h) * floats;
      float* const out = rows.out + ((r * shape.kv_heads + kv_head) * shape.group + h) * shape.dim;
      combine_pair({sums, stride, rows.tiles, width}, shape.dim, scratch, out);
    }
}

}  // namespace
}  // namespace espalier::cpu
