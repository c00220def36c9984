// Which kernels serve how many pairs on x86-64. simd_avx2.h or simd_avx512.h must be included before. Internal linkage.
#pragma once

#include "device/cpu/attention_few_folded.h"
#include "device/cpu/attention_many_lanes.h"
#include "device/cpu/attention_many_quartered.h"

namespace espalier::cpu {
namespace {

template <typename Kv, int kVectors>
void sums_of_many(const TilePairs& pairs, const KeyRange& all, float* scratch) {
  if (fills_lanes(pairs.count())) {
    sums_of_lanes<Kv, kVectors>(pairs, all, scratch);
  } else {
    sums_of_quartered<Kv, kVectors>(pairs, all, scratch);
  }
}

}  // namespace
}  // namespace espalier::cpu
