// Attention of many pairs where lanes are keys: some keys are turned once for all pairs, so that dot16 ends with plain
// additions; and where the denominators of sixteen pairs are lanes. simd_avx2.h or simd_avx512.h must be included
// before. Internal linkage.
#pragma once

#include "device/cpu/attention_few_folded.h"
#include "device/cpu/attention_sums.h"

namespace espalier::cpu {
namespace {

// Partial sums of dot16 of P pairs, each for G times sixteen keys.
template <int P, int G>
struct LanesOfKeys {
  F32 of[P][G];
};

template <int P, int G>
[[gnu::always_inline]] inline LanesOfKeys<P, G> add(const LanesOfKeys<P, G>& a, const LanesOfKeys<P, G>& b) {
  LanesOfKeys<P, G> sums;
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) sums.of[p][g] = add(a.of[p][g], b.of[p][g]);
  return sums;
}

// Sixteen keys turned: at [16 d] stand the elements d of all of them. kVectors: of a head, 0: it is not known.
template <int kVectors, int P, int G>
struct TurnedKeys {
  const float* keys;
  const float* const* q;
  std::int64_t vectors;  // of a head

  // Lane l of dot16. The first product needs no zero to be added to: the sign of a score of zero is lost in the
  // softmax.
  [[gnu::always_inline]] LanesOfKeys<P, G> lane(int l) const {
    LanesOfKeys<P, G> sums;
    const std::int64_t count = kVectors > 0 ? kVectors : vectors;
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t d = i * kPanel + l;
      F32 k[G];
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) {
        k[g] = load(keys + (g * count * kPanel + d) * kPanel);
        keep(k[g]);
      }
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const F32 x = broadcast(q[p][d]);
#pragma GCC unroll 4
        for (int g = 0; g < G; ++g) sums.of[p][g] = i == 0 ? mul(x, k[g]) : fma(x, k[g], sums.of[p][g]);
      }
    }
    return sums;
  }
  // Lanes l, l + 4, l + 8 and l + 12: halves of eight and of four added.
  [[gnu::always_inline]] LanesOfKeys<P, G> four_lanes(int l) const {
    LanesOfKeys<P, G> even = lane(l);
    even = add(even, lane(l + 8));
    const LanesOfKeys<P, G> odd = lane(l + 4);
    return add(even, add(odd, lane(l + 12)));
  }
};

template <int kVectors, int G>
class TurnedScores {
 public:
  TurnedScores(const AttentionShape& shape, const float* keys)
      : scale_(broadcast(shape.scale)), keys_(keys), vectors_(shape.dim / kPanel) {}

  void add(const float* q, float* scores) {
    if (waiting_.add(q, scores)) flush();
  }
  void flush() {
    for_pair_count<kTurnedPairs>(waiting_.size, [this](auto pairs) { this->template score<decltype(pairs)::count>(); });
    waiting_.size = 0;
  }

 private:
  template <int P>
  void score() {
    const TurnedKeys<kVectors, P, G> keys{keys_, waiting_.q, vectors_};
    LanesOfKeys<P, G> sums[4];
#pragma GCC unroll 1
    for (int l = 0; l < 4; ++l) sums[l] = keys.four_lanes(l);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) {
        const F32 even = espalier::cpu::add(sums[0].of[p][g], sums[2].of[p][g]);
        const F32 odd = espalier::cpu::add(sums[1].of[p][g], sums[3].of[p][g]);
        store(waiting_.scores[p] + g * kPanel, mul(scale_, espalier::cpu::add(even, odd)));
      }
  }

  F32 scale_;
  const float* keys_;
  std::int64_t vectors_;
  WaitingPairs<kTurnedPairs> waiting_;
};

