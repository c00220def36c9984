// Elementary functions with one result on every machine: built from IEEE operations in a fixed order, so that no
// libm enters the arithmetic. The float functions are the ones kernels vectorise; the double ones serve the rope
// tables and the sampler's log-probabilities. Internal linkage where inline, for the reason given in float16.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace espalier {

// e^x for attention, SiLU and the sampler. +0 below -87, +inf above 88.7228; relative error below 2 ulp between.
// x = n*ln2 + r, |r| <= ln2/2; the polynomial is the classic single-precision one of the Cephes library.
static inline float exp_f32(float x) {
  if (x != x) return x;
  if (x < -87.0f) return 0.0f;
  if (x > 88.72283f) return std::numeric_limits<float>::infinity();
  const float n = std::nearbyint(x * 1.44269504f);
  float r = std::fma(n, -0.693359375f, x);
  r = std::fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = std::fma(p, r * r, r);
  p = p + 1.0f;
  // 2^n in two factors: n reaches 128, which no float exponent holds.
  const int whole = static_cast<int>(n);
  const int half = whole >> 1;
  const float a = std::bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23);
  const float b = std::bit_cast<float>(static_cast<std::uint32_t>(whole - half + 127) << 23);
  return p * a * b;
}

// x / (1 + e^-x), three roundings after the exponential.
static inline float silu_f32(float x) {
  return x / (1.0f + exp_f32(-x));
}

double exp_f64(double x);
double log_f64(double x);            // x > 0; -inf at 0, NaN below
double pow_f64(double x, double y);  // x > 0
double sin_f64(double x);            // |x| <= 2^30
double cos_f64(double x);            // |x| <= 2^30

}  // namespace espalier
