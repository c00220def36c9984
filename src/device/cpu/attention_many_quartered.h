// Attention of many pairs where a vector holds four dimensions of four keys, put side by side once for all pairs: half
// of the additions that end dot16 then need no shuffles. Denominators run beside the weighted sums. Over the vector
// type of a simd_*.h, which must be included before. Internal linkage.
#pragma once

#include "device/cpu/attention_scores.h"
#include "device/cpu/attention_sums.h"

namespace espalier::cpu {
namespace {

// Sixteen keys in quarters of vectors: at keys[16 d + 16 g] stand, for d a multiple of four, the elements d .. d + 3 of
// the keys g, 4 + g, 8 + g and 12 + g.
constexpr std::int64_t kKeyGroups = 4;

// Partial sums of dot16, four of each of four keys, for several groups of keys and P pairs.
template <int P>
struct PartialSums {
  F32 of[kScoredGroups][P];
};

template <int P>
[[gnu::always_inline]] inline PartialSums<P> add(const PartialSums<P>& a, const PartialSums<P>& b) {
  PartialSums<P> sums;
#pragma GCC unroll 4
  for (int g = 0; g < kScoredGroups; ++g)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sums.of[g][p] = add(a.of[g][p], b.of[g][p]);
  return sums;
}

template <int kVectors, int P>
struct QuarteredKeys {
  const float* keys;
  const float* const* q;
  std::int64_t vectors;  // of a head

  // Lanes 4 c .. 4 c + 3 of dot16 for the groups from `group` on. The first product needs no zero to be added to: the
  // sign of a score of zero is lost in the softmax.
  [[gnu::always_inline]] PartialSums<P> lanes(int group, int c) const {
    PartialSums<P> sums;
    const std::int64_t count = kVectors > 0 ? kVectors : vectors;
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t d = i * kPanel + c * kKeyGroups;
      F32 of_q[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) of_q[p] = load_quarters(q[p] + d);
#pragma GCC unroll 4
      for (int g = 0; g < kScoredGroups; ++g) {
        F32 k = load(keys + (d + group + g) * kPanel);
        keep(k);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) sums.of[g][p] = i == 0 ? mul(of_q[p], k) : fma(of_q[p], k, sums.of[g][p]);
      }
    }
    return sums;
  }

  // All lanes, halves of eight and of four added.
  [[gnu::always_inline]] PartialSums<P> add_halves(int group) const {
    PartialSums<P> even = lanes(group, 0);
    even = add(even, lanes(group, 2));
    const PartialSums<P> odd = lanes(group, 1);
    return add(even, add(odd, lanes(group, 3)));
  }
};

// Of many pairs.
template <int kVectors>
class QuarteredScores {
 public:
  QuarteredScores(const AttentionShape& shape, const float* keys)
      : scale_(broadcast(shape.scale)), keys_(keys), vectors_(shape.dim / kPanel) {}

  void add(const float* q, float* scores) {
    if (waiting_.add(q, scores)) flush();
  }
  void flush() {
    for_pair_count<kScoredPairs>(waiting_.size, [this](auto pairs) { this->template score<decltype(pairs)::count>(); });
    waiting_.size = 0;
  }

 private:
  template <int P>
  void score() {
    const QuarteredKeys<kVectors, P> keys{keys_, waiting_.q, vectors_};
    F32 sums[P][kKeyGroups];
#pragma GCC unroll 1
    for (int first = 0; first < kKeyGroups; first += kScoredGroups) {
      const PartialSums<P> some = keys.add_halves(first);
#pragma GCC unroll 4
      for (int g = 0; g < kScoredGroups; ++g)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) sums[p][first + g] = some.of[g][p];
    }
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) store(waiting_.scores[p], mul(scale_, add_halves_of_quarters(sums[p])));
  }

  F32 scale_;
  const float* keys_;
  std::int64_t vectors_;
  WaitingPairs<kScoredPairs> waiting_;
};

// From places in memory, sixteen of them.
template <typename Kv>
inline void quarter_keys(const typename Kv::Stored* const (&from)[kPanel], std::int64_t dim, float* keys) {
  for (int g = 0; g < kKeyGroups; ++g)
    for (std::int64_t d = 0; d < dim; d += kPanel) {
      F32 four[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) four[i] = Kv::get(from[4 * i + g] + d);
      turn_quarters(four);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) store(keys + (d + 4 * i + g) * kPanel, four[i]);
    }
}

template <typename Kv, int kVectors>
void score_quartered(const TilePairs& pairs, const KeyRange& all, float* keys) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.k), values(pairs, pairs.shape.v);
  NextTile<Kv> next(pairs, memory, values);
  const std::int64_t beginning = pairs.beginning();
  for (std::int64_t first = all.first; first < all.last; first += kPanel) {
    const typename Kv::Stored* from[kPanel];
    const std::int64_t count = memory.list(beginning + first, beginning + smaller(first + kPanel, all.last), from);
    for (std::int64_t known = count; known < kPanel; ++known) from[known] = from[known - 1];
    quarter_keys<Kv>(from, memory.dim, keys);
    QuarteredScores<kVectors> batch(pairs.shape, keys);
    for_each_seeing_row(pairs, first, next, [&](std::int64_t r) {
      pairs.for_each_pair(r, [&](const Pair& pair) { batch.add(pair.q, pair.scores + first); });
    });
    batch.flush();
  }
}

// Values are widened once for all pairs.
template <typename Kv, int kVectors>
void sums_of_quartered(const TilePairs& pairs, const KeyRange& all, float* scratch) {
  using Batch = PairBatch<KvF32, kWeighedPairs, kWeighedVectors, true>;
  score_quartered<Kv, kVectors>(pairs, all, scratch);
  score_tails<Kv, kVectors>(pairs);
  softmax(pairs);
  weigh_widened<Batch, Kv>(pairs, all, scratch);
  weigh_tails<Batch, Kv>(pairs, scratch);
}

}  // namespace
}  // namespace espalier::cpu
