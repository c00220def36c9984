// Attention of many pairs where lanes are pairs: a vector holds eight of them for each of two keys, so that only the
// queries are turned, dot16 ends with plain additions, and maxima and denominators need no shuffles. simd_avx2.h or
// simd_avx512.h must be included before. Internal linkage.
#pragma once

#include "device/cpu/attention_scores.h"
#include "device/cpu/attention_sums.h"

namespace espalier::cpu {
namespace {

constexpr std::int64_t kOctet = 8;           // pairs
constexpr std::int64_t kLaneKeys = 32;       // widened at a time
constexpr std::int64_t kLaneKeysAtOnce = 8;  // a multiple of the keys of any LaneScores
static_assert(kLaneKeys <= kKeyChunk && kTileKeys + kLaneKeysAtOnce <= kScoreStride);

// What the pairs of a tile share: their queries turned, and their scores by key, which become weights.
struct PairLanes {
  std::int64_t octets;
  float* q;            // [octets, dim, kOctetLanes]; behind the scores, room for the softmax
  float* scores;       // [ordinals, 8 octets]
  std::int64_t first;  // of the ordinals: a tile counts them from its beginning
  std::int64_t last;

  explicit PairLanes(const TilePairs& pairs)
      : octets((pairs.count() + kOctet - 1) / kOctet),
        q(pairs.scores + pairs.count() * kScoreStride),
        scores(q + octets * pairs.shape.dim * kOctetLanes),
        first(kTileKeys),
        last(0) {
    for (std::int64_t r = 0; r < pairs.rows.row_count; ++r) {
      const KeyRange seen = pairs.seen(pairs.rows.rows[r]);
      if (!seen.empty()) first = smaller(first, seen.first), last = larger(last, seen.last);
    }
  }
  std::int64_t width() const { return octets * kOctet; }
  std::int64_t twos() const { return (last - first + 1) / 2; }
  float* of(std::int64_t ordinal) const { return scores + (ordinal - first) * width(); }
};

inline const float* query_of(const TilePairs& pairs, std::int64_t pair) {
  const std::int64_t row = pair / pairs.shape.group, head = pair % pairs.shape.group;
  return pairs.rows.q + ((row * pairs.shape.kv_heads + pairs.kv_head) * pairs.shape.group + head) * pairs.shape.dim;
}

// Where pairs are missing the last one is taken again.
inline void turn_queries(const TilePairs& pairs, const PairLanes& lanes) {
  const std::int64_t dim = pairs.shape.dim;
  float* to = lanes.q;
  for (std::int64_t first = 0; first < pairs.count(); first += kOctet) {
    const float* rows[kOctet];
    for (std::int64_t p = 0; p < kOctet; ++p) rows[p] = query_of(pairs, smaller(first + p, pairs.count() - 1));
    for (std::int64_t d = 0; d < dim; d += 4, to += 4 * kOctetLanes) turn_octet(rows, d, to);
  }
}

// Partial sums of dot16: O times eight pairs, T times two keys.
template <int O, int T>
struct LaneSums {
  F32 of[O][T];
};
template <int O, int T>
[[gnu::always_inline]] inline LaneSums<O, T> add(const LaneSums<O, T>& a, const LaneSums<O, T>& b) {
  LaneSums<O, T> sums;
#pragma GCC unroll 4
  for (int o = 0; o < O; ++o)
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) sums.of[o][t] = add(a.of[o][t], b.of[o][t]);
  return sums;
}

// So many keys, two after two, and pairs, eight after eight. kVectors: of a head, 0: it is not known.
template <int kVectors, int O, int T>
struct LaneProducts {
  const float* keys;
  const float* q;
  std::int64_t dim;

