// Attention over the vector type of a simd_*.h, which must be included before. Internal linkage.
//
// Keys and values of a stretch of context are widened to float once and used by all rows and query heads of a tile.
// Scores: lanes are dimensions, as dot16 wants; sixteen keys end their sums together. Weighted sums: lanes are
// dimensions, keys in the order of the contract, and the denominator runs beside them.
#pragma once

#include "device/cpu/kernels.h"
#include "device/cpu/row_kernels.h"

namespace espalier::cpu {
namespace {

inline std::int64_t padded_dim(std::int64_t dim) {
  return (dim + kPanel - 1) / kPanel * kPanel;
}

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

// n elements to floats, the last vector filled up with zeros.
template <typename Kv>
inline void widen(const typename Kv::Stored* from, std::int64_t n, float* to) {
  std::int64_t i = 0;
  for (; i + kPanel <= n; i += kPanel) store(to + i, Kv::get(from + i));
  if (i == n) return;
  typename Kv::Stored rest[kPanel] = {};
  __builtin_memcpy(rest, from + i, static_cast<std::size_t>(n - i) * sizeof *from);
  store(to + i, Kv::get(rest));
}

// Dimensions [begin, end) of one head of context columns [column, column + count), one after the other.
template <typename Kv>
inline void widen_context(const AttentionShape& shape, const AttentionTile& tile, const void* memory,
                          std::int64_t kv_head, std::int64_t column, std::int64_t count, std::int64_t begin,
                          std::int64_t end, float* to) {
  const std::int64_t slot_size = shape.kv_heads * shape.dim, width = padded_dim(end - begin);
  const auto* const base = static_cast<const typename Kv::Stored*>(memory) + kv_head * shape.dim + begin;
  while (count > 0) {
    const std::int64_t position = tile.first + column, inside = position % shape.block_size;
    const std::int64_t run = smaller(count, shape.block_size - inside);
    const std::int64_t slot = tile.blocks[position / shape.block_size] * shape.block_size + inside;
    const auto* from = base + slot * slot_size;
    for (std::int64_t i = 0; i < run; ++i, from += slot_size, to += width) {
      prefetch(from + kPanel * slot_size);
      widen<Kv>(from, end - begin, to);
    }
    column += run;
    count -= run;
  }
}

// --- scores
// -------------------------------------------------------------------------------------------------------------

// dot16 of q with the key at k, before its lanes are added. kVectors: full vectors of a head, 0: as many as dim has.
template <int kVectors>
inline F32 lanes_of_dot(const float* q, const float* k, std::int64_t dim) {
  F32 sum = broadcast(0.0f);
  if constexpr (kVectors > 0) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) sum = fma(load(q + i * kPanel), load(k + i * kPanel), sum);
  } else {
    std::int64_t i = 0;
    for (; i + kPanel <= dim; i += kPanel) sum = fma(load(q + i), load(k + i), sum);
    if (i < dim) sum = select_first(dim - i, fma(load_first(q + i, dim - i), load(k + i), sum), sum);
  }
  return sum;
}

template <int kVectors>
inline F32 sixteen_scores(const float* q, const float* keys, const AttentionShape& shape) {
  const std::int64_t width = padded_dim(shape.dim);
  const F32 dots = add_halves_of_16([&](int i) { return lanes_of_dot<kVectors>(q, keys + i * width, shape.dim); });
  return mul(broadcast(shape.scale), dots);
}

// Scores of sixteen widened keys for every row that sees one of them; columns a row does not see are never read back.
template <int kVectors>
void score_keys(const AttentionShape& shape, const AttentionTile& tile, std::int64_t kv_head, std::int64_t column,
                const float* keys) {
  const std::int64_t heads = shape.kv_heads * shape.group;
  for (std::int64_t r = 0; r < tile.row_count; ++r) {
    if (tile.rows[r].end <= column || tile.rows[r].begin >= column + kPanel) continue;
    for (std::int64_t h = kv_head * shape.group; h < (kv_head + 1) * shape.group; ++h) {
      const std::int64_t pair = r * heads + h;
      store(tile.scores + pair * tile.score_stride + column,
            sixteen_scores<kVectors>(tile.q + pair * shape.dim, keys, shape));
    }
  }
}

