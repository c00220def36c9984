// Softmax of a tile where lanes are pairs: maxima and denominators need no shuffles, and a few exponentials run side by
// side. simd_avx2.h or simd_avx512.h must be included before. Internal linkage.
#pragma once

#include "device/cpu/attention_lane_scores.h"
#include "device/cpu/attention_sums.h"

namespace espalier::cpu {
namespace {

// The largest score of each pair, twice: for the first and the second of two keys.
inline void largest_scores(const PairLanes& lanes, float* most) {
  constexpr int kAtOnce = 4;
  const std::int64_t row = 2 * lanes.width, twos = lanes.twos();
  for (std::int64_t i = 0; i < row; i += kPanel) {
    F32 largest[kAtOnce];
    for (F32& some : largest) some = broadcast(-kInfinity);
    const float* scores = lanes.scores + i;
    std::int64_t two = 0;
    for (; two + kAtOnce <= twos; two += kAtOnce, scores += kAtOnce * row)
#pragma GCC unroll 4
      for (int k = 0; k < kAtOnce; ++k) largest[k] = max(load(scores + k * row), largest[k]);
    for (; two < twos; ++two, scores += row) largest[0] = max(load(scores), largest[0]);
    store(most + i, max(max(largest[0], largest[1]), max(largest[2], largest[3])));
  }
  for (std::int64_t p = 0; p < lanes.width; p += kOctet) {
    const Eight both = max(load_eight(most + p), load_eight(most + lanes.width + p));
    store_eight(most + p, both);
    store_eight(most + lanes.width + p, both);
  }
}

inline bool has_nan(const PairLanes& lanes, std::int64_t p) {
  for (std::int64_t i = lanes.first; i < lanes.last; ++i)
    if (lanes.of(i)[p] != lanes.of(i)[p]) return true;
  return false;
}

inline bool is_finite(float x) {
  return x < kInfinity && x > -kInfinity;
}

// Scores of N times two keys to weights exp(s - largest). most: as largest_scores wrote it.
template <int N>
[[gnu::always_inline]] inline void weigh_twos(float* scores, std::int64_t width, const float* most) {
  const std::int64_t row = 2 * width;
  for (std::int64_t i = 0; i < row; i += kPanel) {
    const F32 largest = load(most + i);
    F32 x[N];
#pragma GCC unroll 8
    for (int two = 0; two < N; ++two) x[two] = sub(load(scores + two * row + i), largest);
    exp_below_88(x);
#pragma GCC unroll 8
    for (int two = 0; two < N; ++two) store(scores + two * row + i, x[two]);
  }
}

// Adds the weights of N times two keys to the denominators, keys ascending.
template <int N>
[[gnu::always_inline]] inline void count_twos(const float* weights, std::int64_t width, float* denominators) {
  for (std::int64_t p = 0; p < width; p += kOctet) {
    Eight sum = load_eight(denominators + p);
#pragma GCC unroll 16
    for (int key = 0; key < 2 * N; ++key) sum = add(sum, load_eight(weights + key * width + p));
    store_eight(denominators + p, sum);
  }
}

// A few keys at a time, so that chains of additions run beside the exponentials of the next keys.
inline void weights_of_lanes(const PairLanes& lanes, const float* most, float* denominators) {
  const std::int64_t twos = lanes.twos(), width = lanes.width;
  for (std::int64_t p = 0; p < width; p += kOctet) store_eight(denominators + p, eight_zeros());
  float* scores = lanes.scores;
  const auto take = [&](auto count) {
    constexpr int kTwos = decltype(count)::count;
    weigh_twos<kTwos>(scores, width, most);
    count_twos<kTwos>(scores, width, denominators);
    scores += 2 * kTwos * width;
  };
  std::int64_t two = 0;
  for (; two + kTwosOfExp <= twos; two += kTwosOfExp) take(PairCount<kTwosOfExp>());
  for (; two < twos; ++two) take(PairCount<1>());
}

// A row of scores behind the last of an odd number of keys, which weighs nothing.
inline void hide_behind_last(const PairLanes& lanes) {
  if ((lanes.last - lanes.first) % 2 == 0) return;
  for (std::int64_t i = 0; i < lanes.width; ++i) lanes.of(lanes.last)[i] = -kInfinity;
}

inline void softmax_lanes(const TilePairs& pairs, const PairLanes& lanes, float* most) {
  const std::int64_t width = lanes.width, dim = pairs.shape.dim;
  float* const denominators = most + 2 * width;
  hide_behind_last(lanes);
  largest_scores(lanes, most);
  std::int64_t p = 0;
  const auto for_each = [&](const auto& body) {
    p = 0;
    for (std::int64_t r = 0; r < pairs.rows.row_count; ++r)
      pairs.for_each_pair(r, [&](const Pair& pair) { body(pair), ++p; });
  };
  for_each([&](const Pair& pair) {
    const float largest = most[p];
    largest_of(pair, dim) = !is_finite(largest) && has_nan(lanes, p) ? __builtin_nanf("") : largest;
  });
  weights_of_lanes(lanes, most, denominators);
  for_each([&](const Pair& pair) {
    // Where a score is NaN its weight is, and so is their sum.
    if (is_finite(largest_of(pair, dim)) && denominators[p] != denominators[p])
      largest_of(pair, dim) = __builtin_nanf("");
    denominator_of(pair, dim) = denominators[p];
    for (std::int64_t i = 0; i < attention_padded(dim); i += kPanel) store(pair.sums + i, broadcast(0.0f));
  });
}

}  // namespace
}  // namespace espalier::cpu
