// Sixteen floats, sixteen integers or sixty-four bytes in two AVX2 registers. Included by one file only; everything has
// internal linkage. The same names exist in simd_avx512.h and simd_neon.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "device/cpu/simd_eight.h"

namespace espalier::cpu {
namespace {

struct F32 {
  __m256 low, high;
};
struct I32 {
  __m256i low, high;
};
struct Bytes {
  __m256i low, high;
};
struct Mask {
  __m256 low, high;
};

constexpr int kTileRows = 4;                  // sixteen registers hold no more sums
constexpr int kFloatPanels[] = {4, 2, 1, 1};  // panels side by side for 1, 2, ... rows of float weights
constexpr int kBlockPanels[] = {4, 2, 1, 1};  // and of block-quantised ones
constexpr int kScoredGroups = 1;              // of four keys each, side by side when many rows want scores,
constexpr int kScoredPairs = 2;               // for so many rows and heads
constexpr int kWeighedPairs = 2;              // rows and heads whose weighted sums of values run side by side,
constexpr int kWeighedVectors = 2;            // so many vectors of each
constexpr int kFewWeighed = 3;                // the same of few rows and heads
constexpr int kDotKeys[] = {6, 3};            // keys whose dot products with 1, 2 vectors of pairs run side by side;
constexpr int kWaitingDots = 0;               // of no more than these their halves wait in registers
constexpr int kTwosOfExp = 1;                 // times two keys whose exponentials run side by side,
constexpr int kLanePairs = 6;                 // and rows and heads whose weighted sums of values run side by side then,
constexpr int kLaneVectors = 1;               // so many vectors of each
constexpr bool kWeighsStored = false;         // and widened before, once for all

inline F32 load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void store(float* p, F32 a) {
  _mm256_storeu_ps(p, a.low);
  _mm256_storeu_ps(p + 8, a.high);
}
inline F32 load_first(const float* p, std::int64_t n) {
  float all[16] = {};
  __builtin_memcpy(all, p, static_cast<std::size_t>(n) * sizeof(float));
  return load(all);
}
inline void store_first(float* p, F32 a, std::int64_t n) {
  float all[16];
  store(all, a);
  __builtin_memcpy(p, all, static_cast<std::size_t>(n) * sizeof(float));
}
// Keeps a value in registers: g++ would rather load it anew for each of its uses.
inline void keep(F32& a) {
  asm("" : "+x"(a.low), "+x"(a.high));
}
inline F32 broadcast(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}
// Kept as well, but in one register.
inline F32 kept_broadcast(float x) {
  __m256 v = _mm256_set1_ps(x);
  asm("" : "+x"(v));
  return {v, v};
}
inline F32 add(F32 a, F32 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline F32 sub(F32 a, F32 b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline F32 mul(F32 a, F32 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline F32 div(F32 a, F32 b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline F32 fma(F32 a, F32 b, F32 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline F32 max(F32 a, F32 b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
// Four factors, of which one at a time multiplies a vector.
struct Factors {
  const float* p;
};
inline Factors load_factors(const float* p) {
  return {p};
}
template <int kFactor>
inline F32 fma(Factors a, F32 b, F32 c) {
  return fma(broadcast(a.p[kFactor]), b, c);
}
inline F32 negate(F32 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.low, sign), _mm256_xor_ps(a.high, sign)};
}
inline F32 round_to_even(F32 a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.low, kMode), _mm256_round_ps(a.high, kMode)};
}

inline Mask less(F32 a, F32 b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
}
inline Mask equal(F32 a, F32 b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_EQ_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_EQ_OQ)};
}
inline Mask is_nan(F32 a) {
  return {_mm256_cmp_ps(a.low, a.low, _CMP_UNORD_Q), _mm256_cmp_ps(a.high, a.high, _CMP_UNORD_Q)};
}
inline Mask no_lanes() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
inline Mask either(Mask a, Mask b) {
  return {_mm256_or_ps(a.low, b.low), _mm256_or_ps(a.high, b.high)};
}
inline std::uint32_t lane_bits(Mask m) {
  return static_cast<std::uint32_t>(_mm256_movemask_ps(m.low) | _mm256_movemask_ps(m.high) << 8);
}
inline F32 select(Mask m, F32 yes, F32 no) {
  return {_mm256_blendv_ps(no.low, yes.low, m.low), _mm256_blendv_ps(no.high, yes.high, m.high)};
}
// Lanes [0, n) of a, the others of b.
inline F32 select_first(std::int64_t n, F32 a, F32 b) {
  const __m256 count = _mm256_set1_ps(static_cast<float>(n));
  const Mask first = {_mm256_cmp_ps(_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), count, _CMP_LT_OQ),
                      _mm256_cmp_ps(_mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15), count, _CMP_LT_OQ)};
  return select(first, a, b);
}

