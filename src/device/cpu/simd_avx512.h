// Sixteen floats, sixteen integers or sixty-four bytes in one AVX-512 register. Included by one file only; everything
// has internal linkage. The same names exist in simd_avx2.h and simd_neon.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "device/cpu/simd_eight.h"

namespace espalier::cpu {
namespace {

struct F32 {
  __m512 v;
};
struct I32 {
  __m512i v;
};
struct Bytes {
  __m512i v;
};
using Mask = __mmask16;

constexpr int kTileRows = 8;  // 8 float and 8 integer sums, 8 decoded groups, scale and minimum: 26 registers
constexpr int kFloatPanels[] = {4, 4, 2, 2, 2, 2, 2, 2};  // panels side by side for 1, 2, ... rows of float weights
constexpr int kBlockPanels[] = {4, 4, 4, 2, 2, 1, 1, 1};  // and of block-quantised ones
constexpr int kScoredGroups = 4;                          // of four keys each, side by side when many rows want scores,
constexpr int kScoredPairs = 2;                           // for so many rows and heads
constexpr int kWeighedPairs = 4;       // rows and heads whose weighted sums of values run side by side,
constexpr int kWeighedVectors = 4;     // so many vectors of each
constexpr int kFewWeighed = 4;         // the same of few rows and heads
constexpr int kDotKeys[] = {6, 3, 4};  // keys whose dot products with 1, 2, 3 vectors of pairs run side by side;
constexpr int kWaitingDots = 6;        // of no more than these their halves wait in registers
constexpr int kTwosOfExp = 4;          // times two keys whose exponentials run side by side,
constexpr int kLanePairs = 12;         // and rows and heads whose weighted sums of values run side by side then,
constexpr int kLaneVectors = 2;        // so many vectors of each
constexpr bool kWeighsStored = true;   // and widened as they are weighed

inline __mmask16 first_lanes(std::int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}

inline F32 load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
inline F32 load_first(const float* p, std::int64_t n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}
inline void store(float* p, F32 a) {
  _mm512_storeu_ps(p, a.v);
}
inline void store_first(float* p, F32 a, std::int64_t n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), a.v);
}
// Keeps a value in registers: g++ would rather load it anew for each of its uses.
inline void keep(F32& a) {
  asm("" : "+v"(a.v));
}
inline F32 broadcast(float x) {
  return {_mm512_set1_ps(x)};
}
// Kept as well.
inline F32 kept_broadcast(float x) {
  F32 v = broadcast(x);
  keep(v);
  return v;
}
inline F32 add(F32 a, F32 b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline F32 sub(F32 a, F32 b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline F32 mul(F32 a, F32 b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline F32 div(F32 a, F32 b) {
  return {_mm512_div_ps(a.v, b.v)};
}
inline F32 fma(F32 a, F32 b, F32 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline F32 max(F32 a, F32 b) {
  return {_mm512_max_ps(a.v, b.v)};
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
  return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))};
}
inline F32 round_to_even(F32 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// p * 2^n, n whole; exact where the result is a normal float or infinity.
inline F32 times_power_of_two(F32 p, F32 n) {
  return {_mm512_scalef_ps(p.v, n.v)};
}

inline Mask less(F32 a, F32 b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ);
}
inline Mask equal(F32 a, F32 b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ);
}
inline Mask is_nan(F32 a) {
  return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
}
inline Mask no_lanes() {
  return 0;
}
inline Mask either(Mask a, Mask b) {
  return static_cast<Mask>(a | b);
}
inline std::uint32_t lane_bits(Mask m) {
  return m;
}
inline F32 select(Mask m, F32 yes, F32 no) {
  return {_mm512_mask_blend_ps(m, no.v, yes.v)};
}
// Lanes [0, n) of a, the others of b.
inline F32 select_first(std::int64_t n, F32 a, F32 b) {
  return select(first_lanes(n), a, b);
}

inline I32 to_int(F32 a) {
  return {_mm512_cvtps_epi32(a.v)};
}
inline F32 to_float(I32 a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
inline I32 magnitude_bits(F32 a) {
  return {_mm512_and_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x7fffffff))};
}
inline I32 max(I32 a, I32 b) {
  return {_mm512_max_epi32(a.v, b.v)};
}
inline std::int32_t reduce_max(I32 a) {
  return _mm512_reduce_max_epi32(a.v);
}
// Sixteen bytes; returns their sum.
inline std::int32_t store_as_bytes(std::int8_t* p, I32 a) {
  const __m128i bytes = _mm512_cvtepi32_epi8(a.v);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  const __m128i flipped = _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(0x80)));
  const __m128i sums = _mm_sad_epu8(flipped, _mm_setzero_si128());  // of eight bytes each, 128 added to each
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi32(sums, 2) - 16 * 128;
}

