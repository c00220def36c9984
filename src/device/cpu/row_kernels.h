// The row-wise ops of device.h over the vector type of a simd_*.h, which must be included before. Internal linkage.
#pragma once

#include "device/cpu/kernels.h"

namespace espalier::cpu {
namespace {

constexpr float kInfinity = __builtin_inff();

// base/math.h's exp_f32, operation by operation, where it does not overflow: of N vectors side by side, since each
// operation waits for the one before.
template <int N>
[[gnu::always_inline]] inline void exp_below_88(F32 (&x)[N]) {
  F32 n[N], r[N], p[N];
  const auto horner = [&](float coefficient) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) p[i] = fma(p[i], r[i], broadcast(coefficient));
  };
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) n[i] = round_to_even(mul(x[i], broadcast(1.44269504f)));
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) r[i] = fma(n[i], broadcast(-0.693359375f), x[i]);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) r[i] = fma(n[i], broadcast(2.12194440e-4f), r[i]), p[i] = broadcast(1.9875691500e-4f);
  horner(1.3981999507e-3f);
  horner(8.3334519073e-3f);
  horner(4.1665795894e-2f);
  horner(1.6666665459e-1f);
  horner(5.0000001201e-1f);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) p[i] = fma(p[i], mul(r[i], r[i]), r[i]);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) p[i] = times_power_of_two(add(p[i], broadcast(1.0f)), n[i]);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) x[i] = select(less(x[i], broadcast(-87.0f)), broadcast(0.0f), p[i]);
}

inline F32 exp_below_88(F32 x) {
  F32 one[1] = {x};
  exp_below_88(one);
  return one[0];
}

inline F32 exp_f32(F32 x) {
  return select(less(broadcast(88.72283f), x), broadcast(kInfinity), exp_below_88(x));
}

inline F32 silu_f32(F32 x) {
  return div(x, add(broadcast(1.0f), exp_f32(negate(x))));
}

// NaN counts as minus infinity.
inline F32 rank_value(F32 x) {
  return select(is_nan(x), broadcast(-kInfinity), x);
}

// Calls body(i, count) for each vector of n elements, the last one short.
template <typename Body>
inline void for_each_vector(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kPanel <= n; i += kPanel) body(i, kPanel);
  if (i < n) body(i, n - i);
}

inline F32 load_up_to(const float* p, std::int64_t count) {
  return count == kPanel ? load(p) : load_first(p, count);
}
inline void store_up_to(float* p, F32 a, std::int64_t count) {
  if (count == kPanel) {
    store(p, a);
  } else {
    store_first(p, a, count);
  }
}

void rms_norm(const float* x, const float* w, float eps, std::int64_t dim, float* y) {
  F32 squares = broadcast(0.0f);
  for_each_vector(dim, [&](std::int64_t i, std::int64_t count) {
    const F32 a = load_up_to(x + i, count);
    squares = select_first(count, fma(a, a, squares), squares);
  });
  const float mean = add_halves(squares) / static_cast<float>(dim);
  const F32 s = broadcast(1.0f / __builtin_sqrtf(mean + eps));
  for_each_vector(dim, [&](std::int64_t i, std::int64_t count) {
    store_up_to(y + i, mul(mul(load_up_to(x + i, count), s), load_up_to(w + i, count)), count);
  });
}

void rope(float* head, const float* cosine, const float* sine, std::int64_t half) {
  for_each_vector(half, [&](std::int64_t j, std::int64_t count) {
    const F32 a = load_up_to(head + j, count), b = load_up_to(head + half + j, count);
    const F32 c = load_up_to(cosine + j, count), s = load_up_to(sine + j, count);
    store_up_to(head + j, fma(a, c, negate(mul(b, s))), count);
    store_up_to(head + half + j, fma(b, c, mul(a, s)), count);
  });
}

template <void (*store_half)(std::uint16_t*, F32)>
void to_half(const float* x, std::uint16_t* y, std::int64_t n) {
  for_each_vector(n, [&](std::int64_t i, std::int64_t count) {
    if (count == kPanel) {
      store_half(y + i, load(x + i));
      return;
    }
    std::uint16_t rest[kPanel];
    store_half(rest, load_first(x + i, count));
    __builtin_memcpy(y + i, rest, static_cast<std::size_t>(count) * sizeof(std::uint16_t));
  });
}

void swiglu(const float* gate, const float* up, float* y, std::int64_t n) {
  for_each_vector(n, [&](std::int64_t i, std::int64_t count) {
    store_up_to(y + i, mul(silu_f32(load_up_to(gate + i, count)), load_up_to(up + i, count)), count);
  });
}

void silu(float* x, std::int64_t n) {
  for_each_vector(
      n, [&](std::int64_t i, std::int64_t count) { store_up_to(x + i, silu_f32(load_up_to(x + i, count)), count); });
}

