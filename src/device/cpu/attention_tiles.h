// What one tile of attention is made of: pairs of rows and query heads, and K and V where they are stored. Over the
// vector type of a simd_*.h, which must be included before. Internal linkage.
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

  // The position behind the last one that a row sees.
  std::int64_t end_of_context() const {
    std::int64_t end = 0;
    for (std::int64_t r = 0; r < rows.row_count; ++r) end = larger(end, rows.rows[r].end);
    return end;
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
  // Positions are int32 in the tables; to divide wider integers takes three times as long.
  std::int64_t slot(std::int64_t position) const {
    const std::uint32_t block = static_cast<std::uint32_t>(position) / static_cast<std::uint32_t>(block_size);
    return blocks[block] * block_size + (position - block * block_size);
  }

  // Elements from a position to the one that is one tile behind it, none where that is not before `end`.
  std::int64_t to_next_tile(std::int64_t position, std::int64_t end) const {
    const std::int64_t next = position + kTileKeys;
    return next < end ? (slot(next) - slot(position)) * slot_size : 0;
  }

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

// Into the second-level cache.
template <int kElements, typename Stored>
[[gnu::always_inline]] inline void fetch(const Stored* from) {
  constexpr int kLine = 64 / sizeof(Stored);
#pragma GCC unroll 8
  for (int i = 0; i < kElements; i += kLine) prefetch_far(from + i);
}

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

// A vector that stays in a register (keep): elements of an array that are kept themselves would be stored as well.
template <typename Vector>
[[gnu::always_inline]] inline Vector kept(Vector a) {
  keep(a);
  return a;
}

// Keys or values of the next tile, as many as are computed meanwhile. Each part of this work fetches some of them, as
// far apart as can be: a burst fills the queue of reads, and then everything waits.
class SlotsAhead {
 public:
  // Those one tile behind `positions`, as far as rows see them.
  template <typename Kv>
  SlotsAhead(const HeadMemory<Kv>& memory, const TilePairs& pairs, const KeyRange& positions)
      : bytes_(memory.dim * std::int64_t{sizeof(typename Kv::Stored)}) {
    const std::int64_t first = positions.first + kTileKeys;
    memory.for_each_run(first, smaller(positions.last + kTileKeys, pairs.end_of_context()),
                        [&](std::int64_t, std::int64_t count, const typename Kv::Stored* at) {
                          for (std::int64_t i = 0; i < count; ++i, at += memory.slot_size)
                            slots_[size_++] = reinterpret_cast<const char*>(at);
                        });
  }

  // Fetches a slot that is due; returns the next one of the part.
  [[gnu::always_inline]] std::int64_t fetch(std::int64_t due, std::int64_t parts) const {
    if (due < size_)
      for (std::int64_t byte = 0; byte < bytes_; byte += 64) prefetch_far(slots_[due] + byte);
    return due + parts;
  }

 private:
  const char* slots_[kTileKeys];
  std::int64_t size_ = 0, bytes_;
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

// The same of heads that fill vectors. kVectors: of a head, 0: it is not known.
template <int kVectors, typename Kv>
inline void widen_run(const HeadMemory<Kv>& memory, std::int64_t first, std::int64_t last, float* to) {
  const std::int64_t dim = kVectors > 0 ? kVectors * kPanel : memory.dim;
  memory.for_each_run(first, last, [&](std::int64_t, std::int64_t count, const typename Kv::Stored* from) {
    for (std::int64_t i = 0; i < count; ++i, from += memory.slot_size, to += dim)
#pragma GCC unroll 4
      for (std::int64_t d = 0; d < dim; d += kPanel) store(to + d, Kv::get(from + d));
  });
}

template <typename Kv>
inline void widen_slots(const HeadMemory<Kv>& memory, const std::int32_t* slots, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i, to += attention_padded(memory.dim))
    widen<Kv>(memory.at_slot(slots[i]), memory.dim, to);
}

// More pairs than these are worth putting keys and values into an order of their own for.
constexpr int kFewPairs = 4;

// How many pairs are computed together, as a type: calls body(PairCount<size>()) for 1 <= size <= kMost.
template <int kCount>
struct PairCount {
  static constexpr int count = kCount;
};
template <int kMost, typename Body>
inline void for_pair_count(int size, const Body& body) {
  if constexpr (kMost > 1)
    if (size < kMost) return for_pair_count<kMost - 1>(size, body);
  if (size == kMost) body(PairCount<kMost>());
}

}  // namespace
}  // namespace espalier::cpu
