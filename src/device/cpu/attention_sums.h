// Softmax and weighted sums of a tile: lanes are dimensions, keys in the order of the contract, and the denominator
// runs beside them. Internal linkage.
#pragma once

#include "device/cpu/attention_tiles.h"

namespace espalier::cpu {
namespace {

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

// Values in memory, `stride` elements from one to the next. With kFetched those that are `ahead` elements behind them
// are fetched meanwhile.
template <typename Kv, bool kFetched>
struct Values {
  const typename Kv::Stored* at;
  std::int64_t stride;
  std::int64_t ahead = 0;

  template <int V>
  [[gnu::always_inline]] void next(F32 (&value)[V]) {
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) value[i] = Kv::get(at + i * kPanel);
    if constexpr (kFetched) fetch<V * kPanel>(at + ahead);
    at += stride;
  }
};

// Adds `keys` values to the sums.
template <bool kCounts, int V, int P, typename Values>
inline void weigh_vectors(const float* const (&weights)[P], float* const (&sums)[P], float* const (&denominators)[P],
                          Values values, std::int64_t keys) {
  WeighedSums<P, V, kCounts> weighed;
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
    weighed.den[p] = *denominators[p];
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) weighed.acc[p][i] = load(sums[p] + i * kPanel);
  }
  F32 value[V];
  Factors factors[P];
  const auto next_value = [&] { values.next(value); };
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

// Pairs wait here until kPairs of them see the same of some values, `stride` elements from one to the next. Their sums
// run side by side, kVectors vectors of each; with kCounts the denominators too.
template <typename Kv, int kPairs, int kVectors, bool kCounts, bool kFetched = false>
class PairBatch {
 public:
  using Of = Values<Kv, kFetched>;
  static constexpr bool kFetches = kFetched;
  PairBatch(std::int64_t dim, const Of& values) : dim_(dim), values_(values) {}

  // The pair sees values [first, first + count), which are ordinals of the tile from `ordinal` on. A largest score that
  // is not finite leaves nothing to weigh.
  void add(const Pair& pair, std::int64_t first, std::int64_t count, std::int64_t ordinal) {
    const float largest = largest_of(pair, dim_);
    if (!(largest < kInfinity && largest > -kInfinity)) return;
    if (size_ > 0 && (first_ != first || count_ != count)) flush();
    first_ = first, count_ = count;
    weights_[size_] = pair.scores + ordinal;
    waiting_[size_++] = pair;
    if (size_ == kPairs) flush();
  }
  void flush() {
    for_pair_count<kPairs>(size_, [this](auto pairs) { this->template weigh<decltype(pairs)::count>(); });
    size_ = 0;
  }

 private:
  template <int P>
  void weigh() {
    const float* weights[P];
    float *sums[P], *denominators[P];
    for (int p = 0; p < P; ++p) {
      weights[p] = weights_[p];
      sums[p] = waiting_[p].sums;
      denominators[p] = &denominator_of(waiting_[p], dim_);
    }
    const std::int64_t width = attention_padded(dim_);
    Of values = values_;
    values.at += first_ * values.stride;
    std::int64_t i = 0;
    const auto advance = [&](std::int64_t by) {
      i += by;
      values.at += by;
      for (int p = 0; p < P; ++p) sums[p] += by;
    };
    // The denominators count once, with the first vectors.
    if (width >= kVectors * kPanel) {
      weigh_vectors<kCounts, kVectors>(weights, sums, denominators, values, count_);
      advance(kVectors * kPanel);
    } else {
      weigh_vectors<kCounts, 1>(weights, sums, denominators, values, count_);
      advance(kPanel);
    }
    while (i + kVectors * kPanel <= width) {
      weigh_vectors<false, kVectors>(weights, sums, denominators, values, count_);
      advance(kVectors * kPanel);
    }
    if (i + 2 * kPanel <= width) {
      weigh_vectors<false, 2>(weights, sums, denominators, values, count_);
      advance(2 * kPanel);
    }
    while (i < width) {
      weigh_vectors<false, 1>(weights, sums, denominators, values, count_);
      advance(kPanel);
    }
  }

  std::int64_t dim_;
  Of values_;
  std::int64_t first_ = 0, count_ = 0;
  const float* weights_[kPairs] = {};
  Pair waiting_[kPairs] = {};
  int size_ = 0;
};

// Ordinals [first, last) of the tile, whose values lie at `values`.
template <typename Batch>
inline void weigh_range(const TilePairs& pairs, std::int64_t first, std::int64_t last,
                        const typename Batch::Of& values) {
  Batch batch(pairs.shape.dim, values);
  for (std::int64_t r = 0; r < pairs.rows.row_count; ++r) {
    const KeyRange seen = pairs.context(pairs.rows.rows[r]).within(first, last);
    if (seen.empty()) continue;
    pairs.for_each_pair(r, [&](const Pair& pair) { batch.add(pair, seen.first - first, seen.count(), seen.first); });
  }
  batch.flush();
}

// Few pairs take the values as they are stored, more share what was widened once. Those that no value of the next tile
// follows are apart: what nobody needs is not fetched.
template <typename Batch, typename Kv>
void weigh_stored(const TilePairs& pairs, const KeyRange& all) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.v);
  const std::int64_t beginning = pairs.beginning(), end = pairs.end_of_context();
  memory.for_each_run(
      beginning + all.first, beginning + all.last,
      [&](std::int64_t first, std::int64_t count, const typename Kv::Stored* values) {
        const std::int64_t size = memory.slot_size, ordinal = first - beginning,
                           followed = Batch::kFetches ? smaller(larger(end - kTileKeys - first, 0), count) : count;
        weigh_range<Batch>(pairs, ordinal, ordinal + followed, {values, size, memory.to_next_tile(first, end)});
        weigh_range<Batch>(pairs, ordinal + followed, ordinal + count, {values + followed * size, size});
      });
}

template <typename Batch, typename Kv>
void weigh_widened(const TilePairs& pairs, const KeyRange& all, float* values) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.v);
  const std::int64_t beginning = pairs.beginning();
  for (std::int64_t first = all.first; first < all.last; first += kKeyChunk) {
    const std::int64_t last = smaller(first + kKeyChunk, all.last);
    widen_positions(memory, beginning + first, beginning + last, values);
    weigh_range<Batch>(pairs, first, last, {values, attention_padded(pairs.shape.dim)});
  }
}

template <typename Batch, typename Kv>
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
      Batch batch(dim, {values, attention_padded(dim)});
      pairs.for_each_pair(r, [&](const Pair& pair) { batch.add(pair, 0, count, first); });
      batch.flush();
    }
  }
}

}  // namespace
}  // namespace espalier::cpu