inline I32 to_int(F32 a) {
  return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)};
}
inline F32 to_float(I32 a) {
  return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
inline I32 magnitude_bits(F32 a) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  return {_mm256_and_si256(_mm256_castps_si256(a.low), mask), _mm256_and_si256(_mm256_castps_si256(a.high), mask)};
}
inline I32 max(I32 a, I32 b) {
  return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)};
}
inline std::int32_t reduce_max(I32 a) {
  const __m256i m8 = _mm256_max_epi32(a.low, a.high);
  const __m128i m4 = _mm_max_epi32(_mm256_castsi256_si128(m8), _mm256_extracti128_si256(m8, 1));
  const __m128i m2 = _mm_max_epi32(m4, _mm_shuffle_epi32(m4, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(m2, _mm_shuffle_epi32(m2, 0xb1)));
}
// Sixteen bytes; returns their sum.
inline std::int32_t store_as_bytes(std::int8_t* p, I32 a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  const __m128i flipped = _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(0x80)));
  const __m128i sums = _mm_sad_epu8(flipped, _mm_setzero_si128());  // of eight bytes each, 128 added to each
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi32(sums, 2) - 16 * 128;
}

inline __m256 times_power_of_two(__m256 p, __m256 n) {
  const __m256i whole = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), whole));
}
// p * 2^n, n whole: added to the exponent, which is the same wherever base/math.h's two factors give a normal number.
inline F32 times_power_of_two(F32 p, F32 n) {
  return {times_power_of_two(p.low, n.low), times_power_of_two(p.high, n.high)};
}

inline float reduce_max(F32 a) {
  const __m256 m8 = _mm256_max_ps(a.low, a.high);
  const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
  const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
  return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}
// 8+8, 4+4, 2+2, 1+1, as dot16 ends.
inline float add_halves(F32 a) {
  const __m256 s8 = _mm256_add_ps(a.low, a.high);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

inline __m256 add_halves_8(F32 a) {
  return _mm256_add_ps(a.low, a.high);
}
inline __m256 add_halves_4(__m256 a, __m256 b) {
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
inline __m256 add_halves_2(__m256 a, __m256 b) {
  const __m256d x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);
  return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}
inline __m256 add_halves_1(__m256 a, __m256 b) {
  return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}
// The first additions of add_halves, and the others of sixteen sums: lane i becomes add_halves of the i-th.
using Halves = __m256;
inline Halves begin_halves(F32 a) {
  return add_halves_8(a);
}
inline F32 end_halves(const Halves (&sums)[16]) {
  const auto quarter = [&](int first) { return add_halves_4(sums[first], sums[first + 4]); };
  const auto eight = [&](int first) {
    const __m256 low = add_halves_2(quarter(first), quarter(first + 1));
    const __m256 high = add_halves_2(quarter(first + 2), quarter(first + 3));
    return add_halves_1(low, high);
  };
  return {eight(0), eight(8)};
}

// The same of P times sixteen sums, which get(i) gives as they are wanted.
template <int P>
struct Folded {
  Halves of[P];
};
template <__m256 (*kAdd)(__m256, __m256), int P>
[[gnu::always_inline]] inline Folded<P> folded(const Folded<P>& a, const Folded<P>& b) {
  Folded<P> both;
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) both.of[p] = kAdd(a.of[p], b.of[p]);
  return both;
}
template <int P, typename Get>
[[gnu::always_inline]] inline Folded<P> fold_quarter(const Get& get, int first) {
  const Folded<P> a = get(first);
  return folded<add_halves_4>(a, get(first + 4));
}
template <int P, typename Get>
[[gnu::always_inline]] inline Folded<P> fold_eight(const Get& get, int first) {
  Folded<P> low = fold_quarter<P>(get, first);
  low = folded<add_halves_2>(low, fold_quarter<P>(get, first + 1));
  Folded<P> high = fold_quarter<P>(get, first + 2);
  high = folded<add_halves_2>(high, fold_quarter<P>(get, first + 3));
  return folded<add_halves_1>(low, high);
}
template <int P, typename Get>
[[gnu::always_inline]] inline void fold(const Get& get, F32 (&sums)[P]) {
  const Folded<P> low = fold_eight<P>(get, 0), high = fold_eight<P>(get, 8);
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) sums[p] = {low.of[p], high.of[p]};
}

