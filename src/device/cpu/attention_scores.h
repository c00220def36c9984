// Scores of a tile. Those of few pairs: lanes are dimensions, as dot16 wants; sixteen keys end their sums together. Of
// many pairs: a vector holds four dimensions of four keys, put side by side once for all pairs; half of the additions
// that end dot16 then need no shuffles. Internal linkage.
#pragma once

#include "device/cpu/attention_tiles.h"

namespace espalier::cpu {
namespace {

// Pairs wait here until kMost of them want the scores of the same sixteen keys.
template <int kMost>
struct WaitingPairs {
  const float* q[kMost];
  float* scores[kMost];
  int size = 0;

  bool add(const float* of_q, float* to) {
    q[size] = of_q;
    scores[size++] = to;
    return size == kMost;
  }
};

// Of few pairs: a key is widened once for all that wait. kVectors: of a head, 0: it is not known, and the last may be
// short.
template <typename Kv, int kVectors>
class StoredScores {
 public:
  using Stored = typename Kv::Stored;
  // count: at most sixteen. The other scores up to the sixteenth are zero.
  StoredScores(const AttentionShape& shape, const Stored* const* keys, std::int64_t count)
      : scale_(broadcast(shape.scale)), keys_(keys), count_(count), dim_(shape.dim) {}

  void add(const float* q, float* scores) {
    if (waiting_.add(q, scores)) flush();
  }
  void flush() {
    for_pair_count<kFewPairs>(waiting_.size, [this](auto pairs) { this->template score<decltype(pairs)::count>(); });
    waiting_.size = 0;
  }

 private:
  template <int P>
  void score() {
    Halves halves[P][kPanel];
    for (std::int64_t k = 0; k < count_; ++k) {
      F32 sums[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) sums[p] = broadcast(0.0f);
      add_products(keys_[k], sums);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) halves[p][k] = begin_halves(sums[p]);
    }
    for (int p = 0; p < P; ++p) {
      for (std::int64_t k = count_; k < kPanel; ++k) halves[p][k] = begin_halves(broadcast(0.0f));
      store(waiting_.scores[p], mul(scale_, end_halves(halves[p])));
    }
  }

  // The first of a known number of products replaces the zero it would be added to: the sign of a score of zero is lost
  // in the softmax.
  template <int P>
  [[gnu::always_inline]] void add_products(const Stored* key, F32 (&sums)[P]) const {
    const std::int64_t vectors = kVectors > 0 ? kVectors : dim_ / kPanel, rest = kVectors > 0 ? 0 : dim_ % kPanel;
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < vectors; ++i) {
      F32 k = Kv::get(key + i * kPanel);
      keep(k);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const F32 q = load(waiting_.q[p] + i * kPanel);
        sums[p] = kVectors > 0 && i == 0 ? mul(q, k) : fma(q, k, sums[p]);
      }
    }
    if (rest == 0) return;
    const F32 k = get_first<Kv>(key + vectors * kPanel, rest);
    for (int p = 0; p < P; ++p) sums[p] = fma(load_first(waiting_.q[p] + vectors * kPanel, rest), k, sums[p]);
  }

  F32 scale_;
  const Stored* const* keys_;
  std::int64_t count_, dim_;
  WaitingPairs<kFewPairs> waiting_;
};

// The vectors of a head as a type, 0: any number.
template <int kCount>
struct Vectors {
  static constexpr int count = kCount;
};
template <typename Body>
inline void for_vectors(std::int64_t dim, const Body& body) {
  switch (dim) {
    case 4 * kPanel: return body(Vectors<4>());
    case 8 * kPanel: return body(Vectors<8>());
    default: return body(Vectors<0>());
  }
}

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

// Calls body(row) for every row that sees one of the sixteen ordinals from `first` on. Scores of others of them are
// never read back.
template <typename Kv, typename Body>
inline void for_each_seeing_row(const TilePairs& pairs, std::int64_t first, NextTile<Kv>& next, const Body& body) {
  next.begin_sixteen(first);
  for (std::int64_t r = 0; r < pairs.rows.row_count; ++r) {
    if (!pairs.context(pairs.rows.rows[r]).within(first, first + kPanel).empty()) body(r);
    next.fetch_with_row();
  }
}

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
void score_context(const TilePairs& pairs, const KeyRange& all, float* keys) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.k), values(pairs, pairs.shape.v);
  NextTile<Kv> next(pairs, memory, values);
  const std::int64_t beginning = pairs.beginning();
  const bool quartered = pairs.count() > kFewPairs && pairs.shape.dim % kPanel == 0;
  for (std::int64_t first = all.first; first < all.last; first += kPanel) {
    const typename Kv::Stored* from[kPanel];
    const std::int64_t count = memory.list(beginning + first, beginning + smaller(first + kPanel, all.last), from);
    const auto score = [&](auto batch) {
      for_each_seeing_row(pairs, first, next, [&](std::int64_t r) {
        pairs.for_each_pair(r, [&](const Pair& pair) { batch.add(pair.q, pair.scores + first); });
      });
      batch.flush();
    };
    if (quartered) {
      for (std::int64_t known = count; known < kPanel; ++known) from[known] = from[known - 1];
      quarter_keys<Kv>(from, memory.dim, keys);
      score(QuarteredScores<kVectors>(pairs.shape, keys));
    } else {
      score(StoredScores<Kv, kVectors>(pairs.shape, from, count));
    }
  }
}

template <typename Kv, int kVectors>
void score_tails(const TilePairs& pairs) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.k);
  for (std::int64_t r = 0; r < pairs.rows.row_count; ++r) {
    const AttentionRow& row = pairs.rows.rows[r];
    const KeyRange tail = pairs.tail(row);
    const std::int64_t skipped = row.tail_begin - pairs.beginning();
    for (std::int64_t first = tail.first; first < tail.last; first += kPanel) {
      const typename Kv::Stored* from[kPanel];
      const std::int64_t count = smaller(kPanel, tail.last - first);
      for (std::int64_t k = 0; k < count; ++k) from[k] = memory.at_slot(row.tail[first - skipped + k]);
      StoredScores<Kv, kVectors> batch(pairs.shape, from, count);
      pairs.for_each_pair(r, [&](const Pair& pair) { batch.add(pair.q, pair.scores + first); });
      batch.flush();
    }
  }
}

}  // namespace
}  // namespace espalier::cpu
