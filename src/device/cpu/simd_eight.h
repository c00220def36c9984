// Eight floats in one register of x86-64, beside the vectors of simd_avx2.h and simd_avx512.h. Internal linkage, as
// theirs.
#pragma once

#include <immintrin.h>

namespace espalier::cpu {
namespace {

struct Eight {
  __m256 v;
};
inline Eight eight_zeros() {
  return {_mm256_setzero_ps()};
}
inline Eight load_eight(const float* p) {
  return {_mm256_loadu_ps(p)};
}
inline void store_eight(float* p, Eight a) {
  _mm256_storeu_ps(p, a.v);
}
inline Eight add(Eight a, Eight b) {
  return {_mm256_add_ps(a.v, b.v)};
}
inline Eight max(Eight a, Eight b) {
  return {_mm256_max_ps(a.v, b.v)};
}

}  // namespace
}  // namespace espalier::cpu