void add_rows(float* x, const float* y, std::int64_t n) {
  for_each_vector(n, [&](std::int64_t i, std::int64_t count) {
    store_up_to(x + i, add(load_up_to(x + i, count), load_up_to(y + i, count)), count);
  });
}

std::int32_t argmax(const float* x, std::int64_t n) {
  F32 best = broadcast(-kInfinity);
  for_each_vector(n, [&](std::int64_t i, std::int64_t count) {
    const F32 a = rank_value(load_up_to(x + i, count));
    best = select_first(count, max(a, best), best);
  });
  const F32 largest = broadcast(reduce_max(best));
  for (std::int64_t i = 0; i < n; i += kPanel) {
    const std::int64_t count = n - i < kPanel ? n - i : kPanel;
    const std::uint32_t lanes = lane_bits(equal(rank_value(load_up_to(x + i, count)), largest)) & ((1u << count) - 1u);
    if (lanes != 0) return static_cast<std::int32_t>(i + __builtin_ctz(lanes));
  }
  return 0;
}

// A heap of the k best so far with the worst on top: by value, and among equals the higher id is worse.
struct BestHeap {
  float* value;
  std::int32_t* id;
  std::int64_t size;

  bool worse(std::int64_t a, std::int64_t b) const {
    return value[a] < value[b] || (value[a] == value[b] && id[a] > id[b]);
  }
  void swap(std::int64_t a, std::int64_t b) {
    const float v = value[a];
    const std::int32_t i = id[a];
    value[a] = value[b], id[a] = id[b];
    value[b] = v, id[b] = i;
  }
  void sink(std::int64_t i) {
    while (2 * i + 1 < size) {
      std::int64_t child = 2 * i + 1;
      if (child + 1 < size && worse(child + 1, child)) ++child;
      if (!worse(child, i)) return;
      swap(i, child);
      i = child;
    }
  }
  void build() {
    for (std::int64_t i = size / 2; i-- > 0;) sink(i);
  }
  void replace_worst(float v, std::int32_t i) {
    value[0] = v, id[0] = i;
    sink(0);
  }
  // The best first: the worst goes to the end, again and again.
  void sort() {
    while (size > 1) {
      swap(0, --size);
      sink(0);
    }
  }
};

// Ids ascend, so a later value displaces the worst only if it is larger; NaN never is.
void top_k(const float* x, std::int64_t n, std::int64_t k, float* value, std::int32_t* id) {
  for (std::int64_t i = 0; i < k; ++i) {
    value[i] = x[i] != x[i] ? -kInfinity : x[i];
    id[i] = static_cast<std::int32_t>(i);
  }
  BestHeap best{value, id, k};
  best.build();
  for (std::int64_t i = k; i < n; i += kPanel) {
    const std::int64_t count = n - i < kPanel ? n - i : kPanel;
    std::uint32_t lanes = lane_bits(less(broadcast(value[0]), load_up_to(x + i, count))) & ((1u << count) - 1u);
    for (; lanes != 0; lanes &= lanes - 1) {
      const std::int64_t at = i + __builtin_ctz(lanes);
      if (x[at] > value[0]) best.replace_worst(x[at], static_cast<std::int32_t>(at));
    }
  }
  best.sort();
}

ExpSum exp_sum(const float* x, float scale, std::int64_t n) {
  const F32 factor = broadcast(scale);
  F32 best = broadcast(-kInfinity);
  for_each_vector(n, [&](std::int64_t i, std::int64_t count) {
    const F32 t = rank_value(mul(factor, load_up_to(x + i, count)));
    best = select_first(count, max(t, best), best);
  });
  ExpSum result{reduce_max(best), 0.0f};
  if (!(result.max < kInfinity && result.max > -kInfinity)) return result;
  const F32 largest = broadcast(result.max);
  // Element j goes to lane j mod 256: sixteen vectors of sixteen.
  F32 sums[kPanel];
  for (F32& sum : sums) sum = broadcast(0.0f);
  const auto term = [&](std::int64_t i, std::int64_t count) {
    return exp_f32(sub(rank_value(mul(factor, load_up_to(x + i, count))), largest));
  };
  std::int64_t i = 0;
  for (; i + kPanel * kPanel <= n; i += kPanel * kPanel)
    for (int v = 0; v < kPanel; ++v) sums[v] = add(sums[v], term(i + v * kPanel, kPanel));
  for (int v = 0; i < n; ++v, i += kPanel) {
    const std::int64_t count = n - i < kPanel ? n - i : kPanel;
    sums[v] = select_first(count, add(sums[v], term(i, count)), sums[v]);
  }
  for (int half = kPanel / 2; half >= 1; half /= 2)
    for (int v = 0; v < half; ++v) sums[v] = add(sums[v], sums[v + half]);
  result.sum = add_halves(sums[0]);
  return result;
}

}  // namespace
}  // namespace espalier::cpu