  // Adds the products of element i + l to those before it; kFirst: there are none. The first product needs no zero to
  // be added to: the sign of a score of zero is lost in the softmax.
  template <bool kFirst>
  [[gnu::always_inline]] void add_products(int l, std::int64_t i, std::int64_t size, LaneSums<O, T>& sums) const {
    F32 k[T];
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      k[t] = broadcast_two_keys(keys + place_in_two_keys(l) + 2 * (t * size + i));
      keep(k[t]);
    }
#pragma GCC unroll 4
    for (int o = 0; o < O; ++o) {
      F32 x = load_octet(q + (o * size + i + l) * kOctetLanes);
      keep(x);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t)
        if constexpr (kFirst) {
          sums.of[o][t] = mul(x, k[t]);
        } else {
          sums.of[o][t] = fma(x, k[t], sums.of[o][t]);
        }
    }
  }
  // Lanes l and l + 8, the halves of eight added. They run side by side: each product waits for the one before.
  [[gnu::always_inline]] LaneSums<O, T> two_lanes(int l) const {
    LaneSums<O, T> even, odd;
    const std::int64_t size = kVectors > 0 ? kVectors * kPanel : dim;
    add_products<true>(l, 0, size, even);
    add_products<true>(l + 8, 0, size, odd);
#pragma GCC unroll 8
    for (std::int64_t i = kPanel; i < size; i += kPanel) {
      add_products<false>(l, i, size, even);
      add_products<false>(l + 8, i, size, odd);
    }
    return add(even, odd);
  }
  // Lanes l, l + 4, l + 8 and l + 12: halves of eight and of four added.
  [[gnu::always_inline]] LaneSums<O, T> four_lanes(int l) const {
    const LaneSums<O, T> even = two_lanes(l);
    return add(even, two_lanes(l + 4));
  }
};

// Keys or values of one head at positions [first, last), fetched one after the other while others are computed.
class SlotsAhead {
 public:
  template <typename Kv>
  SlotsAhead(const HeadMemory<Kv>& memory, const KeyRange& positions)
      : base_(reinterpret_cast<const char*>(memory.base)),
        slot_bytes_(memory.slot_size * std::int64_t{sizeof(typename Kv::Stored)}),
        bytes_(memory.dim * std::int64_t{sizeof(typename Kv::Stored)}),
        blocks_(memory.blocks),
        block_size_(memory.block_size),
        at_(positions.first),
        last_(positions.last) {}

  void fetch() {
    if (left_ == 0) {
      if (at_ >= last_) return;
      begin_run();
    }
    for (std::int64_t line = 0; line < bytes_; line += 64) prefetch_far(next_ + line);
    next_ += slot_bytes_;
    --left_;
  }

 private:
  // As far as a block goes.
  void begin_run() {
    const std::int64_t block = at_ / block_size_, inside = at_ % block_size_;
    next_ = base_ + (blocks_[block] * block_size_ + inside) * slot_bytes_;
    left_ = smaller(block_size_ - inside, last_ - at_);
    at_ += left_;
  }

  const char* base_;
  std::int64_t slot_bytes_, bytes_;
  const std::int32_t* blocks_;
  std::int64_t block_size_, at_, last_;
  std::int64_t left_ = 0;
  const char* next_ = nullptr;
};

// The positions that rows see of the next tile.
inline KeyRange next_positions(const TilePairs& pairs) {
  TilePairs next = pairs;
  ++next.tile;
  const KeyRange seen = next.context_of_all();
  return {next.beginning() + seen.first, next.beginning() + seen.last};
}

// Scores of `count` keys, which lie widened in twos, for O times eight pairs from octet o on.
template <int kVectors, int O, int T>
inline void score_octets(const TilePairs& pairs, const PairLanes& lanes, const float* keys, std::int64_t octet,
                         std::int64_t first, std::int64_t count, SlotsAhead* ahead) {
  const std::int64_t dim = pairs.shape.dim, width = lanes.width();
  const F32 scale = broadcast(pairs.shape.scale);
  float* to = lanes.of(first) + octet * kOctet;
  LaneProducts<kVectors, O, T> products{keys, lanes.q + octet * dim * kOctetLanes, dim};
  for (std::int64_t key = 0; key < count; key += 2 * T) {
    LaneSums<O, T> sums[4];
#pragma GCC unroll 1
    for (int l = 0; l < 4; ++l) {
      sums[l] = products.four_lanes(l);
      if (ahead == nullptr) continue;
      for (int i = l; i < 2 * T; i += 4) ahead->fetch();
    }
    const LaneSums<O, T> all = add(add(sums[0], sums[2]), add(sums[1], sums[3]));
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t, to += 2 * width)
#pragma GCC unroll 4
      for (int o = 0; o < O; ++o) store_by_key(to + o * kOctet, to + width + o * kOctet, mul(scale, all.of[o][t]));
    products.keys += 2 * T * dim;
  }
}

template <int kVectors>
inline void score_all_octets(const TilePairs& pairs, const PairLanes& lanes, const float* keys, std::int64_t first,
                             std::int64_t count, SlotsAhead* ahead) {
  for (std::int64_t octet = 0; octet < lanes.octets; ahead = nullptr) {
    const std::int64_t left = lanes.octets - octet;
    if (left >= 3 && left != 4) {
      score_octets<kVectors, 3, kLaneTwos>(pairs, lanes, keys, octet, first, count, ahead);
      octet += 3;
    } else if (left >= 2) {
      score_octets<kVectors, 2, kLaneTwos>(pairs, lanes, keys, octet, first, count, ahead);
      octet += 2;
    } else {
      score_octets<kVectors, 1, kLaneTwosOfOne>(pairs, lanes, keys, octet, first, count, ahead);
      ++octet;
    }
  }
}

