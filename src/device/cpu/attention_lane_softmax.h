// Softmax of a tile where lanes are pairs: maxima and denominators need no shuffles, and a few exponentials run side by
// side. simd_avx2.h or simd_avx512.h must be included before. Internal linkage.
#pragma once

#include "device/cpu/attention_lane_scores.h"
#include "device/cpu/attention_sums.h"

namespace espalier::cpu {
namespace {

// The largest score of each pair, from two keys to the next two.
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
  for (std::int64_t p = 0; p < lanes.width; p += kOctet)
    store_eight(most + p, max(load_eight(most + p), load_eight(most + lanes.width + p)));
}

inline bool has_nan(const PairLanes& lanes, std::int64_t p) {
  for (std::int64_t i = lanes.first; i < lanes.last; ++i)
    if (lanes.of(i)[p] != lanes.of(i)[p]) return true;
  return false;
}

inline bool is_finite(float x) {
  return x < kInfinity && x > -kInfinity;
}

// Scores of an octet to weights exp(s - largest), N times two keys, and these added to `sum`, keys ascending.
template <int N>
[[gnu::always_inline]] inline float* weigh_twos(float* scores, std::int64_t width, F32 largest, Eight& sum) {
  F32 x[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i)
    x[i] = sub(join(load_eight(scores + 2 * i * width), load_eight(scores + (2 * i + 1) * width)), largest);
  exp_below_88(x);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    const Eight first = first_eight(x[i]), second = second_eight(x[i]);
    sum = add(add(sum, first), second);
    store_eight(scores + 2 * i * width, first);
    store_eight(scores + (2 * i + 1) * width, second);
  }
  return scores + 2 * N * width;
}

inline void weights_of_lanes(const PairLanes& lanes, const float* most, float* denominators) {
  const std::int64_t twos = lanes.twos();
  for (std::int64_t p = 0; p < lanes.width; p += kOctet) {
    const F32 largest = join(load_eight(most + p), load_eight(most + p));
    Eight sum = eight_zeros();
    float* scores = lanes.scores + p;
    std::int64_t two = 0;
    for (; two + kTwosOfExp <= twos; two += kTwosOfExp)
      scores = weigh_twos<kTwosOfExp>(scores, lanes.width, largest, sum);
    for (; two < twos; ++two) scores = weigh_twos<1>(scores, lanes.width, largest, sum);
    store_eight(denominators + p, sum);
  }
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