inline void score_keys_of_dim(const AttentionShape& shape, const AttentionTile& tile, std::int64_t kv_head,
                              std::int64_t column, const float* keys) {
  if (shape.dim == 64) {
    score_keys<4>(shape, tile, kv_head, column, keys);
  } else if (shape.dim == 128) {
    score_keys<8>(shape, tile, kv_head, column, keys);
  } else {
    score_keys<0>(shape, tile, kv_head, column, keys);
  }
}

template <typename Kv>
void scores_of_chunk(const AttentionShape& shape, const AttentionTile& tile, std::int64_t kv_head, std::int64_t chunk,
                     float* scratch) {
  const std::int64_t end = smaller(tile.columns, (chunk + 1) * kKeyChunk);
  for (std::int64_t column = chunk * kKeyChunk; column < end; column += kPanel) {
    // Behind the last key the scratch holds what was there before: floats that no row reads.
    widen_context<Kv>(shape, tile, shape.k, kv_head, column, smaller(kPanel, end - column), 0, shape.dim, scratch);
    score_keys_of_dim(shape, tile, kv_head, column, scratch);
  }
}

template <typename Kv>
void scores_of_tails(const AttentionShape& shape, const AttentionTile& tile, std::int64_t kv_head, float* scratch) {
  const std::int64_t heads = shape.kv_heads * shape.group;
  const auto* const memory = static_cast<const typename Kv::Stored*>(shape.k);
  for (std::int64_t r = 0; r < tile.row_count; ++r)
    for (std::int64_t i = 0; i < tile.rows[r].tail_count; ++i) {
      const std::int64_t slot = tile.rows[r].tail[i];
      widen<Kv>(memory + (slot * shape.kv_heads + kv_head) * shape.dim, shape.dim, scratch);
      for (std::int64_t h = kv_head * shape.group; h < (kv_head + 1) * shape.group; ++h) {
        const std::int64_t pair = r * heads + h;
        tile.scores[pair * tile.score_stride + tile.tail_column + i] =
            shape.scale * add_halves(lanes_of_dot<0>(tile.q + pair * shape.dim, scratch, shape.dim));
      }
    }
}

// --- softmax
// ------------------------------------------------------------------------------------------------------------

struct Largest {
  F32 value = broadcast(-kInfinity);
  Mask nan = no_lanes();

  void see(const float* scores, std::int64_t n) {
    for_each_vector(n, [&](std::int64_t i, std::int64_t count) {
      const F32 s = load_up_to(scores + i, count);  // zeros behind the end are no NaN
      nan = either(nan, is_nan(s));
      value = select_first(count, max(s, value), value);
    });
  }
};

inline void exponentiate(float* scores, std::int64_t n, F32 largest) {
  for_each_vector(n, [&](std::int64_t i, std::int64_t count) {
    store_up_to(scores + i, exp_f32(sub(load_up_to(scores + i, count), largest)), count);
  });
}

void attention_exp(const AttentionTile& tile, std::int64_t heads, std::int64_t row, std::int64_t head) {
  const AttentionRow& keys = tile.rows[row];
  const std::int64_t pair = row * heads + head, context = keys.end > keys.begin ? keys.end - keys.begin : 0;
  float* const line = tile.scores + pair * tile.score_stride;
  Largest largest;
  largest.see(line + keys.begin, context);
  largest.see(line + tile.tail_column, keys.tail_count);
  const float value = reduce_max(largest.value);
  const bool valid = lane_bits(largest.nan) == 0 && value < kInfinity && value > -kInfinity;
  tile.valid[pair] = valid ? 1 : 0;
  if (!valid) return;
  exponentiate(line + keys.begin, context, broadcast(value));
  exponentiate(line + tile.tail_column, keys.tail_count, broadcast(value));
}

// --- weighted sums
// --------------------------------------------------------------------------------------------------------

// Unnormalised sums of the rows and heads of a tile ("pairs"): per pair `width` floats and sixteen equal denominators.
struct Sums {
  float* memory;
  std::int64_t width;
  float* of(std::int64_t pair) const { return memory + pair * (width + kPanel); }
  float* denominator_of(std::int64_t pair) const { return of(pair) + width; }
};

