// The elementary functions of base/math.h, base/float16.h and base/random.h for kernels: the same operations in the
// same order. The files that include this are compiled without contraction, so a fused multiply-add is where fmaf is
// written.
#pragma once

#include <cstdint>

#include "device/cuda/api.h"
#ifndef ESPALIER_CUDA_EMULATED
#include <cuda_fp16.h>
#endif

namespace espalier::cuda {

__device__ inline float infinity() {
  return __uint_as_float(0x7f800000u);
}
__device__ inline float not_a_number() {
  return __uint_as_float(0x7fc00000u);
}
__device__ inline bool is_nan(float x) {
  return x != x;
}
__device__ inline bool is_finite(float x) {
  return (__float_as_uint(x) & 0x7fffffffu) < 0x7f800000u;
}
// NaN counts as minus infinity.
__device__ inline float rank_value(float x) {
  return is_nan(x) ? -infinity() : x;
}

// Without branches, so that several at once overlap.
__device__ inline float exp_f32(float x) {
  constexpr float kLeast = -87.0f, kMost = 88.72283f;
  const float within = x >= kLeast ? (x <= kMost ? x : kMost) : kLeast;
  const float n = rintf(within * 1.44269504f);
  float r = fmaf(n, -0.693359375f, within);
  r = fmaf(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = fmaf(p, r, 1.3981999507e-3f);
  p = fmaf(p, r, 8.3334519073e-3f);
  p = fmaf(p, r, 4.1665795894e-2f);
  p = fmaf(p, r, 1.6666665459e-1f);
  p = fmaf(p, r, 5.0000001201e-1f);
  p = fmaf(p, r * r, r);
  p = p + 1.0f;
  const int whole = static_cast<int>(n);
  const int half = whole >> 1;
  const float a = __uint_as_float(static_cast<std::uint32_t>(half + 127) << 23);
  const float b = __uint_as_float(static_cast<std::uint32_t>(whole - half + 127) << 23);
  const float result = p * a * b;
  return x != x ? x : x < kLeast ? 0.0f : x > kMost ? infinity() : result;
}

__device__ inline float silu_f32(float x) {
  return x / (1.0f + exp_f32(-x));
}

// 1 / x of x in [1, 2), off by two units of its last place at most.
__device__ inline float near_reciprocal(float x) {
#ifdef ESPALIER_CUDA_EMULATED
  return 1.0f / x;
#else
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}
// 127 / x and x / 127 as IEEE rounds them, of x in [2^-100, 2^128), without the branches that a division has for other
// numbers: corrected by what a first quotient leaves, which is exact.
__device__ inline float divide_127_by(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  const float m = __uint_as_float((bits & 0x007fffffu) | 0x3f800000u), guess = near_reciprocal(m);
  const float inverse = fmaf(guess, fmaf(-m, guess, 1.0f), guess), first = 127.0f * inverse;
  const float quotient = fmaf(fmaf(-m, first, 127.0f), inverse, first);
  return __uint_as_float(__float_as_uint(quotient) - ((bits & 0x7f800000u) - 0x3f800000u));
}
__device__ inline float divide_by_127(float x) {
  const float first = x * (1.0f / 127.0f);
  return fmaf(fmaf(-127.0f, first, x), 1.0f / 127.0f, first);
}

// Of finite x > 0.
__device__ inline double log_f64(double x) {
  constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kOddInverses[12] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                                       1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
  int subnormal = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    subnormal = 54;
  }
  const auto bits = static_cast<std::uint64_t>(__double_as_longlong(x));
  int exponent = static_cast<int>(bits >> 52) - 1023 - subnormal;
  double m = __longlong_as_double(static_cast<long long>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull));
  if (m > 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double sum = kOddInverses[11];
  for (int i = 11; i-- > 0;) sum = fma(sum, z, kOddInverses[i]);
  const double log_m = 2.0 * s * sum;
  const double n = exponent;
  return fma(n, kLn2High, fma(n, kLn2Low, log_m));
}

__device__ inline std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__device__ inline double uniform(std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t bits = mix64(mix64(seed + 0x9e3779b97f4a7c15ull) + 0x9e3779b97f4a7c15ull * (position + 1));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

__device__ inline float widen_f16(std::uint16_t half) {
#ifdef ESPALIER_CUDA_EMULATED
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu, mantissa = half & 0x3ffu;
  if (exponent == 0x1f) return __uint_as_float(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
  return __uint_as_float(sign | __float_as_uint(static_cast<float>(mantissa) * 0x1p-24f));
#else
  return __half2float(__ushort_as_half(half));  // exact, subnormals too
#endif
}

__device__ inline std::uint16_t round_to_f16(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    const float shifted = __uint_as_float(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (__float_as_uint(shifted) - 0x3f000000u));
  }
  const std::uint32_t odd = magnitude >> 13 & 1u;
  return static_cast<std::uint16_t>(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

__device__ inline float widen_bf16(std::uint16_t value) {
  return __uint_as_float(static_cast<std::uint32_t>(value) << 16);
}

__device__ inline std::uint16_t round_to_bf16(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | 0x7fc0u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// Elements as they are stored, by a type that names them.
struct F32Element {
  using Stored = float;
  __device__ static float widen(float x) { return x; }
  __device__ static float round(float x) { return x; }
};
struct F16Element {
  using Stored = std::uint16_t;
  __device__ static float widen(std::uint16_t x) { return widen_f16(x); }
  __device__ static std::uint16_t round(float x) { return round_to_f16(x); }
};
struct Bf16Element {
  using Stored = std::uint16_t;
  __device__ static float widen(std::uint16_t x) { return widen_bf16(x); }
  __device__ static std::uint16_t round(float x) { return round_to_bf16(x); }
};

}  // namespace espalier::cuda