inline float reduce_max(F32 a) {
  return _mm512_reduce_max_ps(a.v);
}
// 8+8, 4+4, 2+2, 1+1, as dot16 ends.
inline float add_halves(F32 a) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

inline __m512 add_halves_8(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
inline __m512 add_halves_4(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
inline __m512 add_halves_2(__m512 a, __m512 b) {
  const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}
inline __m512 add_halves_1(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}
// Nothing yet of the additions of add_halves, and all of them for sixteen sums: lane i becomes add_halves of the i-th.
using Halves = F32;
inline Halves begin_halves(F32 a) {
  return a;
}
inline F32 end_halves(const Halves (&sums)[16]) {
  const auto quarter = [&](int first) {
    const __m512 a = add_halves_8(sums[first].v, sums[first + 4].v);
    const __m512 b = add_halves_8(sums[first + 8].v, sums[first + 12].v);
    return add_halves_4(a, b);
  };
  const __m512 low = add_halves_2(quarter(0), quarter(1));
  const __m512 high = add_halves_2(quarter(2), quarter(3));
  return {add_halves_1(low, high)};
}

// The same of P times sixteen sums, which get(i) gives as they are wanted.
template <int P>
struct Folded {
  Halves of[P];
};
template <__m512 (*kAdd)(__m512, __m512), int P>
[[gnu::always_inline]] inline Folded<P> folded(const Folded<P>& a, const Folded<P>& b) {
  Folded<P> both;
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) both.of[p].v = kAdd(a.of[p].v, b.of[p].v);
  return both;
}
template <int P, typename Get>
[[gnu::always_inline]] inline Folded<P> fold_quarter(const Get& get, int first) {
  Folded<P> a = get(first);
  a = folded<add_halves_8>(a, get(first + 4));
  Folded<P> b = get(first + 8);
  b = folded<add_halves_8>(b, get(first + 12));
  return folded<add_halves_4>(a, b);
}
template <int P, typename Get>
[[gnu::always_inline]] inline void fold(const Get& get, F32 (&sums)[P]) {
  Folded<P> low = fold_quarter<P>(get, 0);
  low = folded<add_halves_2>(low, fold_quarter<P>(get, 1));
  Folded<P> high = fold_quarter<P>(get, 2);
  high = folded<add_halves_2>(high, fold_quarter<P>(get, 3));
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) sums[p].v = add_halves_1(low.of[p].v, high.of[p].v);
}

// Four floats in each of the four quarters.
inline F32 load_quarters(const float* p) {
  return {_mm512_broadcast_f32x4(_mm_loadu_ps(p))};
}
// Quarter j of vector i becomes quarter i of vector j.
inline void turn_quarters(F32 (&v)[4]) {
  const __m512 low = _mm512_shuffle_f32x4(v[0].v, v[1].v, 0x44), high = _mm512_shuffle_f32x4(v[0].v, v[1].v, 0xee);
  const __m512 low2 = _mm512_shuffle_f32x4(v[2].v, v[3].v, 0x44), high2 = _mm512_shuffle_f32x4(v[2].v, v[3].v, 0xee);
  v[0].v = _mm512_shuffle_f32x4(low, low2, 0x88), v[1].v = _mm512_shuffle_f32x4(low, low2, 0xdd);
  v[2].v = _mm512_shuffle_f32x4(high, high2, 0x88), v[3].v = _mm512_shuffle_f32x4(high, high2, 0xdd);
}
// Lane 4 i + j becomes the sum of quarter i of vector j, halves first, as dot16 ends.
inline F32 add_halves_of_quarters(const F32 (&v)[4]) {
  return {add_halves_1(add_halves_2(v[0].v, v[1].v), add_halves_2(v[2].v, v[3].v))};
}

