// Scores of few pairs whose sums end as they come: of sixteen keys never more than a few wait in registers to be added
// in halves. simd_avx2.h or simd_avx512.h must be included before. Internal linkage.
#pragma once

#include "device/cpu/attention_scores.h"

namespace espalier::cpu {
namespace {

// Sixteen keys for P pairs: `key` and those behind it, of which the last is taken for those that are missing. Meanwhile
// as many of the next tile are fetched.
template <typename Kv, int kVectors, int P>
struct KeyProducts {
  using Stored = typename Kv::Stored;
  const float* const* q;
  const Stored* key;
  std::int64_t slot_size, last;
  const Stored* next_key;

  // The first product needs no zero to be added to: the sign of a score of zero is lost in the softmax.
  [[gnu::always_inline]] Folded<P> operator()(int i) const {
    const Stored* const from = key + smaller(i, last) * slot_size;
    fetch<kVectors * kPanel>(next_key + i * slot_size);
    F32 sums[P];
#pragma GCC unroll 8
    for (int d = 0; d < kVectors; ++d) {
      F32 k = Kv::get(from + d * kPanel);
      keep(k);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const F32 x = load(q[p] + d * kPanel);
        sums[p] = d == 0 ? mul(x, k) : fma(x, k, sums[p]);
      }
    }
    Folded<P> begun;
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) begun.of[p] = begin_halves(sums[p]);
    return begun;
  }
};

// All pairs take all keys: scores of those a row does not see are never read back.
template <typename Kv, int kVectors, int P>
void score_folded(const TilePairs& pairs, const KeyRange& all) {
  const HeadMemory<Kv> memory(pairs, pairs.shape.k);
  const float* q[P] = {};
  float* scores[P] = {};
  int size = 0;
  for (std::int64_t r = 0; r < pairs.rows.row_count; ++r)
    pairs.for_each_pair(r, [&](const Pair& pair) { q[size] = pair.q, scores[size++] = pair.scores; });
  const F32 scale = broadcast(pairs.shape.scale);
  const std::int64_t beginning = pairs.beginning(), end = pairs.end_of_context();
  memory.for_each_run(beginning + all.first, beginning + all.last,
                      [&](std::int64_t first, std::int64_t count, const typename Kv::Stored* run) {
                        for (std::int64_t i = 0; i < count; i += kPanel) {
                          const typename Kv::Stored* const key = run + i * memory.slot_size;
                          F32 sums[P];
                          fold<P>(KeyProducts<Kv, kVectors, P>{q, key, memory.slot_size, smaller(kPanel, count - i) - 1,
                                                               key + memory.to_next_tile(first + i, end)},
                                  sums);
#pragma GCC unroll 4
                          for (int p = 0; p < P; ++p) store(scores[p] + (first - beginning) + i, mul(scale, sums[p]));
                        }
                      });
}

// Sixteen keys are written out in full: worth the compiler's time for the usual type of K and V only.
template <int kVectors>
constexpr bool kFolded<KvF16, kVectors> = kVectors > 0;

template <typename Kv, int kVectors>
void score_few(const TilePairs& pairs, const KeyRange& all) {
  if constexpr (kFolded<Kv, kVectors>) {
    for_pair_count<kFewPairs>(static_cast<int>(pairs.count()),
                              [&](auto count) { score_folded<Kv, kVectors, decltype(count)::count>(pairs, all); });
  } else {
    score_stored<Kv, kVectors>(pairs, all);
  }
}

}  // namespace
}  // namespace espalier::cpu