// Four floats in each of the four quarters.
inline F32 load_quarters(const float* p) {
  const __m256 v = _mm256_broadcast_ps(reinterpret_cast<const __m128*>(p));
  return {v, v};
}
// Quarter j of vector i becomes quarter i of vector j.
inline void turn_quarters(F32 (&v)[4]) {
  const F32 a = v[0], b = v[1], c = v[2], d = v[3];
  v[0] = {_mm256_permute2f128_ps(a.low, b.low, 0x20), _mm256_permute2f128_ps(c.low, d.low, 0x20)};
  v[1] = {_mm256_permute2f128_ps(a.low, b.low, 0x31), _mm256_permute2f128_ps(c.low, d.low, 0x31)};
  v[2] = {_mm256_permute2f128_ps(a.high, b.high, 0x20), _mm256_permute2f128_ps(c.high, d.high, 0x20)};
  v[3] = {_mm256_permute2f128_ps(a.high, b.high, 0x31), _mm256_permute2f128_ps(c.high, d.high, 0x31)};
}
// Lane 4 i + j becomes the sum of quarter i of vector j, halves first, as dot16 ends.
inline F32 add_halves_of_quarters(const F32 (&v)[4]) {
  return {add_halves_1(add_halves_2(v[0].low, v[1].low), add_halves_2(v[2].low, v[3].low)),
          add_halves_1(add_halves_2(v[0].high, v[1].high), add_halves_2(v[2].high, v[3].high))};
}

// Two neighbouring lanes of dot16 for each of four pairs: those of pair p in lanes 2 p and 2 p + 1.
using TwoLanes = Eight;
constexpr int kPairsOfTwo = 4;
inline TwoLanes load_twos(const float* p) {
  return load_eight(p);
}
inline void store_twos(float* p, TwoLanes a) {
  store_eight(p, a);
}
inline TwoLanes broadcast_two(const float* p) {
  double two;
  __builtin_memcpy(&two, p, sizeof two);
  return {_mm256_castpd_ps(_mm256_set1_pd(two))};
}
inline TwoLanes mul(TwoLanes a, TwoLanes b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
inline TwoLanes fma(TwoLanes a, TwoLanes b, TwoLanes c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
inline void keep(TwoLanes& a) {
  asm("" : "+x"(a.v));
}
// Four elements of each pair, rows[0], rows[1], ... from `at` on: two and two.
inline void turn_twos(const float* const (&rows)[kPairsOfTwo], std::int64_t at, float* to) {
  const auto two_rows = [&](int first) {
    const __m256 v = _mm256_castps128_ps256(_mm_loadu_ps(rows[first] + at));
    return _mm256_castps_pd(_mm256_insertf128_ps(v, _mm_loadu_ps(rows[first + 2] + at), 1));
  };
  const __m256d even = two_rows(0), odd = two_rows(1);
  _mm256_storeu_ps(to, _mm256_castpd_ps(_mm256_unpacklo_pd(even, odd)));
  _mm256_storeu_ps(to + 8, _mm256_castpd_ps(_mm256_unpackhi_pd(even, odd)));
}
// Each pair's two lanes added and multiplied by `scale`: a to `first`, b to `second`.
inline void store_sums_of_two(float* first, float* second, TwoLanes a, TwoLanes b, float scale) {
  const __m256 sums = _mm256_mul_ps(add_halves_1(a.v, b.v), _mm256_set1_ps(scale));
  const __m256 v = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(sums), 0xd8));
  _mm_storeu_ps(first, _mm256_castps256_ps128(v));
  _mm_storeu_ps(second, _mm256_extractf128_ps(v, 1));
}

inline F32 load_f16(const std::uint16_t* p) {
  const auto* const halves = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
inline __m256 widen_bf16(__m128i halves) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
inline F32 load_bf16(const std::uint16_t* p) {
  const auto* const halves = reinterpret_cast<const __m128i*>(p);
  return {widen_bf16(_mm_loadu_si128(halves)), widen_bf16(_mm_loadu_si128(halves + 1))};
}
inline void store_eight_f16(std::uint16_t* p, __m256 a) {
  const __m128i half = _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256i unordered = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  const __m128i is_nan = _mm_packs_epi32(_mm256_castsi256_si128(unordered), _mm256_extracti128_si256(unordered, 1));
  const __m128i sign = _mm_and_si128(half, _mm_set1_epi16(static_cast<short>(0x8000)));
  const __m128i nan = _mm_or_si128(sign, _mm_set1_epi16(0x7e00));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_blendv_epi8(half, nan, is_nan));
}
inline void store_f16(std::uint16_t* p, F32 a) {
  store_eight_f16(p, a.low);
  store_eight_f16(p + 8, a.high);
}
inline __m256i rounded_bf16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i sign = _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0x80000000u)));
  const __m256i nan = _mm256_or_si256(sign, _mm256_set1_epi32(0x7fc00000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, nan, is_nan), 16);
}
inline void store_bf16(std::uint16_t* p, F32 a) {
  const __m256i words = _mm256_packus_epi32(rounded_bf16(a.low), rounded_bf16(a.high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(words, 0xd8));
}
inline F32 load_u8_as_float(const std::uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return to_float({_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))});
}
inline F32 load_i8_as_float(const std::uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return to_float({_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))});
}