// Keys in twos.
template <typename Kv, int kVectors>
inline void widen_twos(const HeadMemory<Kv>& memory, const typename Kv::Stored* const* from, std::int64_t count,
                       float* to) {
  const std::int64_t dim = kVectors > 0 ? kVectors * kPanel : memory.dim;
  for (std::int64_t key = 0; key < count; key += 2, to += 2 * dim)
    for (std::int64_t d = 0; d < dim; d += kPanel)
      store_two_keys(to + 2 * d, Kv::get(from[key] + d), Kv::get(from[key + 1] + d));
}

template <typename Kv, int kVectors>
void score_lanes(const TilePairs& pairs, const PairLanes& lanes, const KeyRange& all, float* keys) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.k);
  SlotsAhead ahead(memory, next_positions(pairs));
  const std::int64_t beginning = pairs.beginning();
  for (std::int64_t first = all.first; first < all.last; first += kLaneKeys) {
    const typename Kv::Stored* from[kLaneKeys];  // where keys are missing the last one is taken again
    const std::int64_t listed = memory.list(beginning + first, beginning + smaller(first + kLaneKeys, all.last), from);
    std::int64_t count = listed;
    for (; count % kLaneKeysAtOnce != 0; ++count) from[count] = from[listed - 1];
    widen_twos<Kv, kVectors>(memory, from, count, keys);
    // Only the most frequent size of a head is worth the compiler's time.
    score_all_octets<kVectors == 4 ? 4 : 0>(pairs, lanes, keys, first, count, &ahead);
  }
}

// Whether all pairs see the same, none of it in slots of its own.
inline bool all_see_alike(const TilePairs& pairs, const KeyRange& all) {
  for (std::int64_t r = 0; r < pairs.rows.row_count; ++r) {
    const KeyRange seen = pairs.context(pairs.rows.rows[r]);
    if (seen.first != all.first || seen.last != all.last || !pairs.tail(pairs.rows.rows[r]).empty()) return false;
  }
  return true;
}

// Scores of what a row does not see become minus infinity, those of its tail come from where score_tails put them.
inline void hide_and_add_tails(const TilePairs& pairs, const PairLanes& lanes) {
  std::int64_t p = 0;
  for (std::int64_t r = 0; r < pairs.rows.row_count; ++r) {
    const KeyRange context = pairs.context(pairs.rows.rows[r]), tail = pairs.tail(pairs.rows.rows[r]);
    pairs.for_each_pair(r, [&](const Pair& pair) {
      for (std::int64_t i = lanes.first; i < lanes.last; ++i) {
        if (i >= context.first && i < context.last) continue;
        lanes.of(i)[p] = i >= tail.first && i < tail.last ? pair.scores[i] : -kInfinity;
      }
      ++p;
    });
  }
}

// The weights of tails back to where weigh_tails looks for them.
inline void return_tails(const TilePairs& pairs, const PairLanes& lanes) {
  std::int64_t p = 0;
  for (std::int64_t r = 0; r < pairs.rows.row_count; ++r) {
    const KeyRange tail = pairs.tail(pairs.rows.rows[r]);
    pairs.for_each_pair(r, [&](const Pair& pair) {
      for (std::int64_t i = tail.first; i < tail.last; ++i) pair.scores[i] = lanes.of(i)[p];
      ++p;
    });
  }
}