// Keys or values of positions [first, last), widened one after the other. kVectors: of a head, 0: it is not known.
template <int kVectors, typename Kv>
inline void widen_run(const HeadMemory<Kv>& memory, std::int64_t first, std::int64_t last, float* to) {
  const std::int64_t dim = kVectors > 0 ? kVectors * kPanel : memory.dim;
  memory.for_each_run(first, last, [&](std::int64_t, std::int64_t count, const typename Kv::Stored* from) {
    for (std::int64_t i = 0; i < count; ++i, from += memory.slot_size, to += attention_padded(dim))
      widen<Kv>(from, dim, to);
  });
}

// Sixteen widened keys, the missing ones with any numbers.
inline void turn_keys(const float* widened, std::int64_t dim, float* keys) {
  for (std::int64_t d = 0; d < dim; d += 4) {
    F32 columns[4];
    load_columns(widened + d, dim, columns);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) store(keys + (d + i) * kPanel, columns[i]);
  }
}

// Keys and values of the next tile, fetched while this one is computed: so many with each row of each `step` keys that
// all of them have come by the end.
template <typename Kv>
class TileAhead {
 public:
  TileAhead(const TilePairs& pairs, const HeadMemory<Kv>& keys, const HeadMemory<Kv>& values, std::int64_t step)
      : keys_(keys), values_(values), at_once_((step + pairs.rows.row_count - 1) / pairs.rows.row_count) {
    TilePairs next = pairs;
    ++next.tile;
    const KeyRange seen = next.context_of_all();
    first_ = next.beginning() + seen.first;
    last_ = next.beginning() + seen.last;
  }

  void fetch_some() {
    const std::int64_t last = smaller(first_ + at_once_, last_);
    keys_.for_each_run(first_, last, [&](std::int64_t, std::int64_t count, const typename Kv::Stored* run) {
      const auto* const key = reinterpret_cast<const char*>(run);
      const auto* const value = reinterpret_cast<const char*>(values_.base + (run - keys_.base));
      const std::int64_t size = keys_.slot_size * sizeof *run, bytes = keys_.dim * sizeof *run;
      for (std::int64_t at = 0; at < count * size; at += size)
        for (std::int64_t line = at; line < at + bytes; line += 64) {
          prefetch_far(key + line);
          prefetch_far(value + line);
        }
    });
    first_ = larger(first_, last);
  }

 private:
  const HeadMemory<Kv>&keys_, &values_;
  std::int64_t at_once_, first_, last_;  // positions
};

static_assert(2 * kTurnedGroups * kPanel <= kKeyChunk);

// Context ordinals [first, first + 16 G).
template <typename Kv, int kVectors, int G>
inline void score_turned(const TilePairs& pairs, std::int64_t first, const float* widened, float* keys,
                         TileAhead<Kv>& ahead) {
  const std::int64_t size = kPanel * pairs.shape.dim;
  for (int g = 0; g < G; ++g) turn_keys(widened + g * size, pairs.shape.dim, keys + g * size);
  TurnedScores<kVectors, G> batch(pairs.shape, keys);
  for (std::int64_t r = 0; r < pairs.rows.row_count; ++r) {
    if (!pairs.context(pairs.rows.rows[r]).within(first, first + G * kPanel).empty())
      pairs.for_each_pair(r, [&](const Pair& pair) { batch.add(pair.q, pair.scores + first); });
    ahead.fetch_some();
  }
  batch.flush();
}

template <typename Kv, int kVectors>
void score_many(const TilePairs& pairs, const KeyRange& all, float* keys) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.k), values(pairs, pairs.shape.v);
  constexpr std::int64_t kKeys = kTurnedGroups * kPanel;
  TileAhead<Kv> ahead(pairs, memory, values, kKeys);
  float* const widened = keys + kKeys * pairs.shape.dim;
  for (std::int64_t first = all.first; first < all.last; first += kKeys) {
    const std::int64_t begin = pairs.beginning() + first, count = smaller(kKeys, all.last - first);
    widen_run<kVectors>(memory, begin, begin + count, widened);
    if (count > kPanel) {
      score_turned<Kv, kVectors, kTurnedGroups>(pairs, first, widened, keys, ahead);
    } else {
      score_turned<Kv, kVectors, 1>(pairs, first, widened, keys, ahead);
    }
  }
}