inline Bytes load_bytes(const std::uint8_t* p) {
  const auto* const halves = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
inline void store_bytes(std::uint8_t* p, Bytes a) {
  auto* const halves = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(halves, a.low);
  _mm256_storeu_si256(halves + 1, a.high);
}
inline Bytes low_nibbles(Bytes a) {
  const __m256i mask = _mm256_set1_epi8(0x0f);
  return {_mm256_and_si256(a.low, mask), _mm256_and_si256(a.high, mask)};
}
inline Bytes high_nibbles(Bytes a) {
  return low_nibbles({_mm256_srli_epi16(a.low, 4), _mm256_srli_epi16(a.high, 4)});
}
template <int from, int mask>
inline __m256i with_high_bits(__m256i a, __m256i b) {
  __m256i moved;
  if constexpr (from < 4) {
    moved = _mm256_slli_epi16(b, 4 - from);
  } else {
    moved = _mm256_srli_epi16(b, from - 4);
  }
  return _mm256_or_si256(a, _mm256_and_si256(moved, _mm256_set1_epi8(mask)));
}
// a | bits `from`, `from` + 1, ... of b that `mask` keeps after they have moved to bit 4.
template <int from, int mask>
inline Bytes with_high_bits(Bytes a, Bytes b) {
  return {with_high_bits<from, mask>(a.low, b.low), with_high_bits<from, mask>(a.high, b.high)};
}
// Signed weights stay as they are.
inline Bytes from_signed(Bytes a) {
  return a;
}
constexpr int kSignedShift = -1;

// The integer sums of sixteen outputs over one block, four elements at a time. maddubs adds neighbouring products in
// 16 bits: unsigned weights below 2^bits times 127 leave room for kRoom groups before the sums must be widened.
template <int bits>
struct Dot {
  static constexpr int kRoom = bits == 4 ? 8 : bits == 5 ? 4 : 2;
  __m256i low, high, narrow_low, narrow_high;

  void start_at(std::int32_t value, int shift) {
    low = high = _mm256_set1_epi32(static_cast<std::int32_t>(static_cast<std::uint32_t>(value) << shift));
    narrow_low = narrow_high = _mm256_setzero_si256();
  }
  void start_at_zero() { start_at(0, 0); }
  template <int group>
  void add(Bytes w, std::int32_t x) {
    const __m256i four = _mm256_set1_epi32(x);
    narrow_low = _mm256_add_epi16(narrow_low, _mm256_maddubs_epi16(w.low, four));
    narrow_high = _mm256_add_epi16(narrow_high, _mm256_maddubs_epi16(w.high, four));
    if constexpr (group % kRoom == kRoom - 1) {
      const __m256i ones = _mm256_set1_epi16(1);
      low = _mm256_add_epi32(low, _mm256_madd_epi16(narrow_low, ones));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(narrow_high, ones));
      narrow_low = narrow_high = _mm256_setzero_si256();
    }
  }
  I32 total() const { return {low, high}; }
};

// Signed bytes: |w| times x with the sign of w; 128 * 127 * 2 just fits 16 bits.
template <>
struct Dot<8> {
  __m256i low, high;

  void start_at_zero() { low = high = _mm256_setzero_si256(); }
  template <int group>
  void add(Bytes w, std::int32_t x) {
    low = _mm256_add_epi32(low, four_products(w.low, _mm256_set1_epi32(x)));
    high = _mm256_add_epi32(high, four_products(w.high, _mm256_set1_epi32(x)));
  }
  I32 total() const { return {low, high}; }

 private:
  static __m256i four_products(__m256i w, __m256i x) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
};

// Inlined before anything else: g++ takes a function that only prefetches for one without effect, and leaves out its
// calls.
[[gnu::always_inline]] inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
// Into the second-level cache only: for what is not needed soon.
[[gnu::always_inline]] inline void prefetch_far(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

}  // namespace
}  // namespace espalier::cpu
