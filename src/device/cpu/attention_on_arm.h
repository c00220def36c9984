// Which kernels serve how many pairs on Arm. simd_neon.h must be included before. Internal linkage.
#pragma once

#include "device/cpu/attention_many_quartered.h"

namespace espalier::cpu {
namespace {

template <typename Kv, int kVectors>
void score_few(const TilePairs& pairs, const KeyRange& all) {
  score_stored<Kv, kVectors>(pairs, all);
}

template <typename Kv, int kVectors>
void sums_of_many(const TilePairs& pairs, const KeyRange& all, float* scratch) {
  sums_of_quartered<Kv, kVectors>(pairs, all, scratch);
}

}  // namespace
}  // namespace espalier::cpu