// Up to sixteen pairs that follow each other: their scores to weights exp(s - largest), and the sums of these, a pair
// to a lane. Where a pair sees no key its weight is zero, which leaves a denominator as it is.
class SixteenDenominators {
 public:
  explicit SixteenDenominators(std::int64_t dim) : dim_(dim) { keep(zero_); }

  void add(const Pair& pair, const KeyRange& seen) {
    if (size_ == 0) begin(pair);
    largest_[size_] = largest_score(pair.scores + seen.first, seen.count());
    largest_of(pair, dim_) = largest_[size_];
    for (std::int64_t i = 0; i < attention_padded(dim_); i += kPanel) store(pair.sums + i, zero_);
    if (!seen.empty()) by_any_ = {smaller(by_any_.first, seen.first), larger(by_any_.last, seen.last)};
    by_all_ = by_all_.within(seen.first, seen.last);
    seen_[size_] = seen;
    if (++size_ == kPanel) flush();
  }
  void flush() {
    if (size_ == 0) return;
    F32 sums = broadcast(0.0f);
    for (std::int64_t first = by_any_.first / kPanel * kPanel; first < by_any_.last; first += kPanel) {
      if (by_all_.first <= first && first + kPanel <= by_all_.last) {
        int p = 0;
        for (; p + kSoftmaxPairs <= size_; p += kSoftmaxPairs) weigh<kSoftmaxPairs>(p, first);
        for (; p < size_; ++p) weigh<1>(p, first);
      } else {
        for (int p = 0; p < size_; ++p) store(scores(p, first), weights_of_seen(p, first));
      }
      for (std::int64_t key = first; key < first + kPanel; key += 4) add_four(scores(0, key), sums);
    }
    float denominators[kPanel];
    store(denominators, sums);
    for (int p = 0; p < size_; ++p) denominators_[p * attention_sum_floats(dim_)] = denominators[p];
    size_ = 0;
  }

 private:
  void begin(const Pair& pair) {
    scores_ = pair.scores;
    denominators_ = &denominator_of(pair, dim_);
    by_any_ = {kTileKeys, 0};
    by_all_ = {0, kTileKeys};
  }
  float* scores(int p, std::int64_t first) const { return scores_ + p * kScoreStride + first; }
  template <int N>
  [[gnu::always_inline]] void weigh(int first_pair, std::int64_t first) const {
    F32 x[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) x[i] = sub(load(scores(first_pair + i, first)), broadcast(largest_[first_pair + i]));
    exp_below_88(x);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) store(scores(first_pair + i, first), x[i]);
  }
  F32 weights_of_seen(int p, std::int64_t first) const {
    const KeyRange some = seen_[p].within(first, first + kPanel);
    const F32 zero = broadcast(0.0f);
    if (some.empty()) return zero;
    const F32 weights = exp_f32(sub(load(scores(p, first)), broadcast(largest_[p])));
    return select_first(some.first - first, zero, select_first(some.last - first, weights, zero));
  }
  [[gnu::always_inline]] static void add_four(const float* weights, F32& sums) {
    F32 keys[4];
    load_columns(weights, kScoreStride, keys);
#pragma GCC unroll 4
    for (const F32& key : keys) sums = espalier::cpu::add(sums, key);
  }

  std::int64_t dim_;
  F32 zero_ = broadcast(0.0f);  // kept, or g++ would call memset for a few vectors
  int size_ = 0;
  float* scores_ = nullptr;  // of the first pair
  float largest_[kPanel];
  float* denominators_ = nullptr;
  KeyRange seen_[kPanel];
  KeyRange by_any_, by_all_;
};

inline void softmax_many(const TilePairs& pairs) {
  SixteenDenominators denominators(pairs.shape.dim);
  for (std::int64_t r = 0; r < pairs.rows.row_count; ++r)
    pairs.for_each_pair(r, [&](const Pair& pair) { denominators.add(pair, pairs.seen(pairs.rows.rows[r])); });
  denominators.flush();
}

