// The block-quantised linears of Arm processors that have products of bytes, from two rows on: half a panel at a time,
// whose integer and float sums for a tile of rows fit the registers together. simd_neon.h must be included before.
// Internal linkage.
//
// How a half is stored and multiplied is up to a Unit, SdotUnit here or SmmlaUnit of linear_kernels_i8mm.h:
//   Half                      the integers of a block of half a panel, signed, with scales and minima as floats
//   store_groups              puts inputs 8k .. 8k+7, a quarter of a panel, into a Half
//   store_floats              puts the scales or minima of a half panel into one
//   Sums<R>                   the float sums of half a panel for R rows
//   add_part, add_minimum     a block of a half into the sums, in the order of the contract
//   quarter                   four sums of one row, outputs ascending
// Any offset of the format is subtracted before, so all integers are signed. One row alone: linear_kernels_one_row.h.
#pragma once

#include "device/cpu/linear_kernels.h"
#include "device/cpu/linear_kernels_one_row.h"

namespace espalier::cpu {
namespace {

constexpr int kHalfPanel = kPanel / 2;
constexpr int kEights = kBlock / 8;  // groups of eight inputs

// Products by sdot: four inputs of four outputs in a register of weights, the same inputs of up to four rows in a
// register of inputs, which is how tiles have them.
struct SdotUnit {
  static constexpr int kRegisters = kHalfPanel / 4;
  using Floats = float[kHalfPanel];

  struct Half {
    int8x16_t q[kBlock / 4][kRegisters];
    Floats scale[2];
    Floats minimum;
  };

  static void store_groups(int32x4_t first, int32x4_t second, int k, int quarter, Half& to) {
    to.q[2 * k][quarter] = vreinterpretq_s8_s32(first);
    to.q[2 * k + 1][quarter] = vreinterpretq_s8_s32(second);
  }
  static void store_floats(float32x4_t low, float32x4_t high, Floats& to) {
    vst1q_f32(to, low);
    vst1q_f32(to + 4, high);
  }

  template <int R>
  struct Sums {
    float32x4_t v[R][kRegisters];
  };

  // The words of all rows; fewer than four are followed by what comes next in the tile.
  template <int R>
  static int8x16_t inputs(const BlockActivations<R>& x, int g) {
    return vld1q_s8(reinterpret_cast<const std::int8_t*>(&x) + 4 * R * g);
  }

  template <typename Format, int R, int part>
  static void add_part(const Half& w, const BlockActivations<R>& x, Sums<R>& acc) {
    constexpr int kGroups = kBlock / 4 / Format::kParts, kFirst = part * kGroups;
    int32x4_t sum[R][kRegisters];
#pragma GCC unroll 4
    for (auto& of_row : sum)
#pragma GCC unroll 2
      for (int32x4_t& s : of_row) s = vdupq_n_s32(0);
#pragma GCC unroll 8
    for (int g = kFirst; g < kFirst + kGroups; ++g) {
      const int8x16_t words = inputs<R>(x, g);
      for_each_group<R>([&]<int r>(Group<r>) {
        for (int i = 0; i < kRegisters; ++i) sum[r][i] = vdotq_laneq_s32(sum[r][i], w.q[g][i], words, r);
      });
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int i = 0; i < kRegisters; ++i) {
        const float32x4_t scale = vmulq_n_f32(vld1q_f32(w.scale[part] + 4 * i), x.d[r]);
        acc.v[r][i] = vfmaq_f32(acc.v[r][i], scale, vcvtq_f32_s32(sum[r][i]));
      }
  }

  template <int R>
  static void add_minimum(const Half& w, const BlockActivations<R>& x, Sums<R>& acc) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int i = 0; i < kRegisters; ++i)
        acc.v[r][i] = vfmaq_n_f32(acc.v[r][i], vld1q_f32(w.minimum + 4 * i), x.d_sum[r]);
  }

  template <int R>
  static float32x4_t quarter(const Sums<R>& sums, int r, int i) {
    return sums.v[r][i];
  }
};

template <typename Unit>
struct HalvedBlock {
  typename Unit::Half half[2];
  static_assert(2 * sizeof(typename Unit::Half) == expanded_panel_bytes(kBlock), "scratch holds a panel of them");
};

template <typename Format>
inline int32x4_t as_signed(uint8x16_t q) {
  if constexpr (Format::kOffsetShift >= 0) q = vsubq_u8(q, vdupq_n_u8(1u << Format::kOffsetShift));
  return vreinterpretq_s32_u8(q);
}

// Block b of a panel with `blocks` blocks.
template <typename Unit, typename Format>
inline void halve_block(const std::uint8_t* panel, std::int64_t blocks, std::int64_t b, HalvedBlock<Unit>& to) {
  DecodedBlock<Format::kParts> w;
  decode_block<Format>(panel, blocks, b, w);
#pragma GCC unroll 4
  for (int k = 0; k < kEights; ++k)
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      Unit::store_groups(as_signed<Format>(w.q[2 * k].v[i]), as_signed<Format>(w.q[2 * k + 1].v[i]), k, i % 2,
                         to.half[i / 2]);
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    for (int part = 0; part < Format::kParts; ++part)
      Unit::store_floats(w.scale[part].v[2 * h], w.scale[part].v[2 * h + 1], to.half[h].scale[part]);
    if constexpr (Format::kMinimum) Unit::store_floats(w.minimum.v[2 * h], w.minimum.v[2 * h + 1], to.half[h].minimum);
  }
}

