// Attention over the vector type of a simd_*.h, which must be included before. Internal linkage.
//
// A unit of work is one tile of 128 ordinals for all rows and query heads ("pairs") of one kv head: K and V of the tile
// are read once. Scores of few pairs: lanes are dimensions, as dot16 wants; sixteen keys end their sums together.
// Scores of many pairs: a vector holds four dimensions of four keys, put side by side once for all pairs; half of the
// additions that end dot16 then need no shuffles. Weighted sums: lanes are dimensions, keys in the order of the
// contract, and the denominator runs beside them.
#pragma once

#include "device/cpu/kernels.h"
#include "device/cpu/row_kernels.h"

namespace espalier::cpu {
namespace {

inline std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
inline std::int64_t larger(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

struct KvF16 {
  using Stored = std::uint16_t;
  static F32 get(const Stored* p) { return load_f16(p); }
};
struct KvBf16 {
  using Stored = std::uint16_t;
  static F32 get(const Stored* p) { return load_bf16(p); }
};
struct KvF32 {
  using Stored = float;
  static F32 get(const Stored* p) { return load(p); }
};

// Ordinals [first, last) of a tile, counted from its beginning.
struct KeyRange {
  std::int64_t first;
  std::int64_t last;
  bool empty() const { return first >= last; }
  std::int64_t count() const { return larger(last - first, 0); }
  KeyRange within(std::int64_t begin, std::int64_t end) const { return {larger(first, begin), smaller(last, end)}; }
};

// A row and a query head, with what they have of one tile.
struct Pair {
  const float* q;
  float* scores;
  float* sums;
};

// The pairs of one kv head, and what they see of one tile.
struct TilePairs {
  const AttentionShape& shape;
  const AttentionRows& rows;
  std::int64_t kv_head;
  std::int64_t tile;  // counted from the first of the rows
  float* scores;      // [pairs, kScoreStride]

  std::int64_t count() const { return rows.row_count * shape.group; }
  std::int64_t beginning() const { return (rows.first_tile + tile) * kTileKeys; }
  float* sums() const {
    return rows.sums + (tile * shape.kv_heads + kv_head) * count() * attention_sum_floats(shape.dim);
  }

  KeyRange inside(std::int64_t begin, std::int64_t end) const {
    return KeyRange{begin - beginning(), end - beginning()}.within(0, kTileKeys);
  }
  KeyRange context(const AttentionRow& row) const { return inside(row.begin, row.end); }
  KeyRange tail(const AttentionRow& row) const { return inside(row.tail_begin, row.tail_end); }
  // Both: the tail begins where the context ends.
  KeyRange seen(const AttentionRow& row) const { return inside(row.begin, row.tail_end); }
  KeyRange context_of_all() const {
    KeyRange all{kTileKeys, 0};
    for (std::int64_t r = 0; r < rows.row_count; ++r) {
      const KeyRange seen = context(rows.rows[r]);
      if (!seen.empty()) all = {smaller(all.first, seen.first), larger(all.last, seen.last)};
    }
    return all;
  }

  // Calls body(pair) for the query heads of row r.
  template <typename Body>
  void for_each_pair(std::int64_t r, const Body& body) const {
    const std::int64_t first = r * shape.group;
    Pair pair{rows.q + (r * shape.kv_heads + kv_head) * shape.group * shape.dim, scores + first * kScoreStride,
              sums() + first * attention_sum_floats(shape.dim)};
    for (std::int64_t h = 0; h < shape.group; ++h) {
      body(pair);
      pair.q += shape.dim, pair.scores += kScoreStride, pair.sums += attention_sum_floats(shape.dim);
    }
  }
};

// One head of K or V in its stored type.
template <typename Kv>
struct HeadMemory {
  using Stored = typename Kv::Stored;
  const Stored* base;
  std::int64_t slot_size;
  const std::int32_t* blocks;
  std::int64_t block_size;
  std::int64_t dim;

  HeadMemory(const TilePairs& pairs, const void* memory)
      : base(static_cast<const Stored*>(memory) + pairs.kv_head * pairs.shape.dim),
        slot_size(pairs.shape.kv_heads * pairs.shape.dim),
        blocks(pairs.rows.blocks),
        block_size(pairs.shape.block_size),
        dim(pairs.shape.dim) {}

  const Stored* at_slot(std::int64_t slot) const { return base + slot * slot_size; }

  // Calls body(first of the run, how many slots, where the run begins) for positions [first, last).
  template <typename Body>
  void for_each_run(std::int64_t first, std::int64_t last, const Body& body) const {
    while (first < last) {
      // Positions are int32 in the tables; to divide wider integers takes three times as long.
      const std::uint32_t block = static_cast<std::uint32_t>(first) / static_cast<std::uint32_t>(block_size);
      const std::int64_t inside = first - block * block_size, count = smaller(last - first, block_size - inside);
      body(first, count, at_slot(blocks[block] * block_size + inside));
      first += count;
    }
  }

  // Where positions [first, last) lie, as many as there are.
  std::int64_t list(std::int64_t first, std::int64_t last, const Stored** at) const {
    std::int64_t listed = 0;
    for_each_run(first, last, [&](std::int64_t, std::int64_t count, const Stored* run) {
      for (std::int64_t i = 0; i < count; ++i) at[listed++] = run + i * slot_size;
    });
    return listed;
  }
};

// What a head needs of the next tile, fetched while this one is computed: for every sixteen keys the sixteen one tile
// behind them, and of these some with each row, because a burst fills the queue of reads, and then everything waits.
template <typename Kv>
class NextTile {
 public:
  NextTile(const TilePairs& pairs, const HeadMemory<Kv>& keys, const HeadMemory<Kv>& values)
      : keys_(keys), values_(values), with_row_((kPanel + pairs.rows.row_count - 1) / pairs.rows.row_count) {
    TilePairs next = pairs;
    ++next.tile;
    beginning_ = next.beginning();
    seen_ = next.context_of_all();
  }

  void begin_sixteen(std::int64_t first) {
    const KeyRange some = seen_.within(first, first + kPanel);
    count_ = keys_.list(beginning_ + some.first, beginning_ + some.last, at_);
    fetched_ = 0;
  }
  void fetch_with_row() {
    constexpr std::int64_t kLine = 64 / sizeof(typename Kv::Stored);
    for (const std::int64_t last = smaller(fetched_ + with_row_, count_); fetched_ < last; ++fetched_)
      for (std::int64_t d = 0; d < keys_.dim; d += kLine) {
        prefetch_far(at_[fetched_] + d);
        prefetch_far(values_.base + (at_[fetched_] - keys_.base) + d);
      }
  }

 private:
  const HeadMemory<Kv>&keys_, &values_;
  std::int64_t with_row_, beginning_;
  KeyRange seen_;
  const typename Kv::Stored* at_[kPanel];
  std::int64_t count_ = 0, fetched_ = 0;
};

// Fewer than a vector, filled up with zeros.
template <typename Kv>
inline F32 get_first(const typename Kv::Stored* from, std::int64_t n) {
  typename Kv::Stored all[kPanel] = {};
  __builtin_memcpy(all, from, static_cast<std::size_t>(n) * sizeof *from);
  return Kv::get(all);
}

// n elements to floats, the last vector filled up with zeros.
template <typename Kv>
inline void widen(const typename Kv::Stored* from, std::int64_t n, float* to) {
  std::int64_t i = 0;
  for (; i + kPanel <= n; i += kPanel) store(to + i, Kv::get(from + i));
  if (i < n) store(to + i, get_first<Kv>(from + i, n - i));
}

// Positions [first, last), one after the other.
template <typename Kv>
inline void widen_positions(const HeadMemory<Kv>& memory, std::int64_t first, std::int64_t last, float* to) {
  memory.for_each_run(first, last, [&](std::int64_t, std::int64_t count, const typename Kv::Stored* from) {
    for (std::int64_t i = 0; i < count; ++i, from += memory.slot_size, to += attention_padded(memory.dim))
      widen<Kv>(from, memory.dim, to);
  });
}

template <typename Kv>
inline void widen_slots(const HeadMemory<Kv>& memory, const std::int32_t* slots, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i, to += attention_padded(memory.dim))
    widen<Kv>(memory.at_slot(slots[i]), memory.dim, to);
}

constexpr int kFewPairs = 4;

// --- scores

// Pairs wait here until there are kFewPairs of them, or no more: a key is then widened once for all. kVectors: of a
// head, 0: it is not known, and the last may be short.
template <typename Kv, int kVectors>
class StoredScores {
 public:
  using Stored = typename Kv::Stored;
  // count: at most sixteen. The other scores up to the sixteenth are zero.
  StoredScores(const AttentionShape& shape, const Stored* const* keys, std::int64_t count)
      : scale_(broadcast(shape.scale)), keys_(keys), count_(count), dim_(shape.dim) {}