template <typename Kv>
using FewSums = PairBatch<Kv, kFewPairs, kFewVectors, true>;

// Pairs that follow each other and see the same `keys` values, `stride` floats from one to the next.
struct PairRun {
  const float* weights;  // of the first pair
  float* sums;
  std::int64_t pairs, dim;
  const float* values;
  std::int64_t stride, keys;
};

// Adds V vectors from dimension d on to the sums of P pairs, of which `first` is the first.
template <int P, int V>
inline void weigh_kept(const PairRun& run, std::int64_t first, std::int64_t d) {
  const std::int64_t sums_stride = attention_sum_floats(run.dim);
  const float* const weights = run.weights + first * kScoreStride;
  float* const sums = run.sums + first * sums_stride + d;
  F32 acc[P][V];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) acc[p][i] = load(sums + p * sums_stride + i * kPanel);
  const float* values = run.values + d;
  for (std::int64_t key = 0; key < run.keys; ++key, values += run.stride) {
    F32 value[V];
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) {
      value[i] = load(values + i * kPanel);
      keep(value[i]);
    }
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const F32 weight = broadcast(weights[p * kScoreStride + key]);
#pragma GCC unroll 8
      for (int i = 0; i < V; ++i) acc[p][i] = fma(weight, value[i], acc[p][i]);
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) store(sums + p * sums_stride + i * kPanel, acc[p][i]);
}

inline void weigh_run(const PairRun& run) {
  const std::int64_t width = attention_padded(run.dim);
  for (std::int64_t first = 0; first < run.pairs; first += kWeighedPairs)
    for_pair_count<kWeighedPairs>(static_cast<int>(smaller(kWeighedPairs, run.pairs - first)), [&](auto pairs) {
      constexpr int kCount = decltype(pairs)::count;
      std::int64_t d = 0;
      for (; d + kWeighedVectors * kPanel <= width; d += kWeighedVectors * kPanel)
        weigh_kept<kCount, kWeighedVectors>(run, first, d);
      for (; d < width; d += kPanel) weigh_kept<kCount, 1>(run, first, d);
    });
}

// Ordinals [first, last) of the tile, whose values lie at `values`. A pair without a finite largest score may weigh
// anything: nobody asks for its sums.
inline void weigh_many_of(const TilePairs& pairs, std::int64_t first, std::int64_t last, const float* values) {
  const AttentionRows& rows = pairs.rows;
  const std::int64_t group = pairs.shape.group, width = attention_padded(pairs.shape.dim);
  const auto seen_by = [&](std::int64_t r) { return pairs.context(rows.rows[r]).within(first, last); };
  for (std::int64_t r = 0; r < rows.row_count;) {
    const KeyRange seen = seen_by(r);
    std::int64_t end = r + 1;
    for (; end < rows.row_count; ++end)
      if (const KeyRange next = seen_by(end); next.first != seen.first || next.last != seen.last) break;
    if (!seen.empty())
      weigh_run({pairs.scores + r * group * kScoreStride + seen.first,
                 pairs.sums() + r * group * attention_sum_floats(pairs.shape.dim), (end - r) * group, pairs.shape.dim,
                 values + (seen.first - first) * width, width, seen.count()});
    r = end;
  }
}

template <typename Kv>
void weigh_many(const TilePairs& pairs, const KeyRange& all, float* values) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.v);
  const std::int64_t beginning = pairs.beginning();
  for (std::int64_t first = all.first; first < all.last; first += kKeyChunk) {
    const std::int64_t last = smaller(first + kKeyChunk, all.last);
    for_vectors(pairs.shape.dim, [&](auto vectors) {
      widen_run<decltype(vectors)::count>(memory, beginning + first, beginning + last, values);
    });
    weigh_many_of(pairs, first, last, values);
  }
  weigh_tails<PairBatch<KvF32, kFewPairs, kFewVectors, false>, Kv>(pairs, values);
}

}  // namespace
}  // namespace espalier::cpu
