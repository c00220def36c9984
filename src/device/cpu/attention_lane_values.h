// Weighed sums of values where the weights of all pairs lie by key. simd_avx2.h or simd_avx512.h must be included
// before. Internal linkage.
#pragma once

#include "device/cpu/attention_lane_scores.h"
#include "device/cpu/attention_sums.h"

namespace espalier::cpu {
namespace {

constexpr std::int64_t kWidenedValues = 32;  // at a time

// Pairs that follow each other and see the same `keys` values, `stride` elements from one to the next.
template <typename Kv>
struct PairRun {
  const float* weights;  // of the first pair
  std::int64_t width;    // from key to key
  float* sums;
  std::int64_t pairs, dim;
  const typename Kv::Stored* values;
  std::int64_t stride, keys;
};

// Adds V vectors from dimension d on to the sums of P pairs, of which `first` is the first. Meanwhile the slots that
// are due are fetched.
template <int P, int V, typename Kv>
inline void weigh_kept(const PairRun<Kv>& run, std::int64_t first, std::int64_t d, const SlotsAhead& ahead,
                       std::int64_t due, std::int64_t parts) {
  const std::int64_t sums_stride = attention_sum_floats(run.dim);
  const float* weights = run.weights + first;
  const typename Kv::Stored* values = run.values + d;
  float* const sums = run.sums + first * sums_stride + d;
  F32 acc[P][V];
#pragma GCC unroll 12
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 12
    for (int i = 0; i < V; ++i) acc[p][i] = load(sums + p * sums_stride + i * kPanel);
  for (std::int64_t key = 0; key < run.keys; ++key, values += run.stride, weights += run.width) {
    F32 value[V];
#pragma GCC unroll 12
    for (int i = 0; i < V; ++i) value[i] = kept(Kv::get(values + i * kPanel));
#pragma GCC unroll 12
    for (int p = 0; p < P; ++p) {
      const F32 weight = kept_broadcast(weights[p]);
#pragma GCC unroll 12
      for (int i = 0; i < V; ++i) acc[p][i] = fma(weight, value[i], acc[p][i]);
    }
    if (key == due) due = ahead.fetch(key, parts);
  }
#pragma GCC unroll 12
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 12
    for (int i = 0; i < V; ++i) store(sums + p * sums_stride + i * kPanel, acc[p][i]);
}

// How many vectors of so many pairs run side by side: of fewer pairs more.
constexpr int lane_vectors(std::int64_t pairs) {
  const std::int64_t most = kLanePairs * kLaneVectors / pairs;
  return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

// Blocks of as many pairs each as can be. A part is what weigh_kept does at once.
template <typename Kv>
inline void weigh_run(const PairRun<Kv>& run, const SlotsAhead& ahead) {
  const std::int64_t vectors = attention_padded(run.dim) / kPanel, blocks = (run.pairs + kLanePairs - 1) / kLanePairs;
  const std::int64_t with_one_more = run.pairs % blocks, pairs = run.pairs / blocks;
  const auto parts_of = [&](std::int64_t count) {
    return vectors / lane_vectors(count) + vectors % lane_vectors(count);
  };
  const std::int64_t parts = with_one_more * parts_of(pairs + 1) + (blocks - with_one_more) * parts_of(pairs);
  std::int64_t part = 0;
  for (std::int64_t block = 0, first = 0; block < blocks; ++block) {
    const std::int64_t count = (run.pairs - first + blocks - block - 1) / (blocks - block);
    for_pair_count<kLanePairs>(static_cast<int>(count), [&](auto pairs) {
      constexpr int kCount = decltype(pairs)::count, kVectors = lane_vectors(kCount);
      std::int64_t v = 0;
      for (; v + kVectors <= vectors; v += kVectors, ++part)
        weigh_kept<kCount, kVectors>(run, first, v * kPanel, ahead, part, parts);
      if constexpr (kVectors > 1)
        for (; v < vectors; ++v, ++part) weigh_kept<kCount, 1>(run, first, v * kPanel, ahead, part, parts);
    });
    first += count;
  }
}

// Some ordinals of the tile, whose values lie at `values`. A pair without a finite largest score may weigh anything:
// nobody asks for its sums.
template <typename Kv>
inline void weigh_lanes_of(const TilePairs& pairs, const PairLanes& lanes, const KeyRange& some,
                           const typename Kv::Stored* values, std::int64_t stride, const SlotsAhead& ahead) {
  const AttentionRows& rows = pairs.rows;
  const std::int64_t group = pairs.shape.group, dim = pairs.shape.dim;
  const auto seen_by = [&](std::int64_t r) { return pairs.context(rows.rows[r]).within(some.first, some.last); };
  for (std::int64_t r = 0; r < rows.row_count;) {
    const KeyRange seen = seen_by(r);
    std::int64_t end = r + 1;
    for (; end < rows.row_count; ++end)
      if (const KeyRange next = seen_by(end); next.first != seen.first || next.last != seen.last) break;
    if (!seen.empty())
      weigh_run<Kv>(
          {lanes.of(seen.first) + r * group, lanes.width, pairs.sums() + r * group * attention_sum_floats(dim),
           (end - r) * group, dim, values + (seen.first - some.first) * stride, stride, seen.count()},
          ahead);
    r = end;
  }
}

template <typename Kv>
void weigh_stored_lanes(const TilePairs& pairs, const PairLanes& lanes, const KeyRange& all) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.v);
  const std::int64_t beginning = pairs.beginning();
  memory.for_each_run(beginning + all.first, beginning + all.last,
                      [&](std::int64_t first, std::int64_t count, const typename Kv::Stored* values) {
                        const KeyRange some{first - beginning, first - beginning + count};
                        weigh_lanes_of<Kv>(pairs, lanes, some, values, memory.slot_size,
                                           SlotsAhead(memory, pairs, {first, first + count}));
                      });
}

template <typename Kv, int kVectors>
void weigh_widened_lanes(const TilePairs& pairs, const PairLanes& lanes, const KeyRange& all, float* values) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.v);
  const std::int64_t beginning = pairs.beginning();
  for (std::int64_t first = all.first; first < all.last; first += kWidenedValues) {
    const KeyRange some{first, smaller(first + kWidenedValues, all.last)},
        at{beginning + some.first, beginning + some.last};
    widen_run<kVectors>(memory, at.first, at.last, values);
    weigh_lanes_of<KvF32>(pairs, lanes, some, values, attention_padded(pairs.shape.dim), SlotsAhead(memory, pairs, at));
  }
}

template <typename Kv, int kVectors>
void weigh_lanes(const TilePairs& pairs, const PairLanes& lanes, const KeyRange& all, float* values) {
  if constexpr (kWeighsStored) {
    weigh_stored_lanes<Kv>(pairs, lanes, all);
  } else {
    weigh_widened_lanes<Kv, kVectors>(pairs, lanes, all, values);
  }
}

}  // namespace
}  // namespace espalier::cpu