  void add(const float* q, float* scores) {
    q_[size_] = q;
    scores_[size_++] = scores;
    if (size_ == kFewPairs) flush();
  }
  void flush() {
    switch (size_) {
      case 1: score<1>(); break;
      case 2: score<2>(); break;
      case 3: score<3>(); break;
      case 4: score<4>(); break;
      default: break;
    }
    size_ = 0;
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
      store(scores_[p], mul(scale_, end_halves(halves[p])));
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
        const F32 q = load(q_[p] + i * kPanel);
        sums[p] = kVectors > 0 && i == 0 ? mul(q, k) : fma(q, k, sums[p]);
      }
    }
    if (rest == 0) return;
    const F32 k = get_first<Kv>(key + vectors * kPanel, rest);
    for (int p = 0; p < P; ++p) sums[p] = fma(load_first(q_[p] + vectors * kPanel, rest), k, sums[p]);
  }

  F32 scale_;
  const Stored* const* keys_;
  std::int64_t count_, dim_;
  const float* q_[kFewPairs];
  float* scores_[kFewPairs];
  int size_ = 0;
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

// Pairs wait here until kScoredPairs of them want the scores of the same keys.
template <int kVectors>
class QuarteredScores {
 public:
  QuarteredScores(const AttentionShape& shape, const float* keys)
      : scale_(broadcast(shape.scale)), keys_(keys), vectors_(shape.dim / kPanel) {}