// Adds `keys` widened values, P pairs by V vectors at a time: the sums stay in registers.
template <int P, int V>
inline void weigh_vectors(const float* const (&weights)[P], float* const (&sums)[P], float* const (&denominators)[P],
                          const float* values, std::int64_t width, std::int64_t keys, bool counts) {
  F32 acc[P][V], den[P];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    den[p] = load(denominators[p]);
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) acc[p][i] = load(sums[p] + i * kPanel);
  }
  for (std::int64_t j = 0; j < keys; ++j, values += width) {
    F32 v[V];
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) v[i] = load(values + i * kPanel);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const F32 e = broadcast(weights[p][j]);
      den[p] = add(den[p], e);
#pragma GCC unroll 4
      for (int i = 0; i < V; ++i) acc[p][i] = fma(e, v[i], acc[p][i]);
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    if (counts) store(denominators[p], den[p]);
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) store(sums[p] + i * kPanel, acc[p][i]);
  }
}

// Adds `keys` widened values to P pairs that all see them. The denominators count once, with the last vectors.
template <int P>
inline void weigh_pairs(const float* const (&weights)[P], const Sums& sums, const std::int64_t (&pairs)[P],
                        const float* values, std::int64_t keys) {
  float *sum[P], *denominator[P];
  for (int p = 0; p < P; ++p) {
    sum[p] = sums.of(pairs[p]);
    denominator[p] = sums.denominator_of(pairs[p]);
  }
  constexpr int kWide = 4;
  std::int64_t i = 0;
  const auto advance = [&](std::int64_t by) {
    i += by;
    for (int p = 0; p < P; ++p) sum[p] += by;
  };
  while (i + kWide * kPanel <= sums.width) {
    const bool last = i + kWide * kPanel == sums.width;
    weigh_vectors<P, kWide>(weights, sum, denominator, values + i, sums.width, keys, last);
    advance(kWide * kPanel);
  }
  if (i + 2 * kPanel <= sums.width) {
    weigh_vectors<P, 2>(weights, sum, denominator, values + i, sums.width, keys, i + 2 * kPanel == sums.width);
    advance(2 * kPanel);
  }
  if (i < sums.width) weigh_vectors<P, 1>(weights, sum, denominator, values + i, sums.width, keys, true);
}

// A pair and the keys of a chunk it sees.
struct SeenKeys {
  const float* weights;
  std::int64_t pair;
  std::int64_t first;
  std::int64_t count;
};

// Pairs wait here until kWeighedPairs of them see the same keys: at most four.
class PairBatch {
 public:
  PairBatch(const Sums& sums, const float* values) : sums_(sums), values_(values) {}

  void add(const SeenKeys& seen) {
    if (size_ > 0 && (waiting_[0].first != seen.first || waiting_[0].count != seen.count)) flush();
    waiting_[size_++] = seen;
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
    const float* weights[P];
    std::int64_t pairs[P];
    for (int p = 0; p < P; ++p) {
      weights[p] = waiting_[p].weights + waiting_[0].first;
      pairs[p] = waiting_[p].pair;
    }
    weigh_pairs<P>(weights, sums_, pairs, values_ + waiting_[0].first * sums_.width, waiting_[0].count);
  }

  Sums sums_;
  const float* values_;
  SeenKeys waiting_[4] = {};
  int size_ = 0;
};

// Rows [first_row, first_row + row_count) of a tile with the query heads of one kv head: pair p is row p / group of
// them, head p % group of the kv head.
struct HeadPairs {
  const AttentionShape& shape;
  const AttentionTile& tile;
  const AttentionPart& part;

  std::int64_t count() const { return part.row_count * shape.group; }
  std::int64_t row_number(std::int64_t p) const { return part.first_row + p / shape.group; }
  const AttentionRow& row(std::int64_t p) const { return tile.rows[row_number(p)]; }
  std::int64_t line(std::int64_t p) const {
    return (row_number(p) * shape.kv_heads + part.kv_head) * shape.group + p % shape.group;
  }
  const float* weights(std::int64_t p) const { return tile.scores + line(p) * tile.score_stride; }
};

// Context columns [column, column + count), whose values lie widened at `values`.
inline void weigh_chunk(const HeadPairs& pairs, std::int64_t column, std::int64_t count, const float* values,
                        const Sums& sums) {
  PairBatch batch(sums, values);
  for (std::int64_t p = 0; p < pairs.count(); ++p) {
    const std::int64_t first = larger(pairs.row(p).begin - column, 0);
    const std::int64_t last = smaller(pairs.row(p).end - column, count);
    if (first < last) batch.add({pairs.weights(p) + column, p, first, last - first});
  }
  batch.flush();
}

