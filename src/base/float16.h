// float16 and bfloat16 to float32 and back, rounding to nearest even, by the same integer code on every machine.
// Everything here has internal linkage: files compiled for one instruction set must not share inline functions.
#pragma once

#include <bit>
#include <cstdint>

namespace espalier {

// Without branches, so that loops over it are vectors.
static inline float f16_to_f32(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fffu) << 13;
  const float tiny = static_cast<float>(static_cast<std::int32_t>(half & 0x3ffu)) * 0x1p-24f;  // exact
  const std::uint32_t finite = magnitude < 0x00800000u ? std::bit_cast<std::uint32_t>(tiny) : magnitude + 0x38000000u;
  return std::bit_cast<float>(sign | (magnitude < 0x0f800000u ? finite : magnitude | 0x7f800000u));
}

static inline std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);   // any NaN is one NaN
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and above round to inf
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 aligns the float's last place with 2^-24, so the addition rounds to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t odd = magnitude >> 13 & 1u;
  return static_cast<std::uint16_t>(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

static inline float bf16_to_f32(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

static inline std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | 0x7fc0u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace espalier