// For two keys of all pairs: so many vectors as there are octets, the first key's pairs before the second's. most: the
// largest score of each pair, twice.
inline void largest_scores(const PairLanes& lanes, float* most) {
  const std::int64_t width = lanes.width();
  for (std::int64_t i = 0; i < 2 * width; i += kPanel) {
    F32 largest = broadcast(-kInfinity);
    const float* scores = lanes.scores + i;
    for (std::int64_t two = 0; two < lanes.twos(); ++two, scores += 2 * width) largest = max(load(scores), largest);
    store(most + i, largest);
  }
  for (std::int64_t p = 0; p < width; p += kOctet) {
    const Eight both = max(load_eight(most + p), load_eight(most + width + p));
    store_eight(most + p, both);
    store_eight(most + width + p, both);
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

// Scores to weights exp(s - largest), a column of vectors after the other.
inline void weights_of_lanes(const PairLanes& lanes, const float* most) {
  const std::int64_t row = 2 * lanes.width();
  for (std::int64_t i = 0; i < row; i += kPanel) {
    const F32 largest = load(most + i);
    float* scores = lanes.scores + i;
    for (std::int64_t two = 0; two < lanes.twos(); ++two, scores += row)
      store(scores, exp_below_88(sub(load(scores), largest)));
  }
}

// The sums of the weights of O times eight pairs, keys ascending.
template <int O>
inline void add_weights(const PairLanes& lanes, std::int64_t octet, float* sums) {
  Eight sum[O];
#pragma GCC unroll 4
  for (int o = 0; o < O; ++o) sum[o] = eight_zeros();
  const float* weights = lanes.scores + octet * kOctet;
  for (std::int64_t key = lanes.first; key < lanes.last; ++key, weights += lanes.width())
#pragma GCC unroll 4
    for (int o = 0; o < O; ++o) sum[o] = add(sum[o], load_eight(weights + o * kOctet));
#pragma GCC unroll 4
  for (int o = 0; o < O; ++o) store_eight(sums + (octet + o) * kOctet, sum[o]);
}
inline void denominators_of_lanes(const PairLanes& lanes, float* sums) {
  constexpr int kAtOnce = 4;
  for (std::int64_t octet = 0; octet < lanes.octets; octet += kAtOnce)
    for_pair_count<kAtOnce>(static_cast<int>(smaller(kAtOnce, lanes.octets - octet)),
                            [&](auto octets) { add_weights<decltype(octets)::count>(lanes, octet, sums); });
}

// A row of scores behind the last of an odd number of keys, which weighs nothing.
inline void hide_behind_last(const PairLanes& lanes) {
  if ((lanes.last - lanes.first) % 2 == 0) return;
  for (std::int64_t i = 0; i < lanes.width(); ++i) lanes.of(lanes.last)[i] = -kInfinity;
}

inline void softmax_lanes(const TilePairs& pairs, const PairLanes& lanes, float* most) {
  const std::int64_t width = lanes.width(), dim = pairs.shape.dim;
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
  weights_of_lanes(lanes, most);
  denominators_of_lanes(lanes, denominators);
  for_each([&](const Pair& pair) {
    // Where a score is NaN its weight is, and so is their sum.
    if (is_finite(largest_of(pair, dim)) && denominators[p] != denominators[p])
      largest_of(pair, dim) = __builtin_nanf("");
    denominator_of(pair, dim) = denominators[p];
    for (std::int64_t i = 0; i < attention_padded(dim); i += kPanel) store(pair.sums + i, broadcast(0.0f));
  });
}

// Pairs that follow each other and see the same `keys` values, `stride` floats from one to the next.
struct PairRun {
  const float* weights;  // of the first pair
  std::int64_t width;    // from key to key
  float* sums;
  std::int64_t pairs, dim;
  const float* values;
  std::int64_t stride, keys;
};

// Adds V vectors from dimension d on to the sums of P pairs, of which `first` is the first.
template <int P, int V, typename Ahead>
inline void weigh_kept(const PairRun& run, std::int64_t first, std::int64_t d, const Ahead& fetch) {
  const std::int64_t sums_stride = attention_sum_floats(run.dim);
  const float* weights = run.weights + first;
  float* const sums = run.sums + first * sums_stride + d;
  F32 acc[P][V];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) acc[p][i] = load(sums + p * sums_stride + i * kPanel);
  const float* values = run.values + d;
  for (std::int64_t key = 0; key < run.keys; ++key, values += run.stride, weights += run.width) {
    F32 value[V];
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) {
      value[i] = load(values + i * kPanel);
      keep(value[i]);
    }
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      F32 weight = broadcast(weights[p]);
      keep(weight);
#pragma GCC unroll 8
      for (int i = 0; i < V; ++i) acc[p][i] = fma(weight, value[i], acc[p][i]);
    }
    fetch(key);
  }
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) store(sums + p * sums_stride + i * kPanel, acc[p][i]);
}