  void add(const float* q, float* scores) {
    q_[size_] = q;
    scores_[size_++] = scores;
    if (size_ == kScoredPairs) flush();
  }
  void flush() {
    switch (size_) {
      case 1: score<1>(); break;
      case 2: score<2>(); break;
      case 3: score<3>(); break;
      case 4: score<4>(); break;
      default: break;
    }
    size_ = 0;
  }

 private:
  template <int P>
  void score() {
    if constexpr (P <= kScoredPairs) {
      const QuarteredKeys<kVectors, P> keys{keys_, q_, vectors_};
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
      for (int p = 0; p < P; ++p) store(scores_[p], mul(scale_, add_halves_of_quarters(sums[p])));
    }
  }

  F32 scale_;
  const float* keys_;
  std::int64_t vectors_;
  const float* q_[kScoredPairs];
  float* scores_[kScoredPairs];
  int size_ = 0;
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

// --- softmax

// The last two floats of the sums.
inline float& largest_of(const Pair& pair, std::int64_t dim) {
  return pair.sums[attention_padded(dim)];
}
inline float& denominator_of(const Pair& pair, std::int64_t dim) {
  return pair.sums[attention_padded(dim) + 1];
}

// NaN if a score is.
inline float largest_score(const float* scores, std::int64_t n) {
  F32 most = broadcast(-kInfinity);
  Mask nan = no_lanes();
  for_each_vector(n, [&](std::int64_t i, std::int64_t count) {
    const F32 s = load_up_to(scores + i, count);  // zeros behind the end are no NaN
    nan = either(nan, is_nan(s));
    most = select_first(count, max(s, most), most);
  });
  return lane_bits(nan) != 0 ? __builtin_nanf("") : reduce_max(most);
}

inline void begin_sums(const Pair& pair, std::int64_t dim, float largest) {
  largest_of(pair, dim) = largest;
  denominator_of(pair, dim) = 0.0f;
  for (std::int64_t i = 0; i < attention_padded(dim); i += kPanel) store(pair.sums + i, broadcast(0.0f));
}

// Scores to exp(s - largest); where the largest is not finite nobody asks for them. First the largest of every pair,
// then the rest: one pair's weights would wait for its largest.
inline void softmax(const TilePairs& pairs) {
  const std::int64_t dim = pairs.shape.dim;
  const auto for_each_seen = [&](const auto& body) {
    for (std::int64_t r = 0; r < pairs.rows.row_count; ++r) {
      const KeyRange seen = pairs.seen(pairs.rows.rows[r]);
      pairs.for_each_pair(r, [&](const Pair& pair) { body(pair, pair.scores + seen.first, seen.count()); });
    }
  };
  for_each_seen(
      [&](const Pair& pair, const float* scores, std::int64_t n) { begin_sums(pair, dim, largest_score(scores, n)); });
  for_each_seen([&](const Pair& pair, float* scores, std::int64_t n) {
    const F32 largest = broadcast(largest_of(pair, dim));
    for_each_vector(n, [&](std::int64_t i, std::int64_t count) {
      store_up_to(scores + i, exp_f32(sub(load_up_to(scores + i, count), largest)), count);
    });
  });
}

// --- weighted sums

// The sums of P pairs by V vectors, in registers; with kCounts the denominators too.
template <int P, int V, bool kCounts>
struct WeighedSums {
  F32 acc[P][V];
  float den[P];

