// The linears of Arm processors with float weights, for one row and for full tiles: inputs are lanes of a register, so
// none is spread over a register of its own. Other numbers of rows keep the common kernel. simd_neon.h must be included
// before. Internal linkage.
#pragma once

#include "device/cpu/linear_kernels.h"

namespace espalier::cpu {
namespace {

// acc + w * lane of x, fused.
template <int lane>
[[gnu::always_inline]] inline F32 fma_lane(F32 w, float32x4_t x, F32 acc) {
  return each<F32>([&](int i) { return vfmaq_laneq_f32(acc.v[i], w.v[i], x, lane); });
}

template <std::int64_t kBytes>
[[gnu::always_inline]] inline void prefetch_lines(const std::uint8_t* p) {
#pragma GCC unroll 4
  for (std::int64_t line = 0; line < kBytes; line += 64) prefetch(p + line);
}

// P panels from number `index` on for one row, four inputs at a time.
template <typename Type, int P>
[[gnu::flatten]] void row_of_float_panels(const LinearCall& call, std::int64_t index) {
  constexpr std::int64_t kStep = kPanel * Type::kBytes;
  const std::uint8_t* const panels = call.panels + index * call.panel_bytes;
  const float* const x = static_cast<const float*>(call.tiles);
  F32 acc[P];
#pragma GCC unroll 2
  for (F32& sum : acc) sum = broadcast(0.0f);
  std::int64_t k = 0;
  for (; k + 4 <= call.inputs; k += 4) {
    const float32x4_t four = vld1q_f32(x + k);
#pragma GCC unroll 2
    for (int i = 0; i < P; ++i) {
      const std::uint8_t* const p = panels + i * call.panel_bytes + k * kStep;
      prefetch_lines<4 * kStep>(p + kPrefetchBytes / P);
      for_each_group<4>([&]<int j>(Group<j>) { acc[i] = fma_lane<j>(Type::get(p + j * kStep), four, acc[i]); });
    }
  }
  for (; k < call.inputs; ++k)
#pragma GCC unroll 2
    for (int i = 0; i < P; ++i)
      acc[i] = fma(Type::get(panels + i * call.panel_bytes + k * kStep), broadcast(x[k]), acc[i]);
#pragma GCC unroll 2
  for (int i = 0; i < P; ++i) store_outputs(call, 0, index + i, acc[i]);
}

// One panel for a full tile.
template <typename Type>
[[gnu::flatten]] void float_panel_of_tile(const LinearCall& call, std::int64_t index, std::int64_t first) {
  static_assert(kTileRows == 4, "a register holds one input of all rows");
  constexpr std::int64_t kStep = kPanel * Type::kBytes;
  const std::uint8_t* p = call.panels + index * call.panel_bytes;
  const float* x = static_cast<const float*>(call.tiles) + first * call.inputs;
  F32 acc[kTileRows];
#pragma GCC unroll 4
  for (F32& sum : acc) sum = broadcast(0.0f);
  for (std::int64_t k = 0; k < call.inputs; ++k, p += kStep, x += kTileRows) {
    prefetch(p + kPrefetchBytes);
    const F32 w = Type::get(p);
    const float32x4_t rows = vld1q_f32(x);
    for_each_group<kTileRows>([&]<int r>(Group<r>) { acc[r] = fma_lane<r>(w, rows, acc[r]); });
  }
#pragma GCC unroll 4
  for (int r = 0; r < kTileRows; ++r) store_outputs(call, first + r, index, acc[r]);
}

// Panels [begin, end) for one tile of rows.
template <typename Type, int R>
void lanes_of_tile(const LinearCall& call, std::int64_t begin, std::int64_t end, std::int64_t first) {
  if constexpr (R == kTileRows) {
    for (; begin < end; ++begin) float_panel_of_tile<Type>(call, begin, first);
  } else {
    float_tile<Type, R>(call, begin, end, first);
  }
}

template <typename Type>
void lanes_linear(const LinearCall& call, std::int64_t panel_begin, std::int64_t panel_end) {
  if (call.rows == 1) {
    for (; panel_begin + 2 <= panel_end; panel_begin += 2) row_of_float_panels<Type, 2>(call, panel_begin);
    if (panel_begin < panel_end) row_of_float_panels<Type, 1>(call, panel_begin);
    return;
  }
  for (std::int64_t i = panel_begin; i < panel_end; i += kGroupPanels) {
    const std::int64_t end = i + kGroupPanels < panel_end ? i + kGroupPanels : panel_end;
    for_each_tile(call.rows, [&](auto count, std::int64_t first) {
      lanes_of_tile<Type, decltype(count)::kCount>(call, i, end, first);
    });
  }
}

constexpr Kernels with_lanes(Kernels kernels) {
  kernels.linear_f32 = lanes_linear<WeightF32>;
  kernels.linear_f16 = lanes_linear<WeightF16>;
  kernels.linear_bf16 = lanes_linear<WeightBf16>;
  return kernels;
}

}  // namespace
}  // namespace espalier::cpu