template <typename Unit, typename Format, int R>
inline void add_half(const typename Unit::Half& w, const BlockActivations<R>& x, typename Unit::template Sums<R>& acc) {
  Unit::template add_part<Format, R, 0>(w, x, acc);
  if constexpr (Format::kParts == 2) Unit::template add_part<Format, R, 1>(w, x, acc);
  if constexpr (Format::kMinimum) Unit::template add_minimum<R>(w, x, acc);
}

template <typename Sums>
inline void start_at_zero(Sums& sums) {
  for (auto& of_rows : sums.v)
    for (float32x4_t& sum : of_rows) sum = vdupq_n_f32(0.0f);
}

template <typename Unit, int R>
inline void store_tile(const LinearCall& call, std::int64_t panel, std::int64_t first,
                       const typename Unit::template Sums<R> (&halves)[2]) {
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const auto quarter = [&](int i) { return Unit::template quarter<R>(halves[i / 2], r, i % 2); };
    store_outputs(call, first + r, panel, each<F32>(quarter));
  }
}

// One tile of rows: each block of the panel is used as soon as it is decoded. Flattened, like the loops below: nothing
// in them may become a call.
template <typename Unit, typename Format, int R>
[[gnu::flatten]] void halved_panel_for_one_tile(const LinearCall& call, std::int64_t index, GroupAhead& ahead) {
  const std::int64_t blocks = call.inputs / kBlock;
  const BlockActivations<R>* const x = block_tile<R>(call.tiles, 0, blocks);
  typename Unit::template Sums<R> acc[2];
  for (auto& half : acc) start_at_zero(half);
  for (std::int64_t b = 0; b < blocks; ++b) {
    ahead.fetch();
    HalvedBlock<Unit> w;
    halve_block<Unit, Format>(call.panels + index * call.panel_bytes, blocks, b, w);
    for (int h = 0; h < 2; ++h) add_half<Unit, Format, R>(w.half[h], x[b], acc[h]);
  }
  store_tile<Unit, R>(call, index, 0, acc);
}

template <typename Unit, typename Format, int R>
[[gnu::flatten]] void halved_tile(const LinearCall& call, const HalvedBlock<Unit>* panel, std::int64_t index,
                                  std::int64_t first) {
  const std::int64_t blocks = call.inputs / kBlock;
  const BlockActivations<R>* const x = block_tile<R>(call.tiles, first, blocks);
  typename Unit::template Sums<R> acc[2];
  for (int h = 0; h < 2; ++h) {
    typename Unit::template Sums<R> sums;
    start_at_zero(sums);
    for (std::int64_t b = 0; b < blocks; ++b) add_half<Unit, Format, R>(panel[b].half[h], x[b], sums);
    acc[h] = sums;
  }
  store_tile<Unit, R>(call, index, first, acc);
}

template <typename Unit, typename Format>
[[gnu::flatten]] void halve_panel(const LinearCall& call, std::int64_t index, GroupAhead& ahead,
                                  HalvedBlock<Unit>* to) {
  const std::int64_t blocks = call.inputs / kBlock;
  for (std::int64_t b = 0; b < blocks; ++b) {
    ahead.fetch();
    halve_block<Unit, Format>(call.panels + index * call.panel_bytes, blocks, b, to[b]);
  }
}

// Several tiles: the whole panel is decoded once, into memory that stays in the cache.
template <typename Unit, typename Format>
void halved_panel_for_tiles(const LinearCall& call, std::int64_t index, GroupAhead& ahead) {
  auto* const panel = reinterpret_cast<HalvedBlock<Unit>*>(call.scratch);
  halve_panel<Unit, Format>(call, index, ahead, panel);
  for_each_tile(call.rows, [&](auto count, std::int64_t first) {
    halved_tile<Unit, Format, decltype(count)::kCount>(call, panel, index, first);
  });
}

template <typename Unit, typename Format>
void halved_panel(const LinearCall& call, std::int64_t index, GroupAhead& ahead) {
  if (call.rows > kTileRows) {
    halved_panel_for_tiles<Unit, Format>(call, index, ahead);
  } else {
    with_rows(call.rows, [&](auto count) {
      halved_panel_for_one_tile<Unit, Format, decltype(count)::kCount>(call, index, ahead);
    });
  }
}

template <typename Unit, typename Format>
void halved_linear(const LinearCall& call, std::int64_t panel_begin, std::int64_t panel_end) {
  if (call.rows == 1) return linear_of_one_row<Format>(call, panel_begin, panel_end);
  for (std::int64_t i = panel_begin; i < panel_end; i += kGroupPanels) {
    const std::int64_t end = i + kGroupPanels < panel_end ? i + kGroupPanels : panel_end;
    GroupAhead ahead(call, i, end - i);
    for (std::int64_t j = i; j < end; ++j) halved_panel<Unit, Format>(call, j, ahead);
  }
}

template <typename Unit>
constexpr Kernels with_halved_linears(Kernels kernels) {
  kernels.linear_q4_0 = halved_linear<Unit, FormatQ4_0>;
  kernels.linear_q4_1 = halved_linear<Unit, FormatQ4_1>;
  kernels.linear_q5_0 = halved_linear<Unit, FormatQ5_0>;
  kernels.linear_q5_1 = halved_linear<Unit, FormatQ5_1>;
  kernels.linear_q8_0 = halved_linear<Unit, FormatQ8_0>;
  kernels.linear_q4_k = halved_linear<Unit, FormatQ4_K>;
  kernels.linear_q5_k = halved_linear<Unit, FormatQ5_K>;
  kernels.linear_q6_k = halved_linear<Unit, FormatQ6_K>;
  return kernels;
}

}  // namespace
}  // namespace espalier::cpu