  template <int kFactor>
  [[gnu::always_inline]] void add(const Factors (&weights)[P], const F32 (&values)[V]) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 8
      for (int i = 0; i < V; ++i) acc[p][i] = fma<kFactor>(weights[p], values[i], acc[p][i]);
  }
  [[gnu::always_inline]] void count(const float* const (&weights)[P], std::int64_t key) {
    if constexpr (kCounts)
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) den[p] += weights[p][key];
  }
};

// Adds `keys` values to the sums.
template <typename Kv, int P, int V, bool kCounts>
inline void weigh_vectors(const float* const (&weights)[P], float* const (&sums)[P], float* const (&denominators)[P],
                          const typename Kv::Stored* values, std::int64_t stride, std::int64_t keys) {
  WeighedSums<P, V, kCounts> weighed;
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
    weighed.den[p] = *denominators[p];
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) weighed.acc[p][i] = load(sums[p] + i * kPanel);
  }
  F32 value[V];
  Factors factors[P];
  const auto next_value = [&] {
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) value[i] = Kv::get(values + i * kPanel);
    values += stride;
  };
  const auto load_weights = [&](std::int64_t key) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) factors[p] = load_factors(weights[p] + key);
  };
  std::int64_t j = 0;
  for (; j + 4 <= keys; j += 4) {
    load_weights(j);
    next_value(), weighed.template add<0>(factors, value), weighed.count(weights, j);
    next_value(), weighed.template add<1>(factors, value), weighed.count(weights, j + 1);
    next_value(), weighed.template add<2>(factors, value), weighed.count(weights, j + 2);
    next_value(), weighed.template add<3>(factors, value), weighed.count(weights, j + 3);
  }
  // Weights may be read behind the last one (kScoreStride), but not values.
  for (; j < keys; ++j) {
    load_weights(j);
    next_value(), weighed.template add<0>(factors, value), weighed.count(weights, j);
  }
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
    *denominators[p] = weighed.den[p];
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) store(sums[p] + i * kPanel, weighed.acc[p][i]);
  }
}

// Pairs wait here until kWeighedPairs of them see the same of some values, `stride` elements from one to the next.
template <typename Kv>
class PairBatch {
 public:
  using Stored = typename Kv::Stored;
  PairBatch(std::int64_t dim, const Stored* values, std::int64_t stride)
      : dim_(dim), values_(values), stride_(stride) {}

  // The pair sees values [first, first + count), which are ordinals of the tile from `ordinal` on. A largest score that
  // is not finite leaves nothing to weigh.
  void add(const Pair& pair, std::int64_t first, std::int64_t count, std::int64_t ordinal) {
    const float largest = largest_of(pair, dim_);
    if (!(largest < kInfinity && largest > -kInfinity)) return;
    if (size_ > 0 && (first_ != first || count_ != count)) flush();
    first_ = first, count_ = count;
    weights_[size_] = pair.scores + ordinal;
    waiting_[size_++] = pair;
    if (size_ == kWeighedPairs) flush();
  }
  void flush() {
    switch (size_) {
      case 1: weigh<1>(); break;
      case 2: weigh<2>(); break;
      case 3: weigh<3>(); break;
      case 4: weigh<4>(); break;
      default: break;
    }
    size_ = 0;
  }

 private:
  template <int P>
  void weigh() {
    if constexpr (P <= kWeighedPairs) {
      const float* weights[P];
      float *sums[P], *denominators[P];
      for (int p = 0; p < P; ++p) {
        weights[p] = weights_[p];
        sums[p] = waiting_[p].sums;
        denominators[p] = &denominator_of(waiting_[p], dim_);
      }
      const std::int64_t width = attention_padded(dim_);
      const Stored* values = values_ + first_ * stride_;
      std::int64_t i = 0;
      const auto advance = [&](std::int64_t by) {
        i += by;
        values += by;
        for (int p = 0; p < P; ++p) sums[p] += by;
      };
      // The denominators count once, with the first vectors.
      if (width >= kWeighedVectors * kPanel) {
        weigh_vectors<Kv, P, kWeighedVectors, true>(weights, sums, denominators, values, stride_, count_);
        advance(kWeighedVectors * kPanel);
      } else {
        weigh_vectors<Kv, P, 1, true>(weights, sums, denominators, values, stride_, count_);
        advance(kPanel);
      }
      while (i + kWeighedVectors * kPanel <= width) {
        weigh_vectors<Kv, P, kWeighedVectors, false>(weights, sums, denominators, values, stride_, count_);
        advance(kWeighedVectors * kPanel);
      }
      if (i + 2 * kPanel <= width) {
        weigh_vectors<Kv, P, 2, false>(weights, sums, denominators, values, stride_, count_);
        advance(2 * kPanel);
      }
      while (i < width) {
        weigh_vectors<Kv, P, 1, false>(weights, sums, denominators, values, stride_, count_);
        advance(kPanel);
      }
    }
  }

