// Attention of many pairs where lanes are pairs: maxima and denominators need no shuffles, and dot16 only one.
// simd_avx2.h or simd_avx512.h must be included before. Internal linkage.
#pragma once

#include "device/cpu/attention_lane_scores.h"
#include "device/cpu/attention_lane_softmax.h"
#include "device/cpu/attention_lane_tails.h"
#include "device/cpu/attention_lane_values.h"
#include "device/cpu/attention_scores.h"

namespace espalier::cpu {
namespace {

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