inline void weigh_run(const PairRun& run, SlotsAhead& ahead) {
  const std::int64_t width = attention_padded(run.dim);
  // As many values are fetched as are weighed, with a few keys each.
  const std::int64_t blocks = (run.pairs + kLanePairs - 1) / kLanePairs;
  for (std::int64_t first = 0, b = 0; first < run.pairs; first += kLanePairs, ++b) {
    std::int64_t due = b;
    for_pair_count<kLanePairs>(static_cast<int>(smaller(kLanePairs, run.pairs - first)), [&](auto pairs) {
      constexpr int kCount = decltype(pairs)::count;
      const auto fetch = [&](std::int64_t key) {
        if (key != due) return;
        ahead.fetch();
        due += blocks;
      };
      const auto rest = [](std::int64_t) {};
      std::int64_t d = 0;
      if (width >= kLaneVectors * kPanel)
        weigh_kept<kCount, kLaneVectors>(run, first, 0, fetch), d += kLaneVectors * kPanel;
      for (; d + kLaneVectors * kPanel <= width; d += kLaneVectors * kPanel)
        weigh_kept<kCount, kLaneVectors>(run, first, d, rest);
      if constexpr (kLaneVectors > 1)
        for (; d < width; d += kPanel) weigh_kept<kCount, 1>(run, first, d, rest);
    });
  }
}

// Ordinals [first, last) of the tile, whose values lie at `values`. A pair without a finite largest score may weigh
// anything: nobody asks for its sums.
inline void weigh_lanes_of(const TilePairs& pairs, const PairLanes& lanes, std::int64_t first, std::int64_t last,
                           const float* values, SlotsAhead& ahead) {
  const AttentionRows& rows = pairs.rows;
  const std::int64_t group = pairs.shape.group, width = attention_padded(pairs.shape.dim);
  const auto seen_by = [&](std::int64_t r) { return pairs.context(rows.rows[r]).within(first, last); };
  for (std::int64_t r = 0; r < rows.row_count;) {
    const KeyRange seen = seen_by(r);
    std::int64_t end = r + 1;
    for (; end < rows.row_count; ++end)
      if (const KeyRange next = seen_by(end); next.first != seen.first || next.last != seen.last) break;
    if (!seen.empty())
      weigh_run({lanes.of(seen.first) + r * group, lanes.width(),
                 pairs.sums() + r * group * attention_sum_floats(pairs.shape.dim), (end - r) * group, pairs.shape.dim,
                 values + (seen.first - first) * width, width, seen.count()},
                ahead);
    r = end;
  }
}

// Positions [first, last), one after the other.
template <int kVectors, typename Kv>
inline void widen_run(const HeadMemory<Kv>& memory, std::int64_t first, std::int64_t last, float* to) {
  const std::int64_t dim = kVectors > 0 ? kVectors * kPanel : memory.dim;
  memory.for_each_run(first, last, [&](std::int64_t, std::int64_t count, const typename Kv::Stored* from) {
    for (std::int64_t i = 0; i < count; ++i, from += memory.slot_size, to += dim)
#pragma GCC unroll 4
      for (std::int64_t d = 0; d < dim; d += kPanel) store(to + d, Kv::get(from + d));
  });
}

template <typename Kv, int kVectors>
void weigh_lanes(const TilePairs& pairs, const PairLanes& lanes, const KeyRange& all, float* values) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.v);
  const std::int64_t beginning = pairs.beginning();
  SlotsAhead ahead(memory, next_positions(pairs));
  for (std::int64_t first = all.first; first < all.last; first += kKeyChunk) {
    const std::int64_t last = smaller(first + kKeyChunk, all.last);
    widen_run<kVectors>(memory, beginning + first, beginning + last, values);
    weigh_lanes_of(pairs, lanes, first, last, values, ahead);
  }
}

// Lanes that no pair fills cost as much as others.
inline bool fills_lanes(std::int64_t pairs) {
  return 4 * pairs >= 3 * ((pairs + kOctet - 1) / kOctet * kOctet);
}

template <typename Kv, int kVectors>
void sums_of_lanes(const TilePairs& pairs, const KeyRange& all, float* scratch) {
  const PairLanes lanes(pairs);
  const bool alike = all_see_alike(pairs, all);
  turn_queries(pairs, lanes);
  score_lanes<Kv, kVectors>(pairs, lanes, all, scratch);
  if (!alike) {
    score_tails<Kv, kVectors>(pairs);
    hide_and_add_tails(pairs, lanes);
  }
  softmax_lanes(pairs, lanes, lanes.q);
  weigh_lanes<Kv, kVectors>(pairs, lanes, all, scratch);
  if (alike) return;
  return_tails(pairs, lanes);
  weigh_tails<PairBatch<KvF32, kWeighedPairs, kWeighedVectors, false>, Kv>(pairs, scratch);
}

}  // namespace
}  // namespace espalier::cpu
