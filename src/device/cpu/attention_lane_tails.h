// What some rows see of a tile and others do not, where lanes are pairs. simd_avx2.h or simd_avx512.h
// must be included before. Internal linkage.
#pragma once

#include "device/cpu/attention_lane_scores.h"

namespace espalier::cpu {
namespace {

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

}  // namespace
}  // namespace espalier::cpu
