// Scores of a tile where lanes are pairs: a vector holds two neighbouring lanes of dot16 for each of several pairs, so
// that keys are taken as they lie, two floats at a time, and of the additions that end dot16 only the last needs a
// shuffle. simd_avx2.h or simd_avx512.h must be included before. Internal linkage.
#pragma once

#include "device/cpu/attention_tiles.h"

namespace espalier::cpu {
namespace {

constexpr std::int64_t kOctet = 8;      // pairs: scores have room for whole ones
constexpr std::int64_t kLaneKeys = 48;  // widened at a time
constexpr int kMostVectors = sizeof kDotKeys / sizeof *kDotKeys;

// What the pairs of a tile share: their queries turned, and their scores by key, which become weights.
struct PairLanes {
  std::int64_t vectors;
  float* q;            // [vectors, dim / 2] of TwoLanes; behind the scores, room for the softmax
  float* scores;       // [ordinals, width]; lanes that no pair fills hold anything
  std::int64_t first;  // of the ordinals: a tile counts them from its beginning
  std::int64_t last;
  std::int64_t width;

  explicit PairLanes(const TilePairs& pairs)
      : vectors((pairs.count() + kPairsOfTwo - 1) / kPairsOfTwo),
        q(pairs.scores + pairs.count() * kScoreStride),
        scores(q + vectors * pairs.shape.dim * kPairsOfTwo),
        first(kTileKeys),
        last(0),
        width((pairs.count() + kOctet - 1) / kOctet * kOctet) {
    for (std::int64_t r = 0; r < pairs.rows.row_count; ++r) {
      const KeyRange seen = pairs.seen(pairs.rows.rows[r]);
      if (!seen.empty()) first = smaller(first, seen.first), last = larger(last, seen.last);
    }
  }
  std::int64_t twos() const { return (last - first + 1) / 2; }
  float* of(std::int64_t ordinal) const { return scores + (ordinal - first) * width; }
};

// Where pairs are missing the last one is taken again.
inline void turn_queries(const TilePairs& pairs, const PairLanes& lanes) {
  const float* waiting[kPairsOfTwo];
  int size = 0;
  float* to = lanes.q;
  const auto turn = [&] {
    for (; size < kPairsOfTwo; ++size) waiting[size] = waiting[size - 1];
    for (std::int64_t d = 0; d < pairs.shape.dim; d += 4, to += 4 * kPairsOfTwo) turn_twos(waiting, d, to);
    size = 0;
  };
  for (std::int64_t r = 0; r < pairs.rows.row_count; ++r)
    pairs.for_each_pair(r, [&](const Pair& pair) {
      waiting[size++] = pair.q;
      if (size == kPairsOfTwo) turn();
    });
  if (size > 0) turn();
}

// Dot16 of V vectors of pairs and K keys, in registers. kVectors: of a head, 0: it is not known.
template <int kVectors, int V, int K>
struct LaneDots {
  TwoLanes of[K][V];

  // Element `at`. The first product needs no zero to be added to: the sign of a score of zero is lost in the softmax.
  template <bool kFirst>
  [[gnu::always_inline]] void multiply(const float* keys, const float* q, std::int64_t size, std::int64_t at) {
    TwoLanes x[V];
#pragma GCC unroll 6
    for (int v = 0; v < V; ++v) x[v] = kept(load_twos(q + (v * size + at) * kPairsOfTwo));
#pragma GCC unroll 6
    for (int k = 0; k < K; ++k) {
      const TwoLanes two = kept(broadcast_two(keys + k * size + at));
#pragma GCC unroll 6
      for (int v = 0; v < V; ++v)
        if constexpr (kFirst) {
          of[k][v] = mul(two, x[v]);
        } else {
          of[k][v] = fma(two, x[v], of[k][v]);
        }
    }
  }
  [[gnu::always_inline]] void add_all(const LaneDots& others) {
#pragma GCC unroll 6
    for (int k = 0; k < K; ++k)
#pragma GCC unroll 6
      for (int v = 0; v < V; ++v) of[k][v] = add(others.of[k][v], of[k][v]);
  }
  // Two lanes from `lane` on and those eight behind them, side by side, since each product waits for the one before.
  [[gnu::always_inline]] void sum_halves(const float* keys, const float* q, std::int64_t dim, int lane) {
    const std::int64_t size = kVectors > 0 ? kVectors * kPanel : dim;
    LaneDots others;
    multiply<true>(keys, q, size, lane);
    others.template multiply<true>(keys, q, size, lane + 8);
#pragma GCC unroll 8
    for (std::int64_t at = lane + kPanel; at < size; at += kPanel) {
      multiply<false>(keys, q, size, at);
      others.template multiply<false>(keys, q, size, at + 8);
    }
    add_all(others);
  }
  // Halves of eight, of four and of two are added as soon as both are there, so that few wait.
  [[gnu::always_inline]] void sum_quarters(const float* keys, const float* q, std::int64_t dim, int lane) {
    Waiting others;
    sum_halves(keys, q, dim, lane);
    wait_all(others);
    sum_halves(keys, q, dim, lane + 4);
    add_all(others);
  }
  [[gnu::always_inline]] void sum(const float* keys, const float* q, std::int64_t dim) {
    Waiting others;
    sum_quarters(keys, q, dim, 0);
    wait_all(others);
    sum_quarters(keys, q, dim, 2);
    add_all(others);
  }