// Two neighbouring lanes of dot16 for each of eight pairs: those of pair p in lanes 2 p and 2 p + 1.
using TwoLanes = F32;
constexpr int kPairsOfTwo = 8;
inline TwoLanes load_twos(const float* p) {
  return load(p);
}
inline void store_twos(float* p, TwoLanes a) {
  store(p, a);
}
inline TwoLanes broadcast_two(const float* p) {
  double two;
  __builtin_memcpy(&two, p, sizeof two);
  return {_mm512_castpd_ps(_mm512_set1_pd(two))};
}
// Four elements of each pair, rows[0], rows[1], ... from `at` on: two and two.
inline void turn_twos(const float* const (&rows)[kPairsOfTwo], std::int64_t at, float* to) {
  const auto four_rows = [&](int first) {
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(rows[first] + at));
    v = _mm512_insertf32x4(v, _mm_loadu_ps(rows[first + 2] + at), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(rows[first + 4] + at), 2);
    return _mm512_castps_pd(_mm512_insertf32x4(v, _mm_loadu_ps(rows[first + 6] + at), 3));
  };
  const __m512d even = four_rows(0), odd = four_rows(1);
  _mm512_storeu_ps(to, _mm512_castpd_ps(_mm512_unpacklo_pd(even, odd)));
  _mm512_storeu_ps(to + 16, _mm512_castpd_ps(_mm512_unpackhi_pd(even, odd)));
}
// Each pair's two lanes added and multiplied by `scale`: a to `first`, b to `second`.
inline void store_sums_of_two(float* first, float* second, TwoLanes a, TwoLanes b, float scale) {
  const __m512 sums = _mm512_mul_ps(add_halves_1(a.v, b.v), _mm512_set1_ps(scale));
  const __m512i pairs = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  const __m512 v = _mm512_castpd_ps(_mm512_permutexvar_pd(pairs, _mm512_castps_pd(sums)));
  _mm256_storeu_ps(first, _mm512_castps512_ps256(v));
  _mm256_storeu_ps(second, _mm512_extractf32x8_ps(v, 1));
}

inline F32 load_f16(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline F32 load_bf16(const std::uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
inline void store_f16(std::uint16_t* p, F32 a) {
  const __m256i half = _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256i sign = _mm256_and_si256(half, _mm256_set1_epi16(static_cast<short>(0x8000)));
  const __m256i nan = _mm256_or_si256(sign, _mm256_set1_epi16(0x7e00));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_mask_blend_epi16(is_nan(a), half, nan));
}
inline void store_bf16(std::uint16_t* p, F32 a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i sign = _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0x80000000u)));
  const __m512i nan = _mm512_or_si512(sign, _mm512_set1_epi32(0x7fc00000));
  const __m512i result = _mm512_mask_blend_epi32(is_nan(a), rounded, nan);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(result, 16)));
}
inline F32 load_u8_as_float(const std::uint8_t* p) {
  return to_float({_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))});
}
inline F32 load_i8_as_float(const std::uint8_t* p) {
  return to_float({_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))});
}

inline Bytes load_bytes(const std::uint8_t* p) {
  return {_mm512_loadu_si512(p)};
}
inline void store_bytes(std::uint8_t* p, Bytes a) {
  _mm512_storeu_si512(p, a.v);
}
inline Bytes low_nibbles(Bytes a) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi8(0x0f))};
}
inline Bytes high_nibbles(Bytes a) {
  return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(0x0f))};
}
// a | bits `from`, `from` + 1, ... of b that `mask` keeps after they have moved to bit 4.
template <int from, int mask>
inline Bytes with_high_bits(Bytes a, Bytes b) {
  __m512i moved;
  if constexpr (from < 4) {
    moved = _mm512_slli_epi16(b.v, 4 - from);
  } else {
    moved = _mm512_srli_epi16(b.v, from - 4);
  }
  return {_mm512_ternarylogic_epi32(a.v, moved, _mm512_set1_epi8(mask), 0xf8)};  // a | (moved & mask)
}
// Signed weights as the dot product below likes them: here with 128 added, which kSignedShift takes back.
inline Bytes from_signed(Bytes a) {
  return {_mm512_xor_si512(a.v, _mm512_set1_epi8(static_cast<char>(0x80)))};
}
constexpr int kSignedShift = 7;

// The integer sums of sixteen outputs over one block, four elements at a time.
template <int bits>
struct Dot {
  __m512i sum;

  void start_at(std::int32_t value, int shift) { sum = _mm512_slli_epi32(_mm512_set1_epi32(value), shift); }
  void start_at_zero() { sum = _mm512_setzero_si512(); }
  template <int group>
  void add(Bytes w, std::int32_t x) {
    sum = _mm512_dpbusd_epi32(sum, w.v, _mm512_set1_epi32(x));
  }
  I32 total() const { return {sum}; }
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