  std::int64_t dim_;
  const Stored* values_;
  std::int64_t stride_;
  std::int64_t first_ = 0, count_ = 0;
  const float* weights_[4] = {};
  Pair waiting_[4] = {};
  int size_ = 0;
};

// Ordinals [first, last) of the tile, whose values lie at `values`.
template <typename Kv>
inline void weigh_range(const TilePairs& pairs, std::int64_t first, std::int64_t last,
                        const typename Kv::Stored* values, std::int64_t stride) {
  PairBatch<Kv> batch(pairs.shape.dim, values, stride);
  for (std::int64_t r = 0; r < pairs.rows.row_count; ++r) {
    const KeyRange seen = pairs.context(pairs.rows.rows[r]).within(first, last);
    if (seen.empty()) continue;
    pairs.for_each_pair(r, [&](const Pair& pair) { batch.add(pair, seen.first - first, seen.count(), seen.first); });
  }
  batch.flush();
}

// Few pairs take the values as they are stored; more share what was widened once.
template <typename Kv>
void weigh_context(const TilePairs& pairs, const KeyRange& all, float* scratch) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.v);
  const std::int64_t dim = pairs.shape.dim, beginning = pairs.beginning();
  if (pairs.count() <= kFewPairs && dim % kPanel == 0) {
    memory.for_each_run(beginning + all.first, beginning + all.last,
                        [&](std::int64_t first, std::int64_t count, const typename Kv::Stored* values) {
                          weigh_range<Kv>(pairs, first - beginning, first - beginning + count, values,
                                          memory.slot_size);
                        });
    return;
  }
  for (std::int64_t first = all.first; first < all.last; first += kKeyChunk) {
    const std::int64_t last = smaller(first + kKeyChunk, all.last);
    widen_positions(memory, beginning + first, beginning + last, scratch);
    weigh_range<KvF32>(pairs, first, last, scratch, attention_padded(dim));
  }
}

template <typename Kv>
void weigh_tails(const TilePairs& pairs, float* values) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.v);
  const std::int64_t dim = pairs.shape.dim;
  for (std::int64_t r = 0; r < pairs.rows.row_count; ++r) {
    const AttentionRow& row = pairs.rows.rows[r];
    const KeyRange tail = pairs.tail(row);
    const std::int64_t skipped = row.tail_begin - pairs.beginning();
    for (std::int64_t first = tail.first; first < tail.last; first += kKeyChunk) {
      const std::int64_t count = smaller(kKeyChunk, tail.last - first);
      widen_slots(memory, row.tail + (first - skipped), count, values);
      PairBatch<KvF32> batch(dim, values, attention_padded(dim));
      pairs.for_each_pair(r, [&](const Pair& pair) { batch.add(pair, 0, count, first); });
      batch.flush();
    }
  }
}

template <typename Kv>
void sums_of_tile(const TilePairs& pairs, float* scratch) {
  const KeyRange all = pairs.context_of_all();
  for_vectors(pairs.shape.dim, [&](auto vectors) {
    score_context<Kv, decltype(vectors)::count>(pairs, all, scratch);
    score_tails<Kv, decltype(vectors)::count>(pairs);
  });
  softmax(pairs);
  weigh_context<Kv>(pairs, all, scratch);
  weigh_tails<Kv>(pairs, scratch);
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

// --- combination

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
  for (std::int64_t i = 0; i < pair.width; i += kPanel) {
    F32 acc = load(sum + i);
    for (std::int64_t t = 0; t < count; ++t)
      if (exists(t)) acc = fma(broadcast(weights[t]), load(pair.of(first + t) + i), acc);
    store(sum + i, acc);
  }
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
