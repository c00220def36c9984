// What a machine can do at most, measured beside what a kernel does: multiply-adds of floats in registers, and plain
// reads of the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/thread_pool.h"
#include "cpu_bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif

namespace espalier {

inline constexpr int kIndependentSums = 12;  // more than latency times units, few enough for sixteen registers

// So many rounds of kIndependentSums multiply-adds; returns something that depends on all of them.
#if defined(__x86_64__)
[[gnu::target("avx512f")]] inline float multiply_add_512(std::int64_t rounds) {
  __m512 sum[kIndependentSums], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
  for (auto& s : sum) s = a;
  for (std::int64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (auto& s : sum) s = _mm512_fmadd_ps(s, a, b);
  for (int i = 1; i < kIndependentSums; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  return _mm512_cvtss_f32(sum[0]);
}
inline float multiply_add_256(std::int64_t rounds) {
  __m256 sum[kIndependentSums], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
  for (auto& s : sum) s = a;
  for (std::int64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (auto& s : sum) s = _mm256_fmadd_ps(s, a, b);
  for (int i = 1; i < kIndependentSums; ++i) sum[0] = _mm256_add_ps(sum[0], sum[i]);
  return _mm256_cvtss_f32(sum[0]);
}
struct MultiplyAdds {
  explicit MultiplyAdds(std::string_view isa) : wide(isa == "avx512") {}
  int lanes() const { return wide ? 16 : 8; }
  float operator()(std::int64_t rounds) const { return wide ? multiply_add_512(rounds) : multiply_add_256(rounds); }
  bool wide;
};
#else
struct MultiplyAdds {
  explicit MultiplyAdds(std::string_view) {}
  int lanes() const { return 4; }
  float operator()(std::int64_t rounds) const {
    float32x4_t sum[kIndependentSums], a = vdupq_n_f32(0.5f), b = vdupq_n_f32(0.25f);
    for (auto& s : sum) s = a;
    for (std::int64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
      for (auto& s : sum) s = vfmaq_f32(s, a, b);
    for (int i = 1; i < kIndependentSums; ++i) sum[0] = vaddq_f32(sum[0], sum[i]);
    return vgetq_lane_f32(sum[0], 0);
  }
};
#endif

// The best of many short runs on all threads.
inline double multiply_adds_per_second(std::string_view isa, ThreadPool& pool) {
  constexpr std::int64_t kRounds = 20000;
  const MultiplyAdds run(isa);
  double best = 1e30;
  for (int repeat = 0; repeat < 200; ++repeat)
    best = std::min(best, seconds_of([&] {
                      pool.run(pool.threads(), [&](std::int64_t begin, std::int64_t end) {
                        volatile float kept = 0;
                        for (std::int64_t i = begin; i < end; ++i) kept = run(kRounds);
                        (void)kept;
                      });
                    }));
  return static_cast<double>(pool.threads() * kRounds * kIndependentSums * run.lanes()) / best;
}

// Reads every byte once, on all threads.
inline void read_plainly(const std::byte* bytes, std::int64_t size, ThreadPool& pool) {
  constexpr std::int64_t kPiece = 16384;
  pool.run((size + kPiece - 1) / kPiece, [&](std::int64_t begin, std::int64_t end) {
    std::uint64_t sums[32] = {};
    const std::int64_t last = std::min(end * kPiece, size);
    for (std::int64_t at = begin * kPiece; at + 256 <= last; at += 256) {
      std::uint64_t line[32];
      std::memcpy(line, bytes + at, sizeof line);
      for (int i = 0; i < 32; ++i) sums[i] += line[i];
    }
    volatile std::uint64_t kept = 0;
    for (std::uint64_t sum : sums) kept = kept + sum;
  });
}

}  // namespace espalier
