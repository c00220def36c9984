// The number types of the card as the fake computes them: 16-bit floats by their bits, rounded to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace ascend_fake {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

inline float widened(F16 half) {
#if defined(__F16C__)
  return _cvtsh_ss(half.bits);
#elif defined(__aarch64__)
  return static_cast<float>(std::bit_cast<__fp16>(half.bits));
#else
  const uint32_t sign = static_cast<uint32_t>(half.bits & 0x8000u) << 16;
  const uint32_t exponent = (half.bits >> 10) & 31u;
  const uint32_t mantissa = half.bits & 1023u;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -value : value;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
#endif
}

inline float widened(BF16 half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half.bits) << 16);
}

inline BF16 to_bf16(float value) {
  if (std::isnan(value)) return {0x7FC0};
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return {static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16)};
}

inline F16 to_f16(float value) {
#if defined(__F16C__)
  return {static_cast<uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT))};
#elif defined(__aarch64__)
  return {std::bit_cast<uint16_t>(static_cast<__fp16>(value))};
#else
  if (std::isnan(value)) return {0x7E00};
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (size >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7C00)};
  if (size < 0x1p-14f) return {static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(size * 0x1p24f)))};
  const uint32_t bits = std::bit_cast<uint32_t>(size);
  return {static_cast<uint16_t>(sign | ((bits + 0xFFFu + (bits >> 13 & 1u)) >> 13) - (112u << 10))};
#endif
}

// f32 with the eleven mantissa bits that a matrix unit keeps under HF32.
inline float to_hf32(float value) {
  if (!std::isfinite(value)) return value;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFu + (bits >> 12 & 1u)) & ~0xFFFu);
}

// A number that looks random and depends on these alone.
inline uint64_t mixed(uint64_t seed, uint64_t a, uint64_t b = 0) {
  uint64_t x = seed * 0x9E3779B97F4A7C15u + a * 0xBF58476D1CE4E5B9u + b * 0x94D049BB133111EBu + 0x2545F4914F6CDD1Du;
  for (int round = 0; round < 2; ++round) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    x ^= x >> 31;
  }
  return x;
}

}  // namespace ascend_fake
