// The block-quantised linears of Arm processors that have products of bytes, for one row: weights are multiplied in the
// registers they were decoded into, with words of inputs that are lanes of a register. simd_neon.h must be included
// before. Internal linkage.
#pragma once

#include "device/cpu/linear_kernels.h"

namespace espalier::cpu {
namespace {

// The 32 inputs of a block.
struct RowWords {
  int8x16_t of_inputs[2];
};
[[gnu::always_inline]] inline RowWords load_words(const BlockActivations<1>& x) {
  const auto* const q = reinterpret_cast<const std::int8_t*>(x.q);
  return {{vld1q_s8(q), vld1q_s8(q + 16)}};
}

template <typename Format, int part>
[[gnu::always_inline]] inline void add_part_of_row(const DecodedBlock<Format::kParts>& w, const RowWords& words,
                                                   const BlockActivations<1>& x, F32& acc) {
  constexpr int kGroups = kBlock / 4 / Format::kParts, kFirst = part * kGroups;
  Dot<Format::kBits> dot;
  start_dot<Format, 1>(dot, x, part, 0);
  for_each_group<kGroups>([&]<int g>(Group<g>) {
    constexpr int kGroup = kFirst + g;
    for (int i = 0; i < 4; ++i)
      dot.sum[i] =
          vdotq_laneq_s32(dot.sum[i], vreinterpretq_s8_u8(w.q[kGroup].v[i]), words.of_inputs[kGroup / 4], kGroup % 4);
  });
  acc = fma(mul(w.scale[part], broadcast(x.d[0])), to_float(dot.total()), acc);
}

template <typename Format>
[[gnu::always_inline]] inline void add_block_of_row(const DecodedBlock<Format::kParts>& w, const BlockActivations<1>& x,
                                                    F32& acc) {
  const RowWords words = load_words(x);
  add_part_of_row<Format, 0>(w, words, x, acc);
  if constexpr (Format::kParts == 2) add_part_of_row<Format, 1>(w, words, x, acc);
  if constexpr (Format::kMinimum) acc = fma(w.minimum, broadcast(x.d_sum[0]), acc);
}

// The cache lines of block b.
template <typename Format>
[[gnu::always_inline]] inline void prefetch_block(const std::uint8_t* panel, std::int64_t blocks, std::int64_t b) {
  constexpr BlockLayout kLayout = Format::kLayout;
  const std::uint8_t* const integers = panel + b * kLayout.integer_bytes;
#pragma GCC unroll 8
  for (std::int64_t line = 0; line < kLayout.integer_bytes; line += 64) prefetch(integers + line);
  prefetch(panel + blocks * kLayout.integer_bytes + b * kLayout.scale_bytes / kLayout.scale_blocks);
}

// One panel, while the one a group further comes in. Flattened: nothing in it may become a call. A second panel beside
// it would need more registers than there are.
template <typename Format>
[[gnu::flatten]] void row_of_panel(const LinearCall& call, std::int64_t index) {
  const std::int64_t blocks = call.inputs / kBlock;
  const BlockActivations<1>* const x = block_tile<1>(call.tiles, 0, blocks);
  const std::uint8_t* const panel = call.panels + index * call.panel_bytes;
  const std::int64_t ahead = index + kGroupPanels < call.fetch_end ? kGroupPanels * call.panel_bytes : 0;
  F32 acc = broadcast(0.0f);
  for (std::int64_t b = 0; b < blocks; ++b) {
    prefetch_block<Format>(panel + ahead, blocks, b);
    DecodedBlock<Format::kParts> w;
    decode_block<Format>(panel, blocks, b, w);
    add_block_of_row<Format>(w, x[b], acc);
  }
  store_outputs(call, 0, index, acc);
}

template <typename Format>
void linear_of_one_row(const LinearCall& call, std::int64_t panel_begin, std::int64_t panel_end) {
  for (std::int64_t i = panel_begin; i < panel_end; ++i) row_of_panel<Format>(call, i);
}

}  // namespace
}  // namespace espalier::cpu
