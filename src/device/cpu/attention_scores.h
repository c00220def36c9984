// Scores of a tile for few pairs, or heads that fill no vectors: lanes are dimensions, as dot16 wants; sixteen keys end
// their sums together. Internal linkage.
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

// Whether scores of few pairs are summed as attention_few_folded.h does. They fetch the keys of the next tile only; its
// values are fetched while values are weighed.
template <typename Kv, int kVectors>
constexpr bool kFolded = false;

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

template <typename Kv, int kVectors>
void score_stored(const TilePairs& pairs, const KeyRange& all) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.k), values(pairs, pairs.shape.v);
  NextTile<Kv> next(pairs, memory, values);
  const std::int64_t beginning = pairs.beginning();
  for (std::int64_t first = all.first; first < all.last; first += kPanel) {
    const typename Kv::Stored* from[kPanel];
    const std::int64_t count = memory.list(beginning + first, beginning + smaller(first + kPanel, all.last), from);
    StoredScores<Kv, kVectors> batch(pairs.shape, from, count);
    for_each_seeing_row(pairs, first, next, [&](std::int64_t r) {
      pairs.for_each_pair(r, [&](const Pair& pair) { batch.add(pair.q, pair.scores + first); });
    });
    batch.flush();
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