 private:
  static constexpr int kLanes = 2 * kPairsOfTwo;
  struct Waiting {
    alignas(64) float of[K][V][kLanes];
  };
  // g++ would add later what the sums are made of, and find no registers: it must believe that they change.
  [[gnu::always_inline]] void wait_all(Waiting& others) {
    constexpr bool kInRegisters = K * V <= kWaitingDots;
#pragma GCC unroll 6
    for (int k = 0; k < K; ++k)
#pragma GCC unroll 6
      for (int v = 0; v < V; ++v) {
        if constexpr (kInRegisters) keep(of[k][v]);
        store_twos(others.of[k][v], of[k][v]);
      }
    if constexpr (!kInRegisters) asm("" : "+m"(others));
  }
  [[gnu::always_inline]] void add_all(const Waiting& others) {
#pragma GCC unroll 6
    for (int k = 0; k < K; ++k)
#pragma GCC unroll 6
      for (int v = 0; v < V; ++v) of[k][v] = add(load_twos(others.of[k][v]), of[k][v]);
  }
};

// Keys that lie widened, the queries of some vectors of pairs, and where their scores go.
struct LaneScores {
  const float* keys;
  std::int64_t count;  // behind the last of them more are read, and scores written that nobody reads
  const float* q;
  std::int64_t dim;
  float scale;
  float* to;
  std::int64_t width;

  // The last addition of dot16 wants two vectors: of two keys, or, where there are two, of one key.
  template <int V>
  [[gnu::always_inline]] void end(std::int64_t key, const TwoLanes (&first)[V], const TwoLanes (&second)[V]) const {
    float* const at = to + key * width;
#pragma GCC unroll 6
    for (int v = 0; v < V; ++v)
      store_sums_of_two(at + v * kPairsOfTwo, at + width + v * kPairsOfTwo, first[v], second[v], scale);
  }
  [[gnu::always_inline]] void end(std::int64_t key, const TwoLanes (&sums)[2]) const {
    float* const at = to + key * width;
    store_sums_of_two(at, at + kPairsOfTwo, sums[0], sums[1], scale);
  }

  // A function of its own, so that nothing else wants registers.
  template <int kVectors, int V>
  [[gnu::noinline]] void score(const SlotsAhead& ahead, std::int64_t due, std::int64_t parts) const {
    constexpr int K = kDotKeys[V - 1];
    const float* some = keys;
    for (std::int64_t key = 0; key < count; key += K, some += K * dim) {
      LaneDots<kVectors, V, K> dots;
      dots.sum(some, q, dim);
      if constexpr (V == 2) {
#pragma GCC unroll 6
        for (int k = 0; k < K; ++k) end(key + k, dots.of[k]);
      } else {
#pragma GCC unroll 6
        for (int k = 0; k < K; k += 2) end(key + k, dots.of[k], dots.of[k + 1]);
      }
      while (due < key + K) due = ahead.fetch(due, parts);
    }
  }
};

// Vectors of pairs three by three, or two by two where one would be left.
template <int kVectors>
inline void score_all_lanes(const PairLanes& lanes, LaneScores some, const SlotsAhead& ahead) {
  const std::int64_t blocks = (lanes.vectors + kMostVectors - 1) / kMostVectors, dim = some.dim;
  for (std::int64_t block = 0, left = lanes.vectors; block < blocks; ++block) {
    const std::int64_t vectors = (left + blocks - block - 1) / (blocks - block);
    for_pair_count<kMostVectors>(static_cast<int>(vectors), [&](auto count) {
      some.template score<kVectors, decltype(count)::count>(ahead, block, blocks);
    });
    some.q += vectors * dim * kPairsOfTwo, some.to += vectors * kPairsOfTwo;
    left -= vectors;
  }
}

template <typename Kv, int kVectors>
void score_lanes(const TilePairs& pairs, const PairLanes& lanes, const KeyRange& all, float* keys) {
  static_assert(kLaneKeys % 12 == 0 && kLaneKeys + 5 <= kKeyChunk && kTileKeys + 5 <= kScoreStride);
  const HeadMemory<Kv> memory(pairs, pairs.shape.k);
  const std::int64_t beginning = pairs.beginning();
  for (std::int64_t first = all.first; first < all.last; first += kLaneKeys) {
    const KeyRange some{beginning + first, beginning + smaller(first + kLaneKeys, all.last)};
    widen_run<kVectors>(memory, some.first, some.last, keys);
    // Only the most frequent size of a head is worth the compiler's time.
    score_all_lanes<kVectors == 4 ? 4 : 0>(
        lanes, {keys, some.count(), lanes.q, pairs.shape.dim, pairs.shape.scale, lanes.of(first), lanes.width},
        SlotsAhead(memory, pairs, some));
  }
}

}  // namespace
}  // namespace espalier::cpu
