// Sixteen floats, sixteen integers or sixty-four bytes in four NEON registers. Included by one file per instruction
// set, of which those compiled with dotprod use sdot; everything has internal linkage. The same names exist in
// simd_avx2.h and simd_avx512.h. Every function is always inlined: to a compiler that counts statements, four registers
// look like much code, and g++ soon refuses to inline any more of it, in the innermost loops too.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace espalier::cpu {
namespace {

struct F32 {
  float32x4_t v[4];
};
struct I32 {
  int32x4_t v[4];
};
struct Bytes {
  uint8x16_t v[4];
};
struct Mask {
  uint32x4_t v[4];
};

constexpr int kTileRows = 4;                  // sixteen registers of integer sums, the others for weights and inputs
constexpr int kFloatPanels[] = {2, 2, 1, 1};  // panels side by side for 1, 2, ... rows of float weights
constexpr int kBlockPanels[] = {2, 1, 1, 1};  // and of block-quantised ones
constexpr int kScoredGroups = 1;              // of four keys each, side by side when many rows want scores,
constexpr int kScoredPairs = 4;               // for so many rows and heads
constexpr int kWeighedPairs = 4;              // rows and heads whose weighted sums of values run side by side,
constexpr int kWeighedVectors = 1;            // so many vectors of each
constexpr int kFewWeighed = kWeighedPairs;    // the same of few rows and heads

// The same operation on each of the four registers.
template <typename Result, typename Operation>
[[gnu::always_inline]] inline Result each(const Operation& operation) {
  return {{operation(0), operation(1), operation(2), operation(3)}};
}

[[gnu::always_inline]] inline F32 load(const float* p) {
  return each<F32>([&](int i) { return vld1q_f32(p + 4 * i); });
}
[[gnu::always_inline]] inline void store(float* p, F32 a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
[[gnu::always_inline]] inline F32 load_first(const float* p, std::int64_t n) {
  float all[16] = {};
  __builtin_memcpy(all, p, static_cast<std::size_t>(n) * sizeof(float));
  return load(all);
}
[[gnu::always_inline]] inline void store_first(float* p, F32 a, std::int64_t n) {
  float all[16];
  store(all, a);
  __builtin_memcpy(p, all, static_cast<std::size_t>(n) * sizeof(float));
}
// Keeps a value in registers: g++ would rather load it anew for each of its uses.
[[gnu::always_inline]] inline void keep(F32& a) {
  asm("" : "+w"(a.v[0]), "+w"(a.v[1]), "+w"(a.v[2]), "+w"(a.v[3]));
}
[[gnu::always_inline]] inline F32 broadcast(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {{v, v, v, v}};
}
[[gnu::always_inline]] inline F32 add(F32 a, F32 b) {
  return each<F32>([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline F32 sub(F32 a, F32 b) {
  return each<F32>([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline F32 mul(F32 a, F32 b) {
  return each<F32>([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline F32 div(F32 a, F32 b) {
  return each<F32>([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline F32 fma(F32 a, F32 b, F32 c) {
  return each<F32>([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline F32 max(F32 a, F32 b) {
  return each<F32>([&](int i) { return vmaxq_f32(a.v[i], b.v[i]); });
}
// Four factors, of which one at a time multiplies a vector.
struct Factors {
  float32x4_t v;
};
[[gnu::always_inline]] inline Factors load_factors(const float* p) {
  return {vld1q_f32(p)};
}
template <int kFactor>
[[gnu::always_inline]] inline F32 fma(Factors a, F32 b, F32 c) {
  return each<F32>([&](int i) { return vfmaq_laneq_f32(c.v[i], b.v[i], a.v, kFactor); });
}
[[gnu::always_inline]] inline F32 negate(F32 a) {
  return each<F32>([&](int i) { return vnegq_f32(a.v[i]); });
}
[[gnu::always_inline]] inline F32 round_to_even(F32 a) {
  return each<F32>([&](int i) { return vrndnq_f32(a.v[i]); });
}

[[gnu::always_inline]] inline Mask less(F32 a, F32 b) {
  return each<Mask>([&](int i) { return vcltq_f32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline Mask equal(F32 a, F32 b) {
  return each<Mask>([&](int i) { return vceqq_f32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline Mask is_nan(F32 a) {
  return each<Mask>([&](int i) { return vmvnq_u32(vceqq_f32(a.v[i], a.v[i])); });
}
[[gnu::always_inline]] inline Mask no_lanes() {
  const uint32x4_t none = vdupq_n_u32(0);
  return {{none, none, none, none}};
}
[[gnu::always_inline]] inline Mask either(Mask a, Mask b) {
  return each<Mask>([&](int i) { return vorrq_u32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline std::uint32_t lane_bits(Mask m) {
  const uint32x4_t bit = {1, 2, 4, 8};
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= vaddvq_u32(vandq_u32(m.v[i], bit)) << (4 * i);
  return bits;
}
[[gnu::always_inline]] inline F32 select(Mask m, F32 yes, F32 no) {
  return each<F32>([&](int i) { return vbslq_f32(m.v[i], yes.v[i], no.v[i]); });
}
// Lanes [0, n) of a, the others of b.
[[gnu::always_inline]] inline F32 select_first(std::int64_t n, F32 a, F32 b) {
  const uint32x4_t lane = {0, 1, 2, 3};
  const uint32x4_t count = vdupq_n_u32(static_cast<std::uint32_t>(n));
  const Mask first = each<Mask>(
      [&](int i) { return vcltq_u32(vaddq_u32(lane, vdupq_n_u32(static_cast<std::uint32_t>(4 * i))), count); });
  return select(first, a, b);
}

[[gnu::always_inline]] inline I32 to_int(F32 a) {
  return each<I32>([&](int i) { return vcvtnq_s32_f32(a.v[i]); });
}
[[gnu::always_inline]] inline F32 to_float(I32 a) {
  return each<F32>([&](int i) { return vcvtq_f32_s32(a.v[i]); });
}
[[gnu::always_inline]] inline I32 magnitude_bits(F32 a) {
  return each<I32>([&](int i) { return vandq_s32(vreinterpretq_s32_f32(a.v[i]), vdupq_n_s32(0x7fffffff)); });
}
[[gnu::always_inline]] inline I32 max(I32 a, I32 b) {
  return each<I32>([&](int i) { return vmaxq_s32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline std::int32_t reduce_max(I32 a) {
  return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.v[0], a.v[1]), vmaxq_s32(a.v[2], a.v[3])));
}
// Sixteen bytes; returns their sum.
[[gnu::always_inline]] inline std::int32_t store_as_bytes(std::int8_t* p, I32 a) {
  const int16x8_t low = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
  const int8x16_t bytes = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
  vst1q_s8(p, bytes);
  return vaddlvq_s8(bytes);
}

// p * 2^n, n whole: added to the exponent, which is the same wherever base/math.h's two factors give a normal number.
[[gnu::always_inline]] inline F32 times_power_of_two(F32 p, F32 n) {
  return each<F32>([&](int i) {
    const int32x4_t whole = vshlq_n_s32(vcvtnq_s32_f32(n.v[i]), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p.v[i]), whole));
  });
}

[[gnu::always_inline]] inline float reduce_max(F32 a) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.v[0], a.v[1]), vmaxq_f32(a.v[2], a.v[3])));
}
[[gnu::always_inline]] inline float32x4_t add_halves_8_and_4(F32 a) {
  return vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
}
[[gnu::always_inline]] inline float32x4_t add_halves_2(float32x4_t a, float32x4_t b) {
  const float64x2_t x = vreinterpretq_f64_f32(a), y = vreinterpretq_f64_f32(b);
  return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(x, y)), vreinterpretq_f32_f64(vzip2q_f64(x, y)));
}
// 8+8, 4+4, 2+2, 1+1, as dot16 ends.
[[gnu::always_inline]] inline float add_halves(F32 a) {
  const float32x4_t s4 = add_halves_8_and_4(a);
  const float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
  return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
}
// The first additions of add_halves, and the others of sixteen sums: lane i becomes add_halves of the i-th.
using Halves = float32x4_t;
[[gnu::always_inline]] inline Halves begin_halves(F32 a) {
  return add_halves_8_and_4(a);
}
[[gnu::always_inline]] inline F32 end_halves(const Halves (&sums)[16]) {
  return each<F32>([&](int i) {
    const Halves* four = sums + 4 * i;
    return vpaddq_f32(add_halves_2(four[0], four[1]), add_halves_2(four[2], four[3]));
  });
}

// Four floats in each of the four quarters.
[[gnu::always_inline]] inline F32 load_quarters(const float* p) {
  const float32x4_t v = vld1q_f32(p);
  return {{v, v, v, v}};
}
// Quarter j of vector i becomes quarter i of vector j.
[[gnu::always_inline]] inline void turn_quarters(F32 (&v)[4]) {
  const F32 a = v[0], b = v[1], c = v[2], d = v[3];
  for (int i = 0; i < 4; ++i) v[i] = {{a.v[i], b.v[i], c.v[i], d.v[i]}};
}
// Lane 4 i + j becomes the sum of quarter i of vector j, halves first, as dot16 ends.
[[gnu::always_inline]] inline F32 add_halves_of_quarters(const F32 (&v)[4]) {
  return each<F32>(
      [&](int i) { return vpaddq_f32(add_halves_2(v[0].v[i], v[1].v[i]), add_halves_2(v[2].v[i], v[3].v[i])); });
}

[[gnu::always_inline]] inline F32 load_f16(const std::uint16_t* p) {
  const float16x8_t low = vreinterpretq_f16_u16(vld1q_u16(p)), high = vreinterpretq_f16_u16(vld1q_u16(p + 8));
  return {{vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
           vcvt_high_f32_f16(high)}};
}
[[gnu::always_inline]] inline F32 load_bf16(const std::uint16_t* p) {
  return each<F32>([&](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)); });
}
[[gnu::always_inline]] inline void store_f16(std::uint16_t* p, F32 a) {
  const Mask nans = is_nan(a);
  for (int i = 0; i < 4; ++i) {
    const uint16x4_t half = vreinterpret_u16_f16(vcvt_f16_f32(a.v[i]));
    const uint16x4_t nan = vorr_u16(vand_u16(half, vdup_n_u16(0x8000)), vdup_n_u16(0x7e00));
    vst1_u16(p + 4 * i, vbsl_u16(vmovn_u32(nans.v[i]), nan, half));
  }
}
[[gnu::always_inline]] inline void store_bf16(std::uint16_t* p, F32 a) {
  const Mask nans = is_nan(a);
  for (int i = 0; i < 4; ++i) {
    const uint32x4_t bits = vreinterpretq_u32_f32(a.v[i]);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t nan = vorrq_u32(vandq_u32(bits, vdupq_n_u32(0x80000000u)), vdupq_n_u32(0x7fc00000u));
    vst1_u16(p + 4 * i, vshrn_n_u32(vbslq_u32(nans.v[i], nan, rounded), 16));
  }
}
[[gnu::always_inline]] inline F32 load_u8_as_float(const std::uint8_t* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
  return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(low))),
           vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(high)))}};
}
[[gnu::always_inline]] inline F32 load_i8_as_float(const std::uint8_t* p) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}

[[gnu::always_inline]] inline Bytes load_bytes(const std::uint8_t* p) {
  return each<Bytes>([&](int i) { return vld1q_u8(p + 16 * i); });
}
[[gnu::always_inline]] inline void store_bytes(std::uint8_t* p, Bytes a) {
  for (int i = 0; i < 4; ++i) vst1q_u8(p + 16 * i, a.v[i]);
}
[[gnu::always_inline]] inline Bytes low_nibbles(Bytes a) {
  return each<Bytes>([&](int i) { return vandq_u8(a.v[i], vdupq_n_u8(0x0f)); });
}
[[gnu::always_inline]] inline Bytes high_nibbles(Bytes a) {
  return each<Bytes>([&](int i) { return vshrq_n_u8(a.v[i], 4); });
}
// a | bits `from`, `from` + 1, ... of b that `mask` keeps after they have moved to bit 4.
template <int from, int mask>
[[gnu::always_inline]] inline Bytes with_high_bits(Bytes a, Bytes b) {
  return each<Bytes>([&](int i) {
    uint8x16_t moved;
    if constexpr (from <= 4) {
      moved = vshlq_n_u8(b.v[i], 4 - from);
    } else {
      moved = vshrq_n_u8(b.v[i], from - 4);
    }
    return vorrq_u8(a.v[i], vandq_u8(moved, vdupq_n_u8(mask)));
  });
}
// Signed weights stay as they are.
[[gnu::always_inline]] inline Bytes from_signed(Bytes a) {
  return a;
}
constexpr int kSignedShift = -1;

// Adds the products of four bytes each: weights (signed, or unsigned below 128) times signed inputs.
[[gnu::always_inline]] inline int32x4_t add_four_products(int32x4_t sum, int8x16_t w, int8x16_t x) {
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(sum, w, x);
#else
  const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
  const int32x4_t high = vpaddlq_s16(vmull_high_s8(w, x));
  return vaddq_s32(sum, vpaddq_s32(low, high));
#endif
}

// The integer sums of sixteen outputs over one block, four elements at a time.
template <int bits>
struct Dot {
  int32x4_t sum[4];

  void start_at(std::int32_t value, int shift) {
    for (int32x4_t& s : sum) s = vdupq_n_s32(static_cast<std::int32_t>(static_cast<std::uint32_t>(value) << shift));
  }
  void start_at_zero() { start_at(0, 0); }
  template <int group>
  void add(Bytes w, std::int32_t x) {
    const int8x16_t four = vreinterpretq_s8_s32(vdupq_n_s32(x));
    for (int i = 0; i < 4; ++i) sum[i] = add_four_products(sum[i], vreinterpretq_s8_u8(w.v[i]), four);
  }
  I32 total() const { return {{sum[0], sum[1], sum[2], sum[3]}}; }
};

[[gnu::always_inline]] inline void prefetch(const void* p) {
  __builtin_prefetch(p);
}
// Into the second-level cache only: for what is not needed soon.
[[gnu::always_inline]] inline void prefetch_far(const void* p) {
  __builtin_prefetch(p, 0, 2);
}

}  // namespace
}  // namespace espalier::cpu