template <typename Kv>
void weigh_tails(const HeadPairs& pairs, float* value, const Sums& sums) {
  const AttentionShape& shape = pairs.shape;
  const auto& [kv_head, first_row, row_count, begin, end] = pairs.part;
  const auto* const memory = static_cast<const typename Kv::Stored*>(shape.v);
  for (std::int64_t r = 0; r < row_count; ++r) {
    const AttentionRow& row = pairs.tile.rows[first_row + r];
    for (std::int64_t i = 0; i < row.tail_count; ++i) {
      widen<Kv>(memory + (row.tail[i] * shape.kv_heads + kv_head) * shape.dim + begin, end - begin, value);
      PairBatch batch(sums, value);
      for (std::int64_t p = r * shape.group; p < (r + 1) * shape.group; ++p)
        batch.add({pairs.weights(p) + pairs.tile.tail_column + i, p, 0, 1});
      batch.flush();
    }
  }
}

inline void divide_and_store(const HeadPairs& pairs, const Sums& sums) {
  const std::int64_t begin = pairs.part.begin, end = pairs.part.end;
  for (std::int64_t p = 0; p < pairs.count(); ++p) {
    const std::int64_t line = pairs.line(p);
    float* const out = pairs.tile.out + line * pairs.shape.dim + begin;
    const F32 denominator = load(sums.denominator_of(p));
    for_each_vector(end - begin, [&](std::int64_t i, std::int64_t count) {
      const F32 quotient = div(load(sums.of(p) + i), denominator);
      store_up_to(out + i, pairs.tile.valid[line] != 0 ? quotient : broadcast(__builtin_nanf("")), count);
    });
  }
}

template <typename Kv>
void weigh(const AttentionShape& shape, const AttentionTile& tile, const AttentionPart& part, float* scratch) {
  const HeadPairs pairs{shape, tile, part};
  const Sums sums{scratch + kKeyChunk * padded_dim(shape.dim), padded_dim(part.end - part.begin)};
  for (std::int64_t p = 0; p < pairs.count(); ++p)
    for (std::int64_t i = 0; i < sums.width + kPanel; i += kPanel) store(sums.of(p) + i, broadcast(0.0f));
  for (std::int64_t column = 0; column < tile.columns; column += kKeyChunk) {
    const std::int64_t count = smaller(kKeyChunk, tile.columns - column);
    widen_context<Kv>(shape, tile, shape.v, part.kv_head, column, count, part.begin, part.end, scratch);
    weigh_chunk(pairs, column, count, scratch, sums);
  }
  weigh_tails<Kv>(pairs, scratch, sums);
  divide_and_store(pairs, sums);
}

// --- by stored type
// -------------------------------------------------------------------------------------------------------

void attention_scores(const AttentionShape& shape, const AttentionTile& tile, std::int64_t kv_head, std::int64_t chunk,
                      float* scratch) {
  switch (shape.type) {
    case KvType::f16: scores_of_chunk<KvF16>(shape, tile, kv_head, chunk, scratch); break;
    case KvType::bf16: scores_of_chunk<KvBf16>(shape, tile, kv_head, chunk, scratch); break;
    case KvType::f32: scores_of_chunk<KvF32>(shape, tile, kv_head, chunk, scratch); break;
  }
}

void attention_tail_scores(const AttentionShape& shape, const AttentionTile& tile, std::int64_t kv_head,
                           float* scratch) {
  switch (shape.type) {
    case KvType::f16: scores_of_tails<KvF16>(shape, tile, kv_head, scratch); break;
    case KvType::bf16: scores_of_tails<KvBf16>(shape, tile, kv_head, scratch); break;
    case KvType::f32: scores_of_tails<KvF32>(shape, tile, kv_head, scratch); break;
  }
}

void attention_weigh(const AttentionShape& shape, const AttentionTile& tile, const AttentionPart& part,
                     float* scratch) {
  switch (shape.type) {
    case KvType::f16: weigh<KvF16>(shape, tile, part, scratch); break;
    case KvType::bf16: weigh<KvBf16>(shape, tile, part, scratch); break;
    case KvType::f32: weigh<KvF32>(shape, tile, part, scratch); break;
  }
}

}  // namespace
}  // namespace espalier::cpu
