// The linears over the vector type of a simd_*.h, which must be included before: tiles of rows (linear_activations.h)
// times panels of weights, in blocks (linear_formats.h) or in floats. Internal linkage.
//
// Lanes are the sixteen outputs of a panel; every row has a float sum of its own. A weight block is decoded once into
// registers and used for all rows of a tile; where many tiles follow each other, the panel is decoded once into memory
// that stays in the first-level cache.
#pragma once

#include "device/cpu/kernels.h"
#include "device/cpu/linear_activations.h"
#include "device/cpu/linear_formats.h"
#include "device/cpu/row_kernels.h"

namespace espalier::cpu {
namespace {

constexpr std::int64_t kPrefetchBytes = 4096;  // ahead of the float weights in use
constexpr std::int64_t kExpandFromTiles = 3;   // fewer tiles decode faster than they would reload
constexpr std::int64_t kGroupPanels = 4;       // read side by side: memory serves four streams faster than one

// --- block-quantised weights

template <typename Format, int R>
inline void start_dot(Dot<Format::kBits>& dot, const BlockActivations<R>& x, int part, int r) {
  if constexpr (Format::kOffsetShift < 0) {
    dot.start_at_zero();
  } else {
    dot.start_at(Format::kParts == 1 ? x.negative_sum[r] : x.negative_half_sum[part][r], Format::kOffsetShift);
  }
}

// One part of a block (all of it, or a half) for R rows: groups outside, rows inside, all unrolled, so that each weight
// register is read R times while the sums stay in registers.
template <typename Format, int R, int part>
inline void add_part(const DecodedBlock<Format::kParts>& w, const BlockActivations<R>& x, F32 (&acc)[R]) {
  constexpr int kGroups = kBlock / 4 / Format::kParts, kFirst = part * kGroups;
  Dot<Format::kBits> dot[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) start_dot<Format, R>(dot[r], x, part, r);
  const auto add_group = [&]<int g>(Group<g>) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) dot[r].template add<g>(w.q[kFirst + g], x.q[kFirst + g][r]);
  };
  for_each_group<kGroups>(add_group);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[r] = fma(mul(w.scale[part], broadcast(x.d[r])), to_float(dot[r].total()), acc[r]);
}

// Brings in the panels behind a group of panels while that group is computed, all of them at the same pace.
class GroupAhead {
 public:
  GroupAhead(const LinearCall& call, std::int64_t first_panel, std::int64_t panels)
      : next_(call.panels + (first_panel + kGroupPanels) * call.panel_bytes),
        panel_bytes_(call.panel_bytes),
        block_bytes_(call.panel_bytes / (call.inputs / kBlock)),
        panels_(panels) {
    if (first_panel + kGroupPanels + panels <= call.fetch_end) blocks_left_ = panels * (call.inputs / kBlock);
  }

  // One block of one panel; called once for each block of the group, does nothing after that.
  void fetch() {
    if (blocks_left_ == 0) return;
    --blocks_left_;
    const std::uint8_t* const block = next_ + panel_ * panel_bytes_;
    for (std::int64_t line = 0; line < block_bytes_; line += 64) prefetch(block + line);
    if (++panel_ == panels_) {
      panel_ = 0;
      next_ += block_bytes_;
    }
  }

 private:
  const std::uint8_t* next_;
  std::int64_t panel_bytes_, block_bytes_, panels_;
  std::int64_t blocks_left_ = 0, panel_ = 0;
};

// Adds block b of one panel for R rows.
template <typename Format, int R>
inline void add_block(const std::uint8_t* panel, std::int64_t blocks, std::int64_t b, const BlockActivations<R>& x,
                      F32 (&acc)[R]) {
  DecodedBlock<Format::kParts> w;
  decode_block<Format>(panel, blocks, b, w);
  add_part<Format, R, 0>(w, x, acc);
  if constexpr (Format::kParts == 2) add_part<Format, R, 1>(w, x, acc);
  if constexpr (Format::kMinimum) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[r] = fma(w.minimum, broadcast(x.d_sum[r]), acc[r]);
  }
}

// Outputs of one panel for row `row`.
inline void store_outputs(const LinearCall& call, std::int64_t row, std::int64_t panel, F32 sum) {
  const std::int64_t n = panel * kPanel, count = call.outputs - n < kPanel ? call.outputs - n : kPanel;
  if (call.bias != nullptr) sum = add(sum, load_up_to(call.bias + n, count));
  store_up_to(call.y + row * call.y_stride + n, sum, count);
}

// P panels, the first of them number `index` of the weight, for the R rows of a tile.
template <typename Format, int R, int P>
inline void block_tile_of_panels(const LinearCall& call, const std::uint8_t* panels, std::int64_t index,
                                 std::int64_t first, GroupAhead& ahead) {
  const std::int64_t blocks = call.inputs / kBlock;
  const BlockActivations<R>* const x = block_tile<R>(call.tiles, first, blocks);
  F32 acc[P][R];
#pragma GCC unroll 4
  for (int i = 0; i < P; ++i)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[i][r] = broadcast(0.0f);
  for (std::int64_t b = 0; b < blocks; ++b) {
#pragma GCC unroll 4
    for (int i = 0; i < P; ++i) {
      ahead.fetch();
      add_block<Format, R>(panels + i * call.panel_bytes, blocks, b, x[b], acc[i]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < P; ++i)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) store_outputs(call, first + r, index + i, acc[i][r]);
}

// Panels [begin, end) for one tile of rows.
template <typename Format, int R>
void block_tile_of_group(const LinearCall& call, std::int64_t begin, std::int64_t end, std::int64_t first,
                         GroupAhead& ahead) {
  constexpr int P = kBlockPanels[R - 1];
  const auto panel = [&](std::int64_t i) { return call.panels + i * call.panel_bytes; };
  for (; begin + P <= end; begin += P) block_tile_of_panels<Format, R, P>(call, panel(begin), begin, first, ahead);
  if constexpr (P > 1)
    for (; begin < end; ++begin) block_tile_of_panels<Format, R, 1>(call, panel(begin), begin, first, ahead);
}

template <typename Format>
void expand_panel(const std::uint8_t* panel, std::int64_t blocks, std::uint8_t* to) {
  for (std::int64_t b = 0; b < blocks; ++b, to += Expanded<Format>::kLayout.integer_bytes) {
    DecodedBlock<Format::kParts> block;
    decode_block<Format>(panel, blocks, b, block);
    Expanded<Format>::encode(block, to);
  }
}

// One panel for many tiles of rows.
template <typename Format>
void expanded_panel(const LinearCall& call, std::int64_t index, GroupAhead& ahead) {
  const std::uint8_t* const panel = call.panels + index * call.panel_bytes;
  expand_panel<Format>(panel, call.inputs / kBlock, call.scratch);
  for_each_tile(call.rows, [&](auto count, std::int64_t first) {
    constexpr int R = decltype(count)::kCount;
    if constexpr (R == kTileRows) {
      block_tile_of_panels<Expanded<Format>, R, 1>(call, call.scratch, index, first, ahead);
    } else {
      block_tile_of_panels<Format, R, 1>(call, panel, index, first, ahead);
    }
  });
}

template <typename Format>
void block_linear(const LinearCall& call, std::int64_t panel_begin, std::int64_t panel_end) {
  const bool expands = call.rows >= kExpandFromTiles * kTileRows;
  for (std::int64_t i = panel_begin; i < panel_end; i += kGroupPanels) {
    const std::int64_t end = i + kGroupPanels < panel_end ? i + kGroupPanels : panel_end;
    GroupAhead ahead(call, i, end - i);
    if (expands) {
      for (std::int64_t j = i; j < end; ++j) expanded_panel<Format>(call, j, ahead);
    } else {
      for_each_tile(call.rows, [&](auto count, std::int64_t first) {
        block_tile_of_group<Format, decltype(count)::kCount>(call, i, end, first, ahead);
      });
    }
  }
}

// --- float weights

struct WeightF32 {
  static constexpr std::int64_t kBytes = 4;
  static F32 get(const std::uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
};
struct WeightF16 {
  static constexpr std::int64_t kBytes = 2;
  static F32 get(const std::uint8_t* p) { return load_f16(halves(p)); }
};
struct WeightBf16 {
  static constexpr std::int64_t kBytes = 2;
  static F32 get(const std::uint8_t* p) { return load_bf16(halves(p)); }
};

// R rows times P panels: each sum is one chain of fused multiply-adds, so several must run side by side.
template <typename Type, int R, int P>
void float_tile_of_panels(const LinearCall& call, std::int64_t index, std::int64_t first) {
  constexpr std::int64_t kStep = kPanel * Type::kBytes;
  const std::uint8_t* const panels = call.panels + index * call.panel_bytes;
  const float* x = static_cast<const float*>(call.tiles) + first * call.inputs;
  F32 acc[P][R];
#pragma GCC unroll 4
  for (int i = 0; i < P; ++i)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[i][r] = broadcast(0.0f);
  for (std::int64_t k = 0; k < call.inputs; ++k, x += R) {
#pragma GCC unroll 4
    for (int i = 0; i < P; ++i) {
      const std::uint8_t* const p = panels + i * call.panel_bytes + k * kStep;
      prefetch(p + kPrefetchBytes / P);
      const F32 w = Type::get(p);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc[i][r] = fma(w, broadcast(x[r]), acc[i][r]);
    }
  }
  for (int i = 0; i < P; ++i)
    for (int r = 0; r < R; ++r) store_outputs(call, first + r, index + i, acc[i][r]);
}

// Panels [begin, end) for one tile of rows.
template <typename Type, int R>
void float_tile(const LinearCall& call, std::int64_t begin, std::int64_t end, std::int64_t first) {
  constexpr int P = kFloatPanels[R - 1];
  for (; begin + P <= end; begin += P) float_tile_of_panels<Type, R, P>(call, begin, first);
  for (; begin < end; ++begin) float_tile_of_panels<Type, R, 1>(call, begin, first);
}

template <typename Type>
void float_linear(const LinearCall& call, std::int64_t panel_begin, std::int64_t panel_end) {
  for (std::int64_t i = panel_begin; i < panel_end; i += kGroupPanels) {
    const std::int64_t end = i + kGroupPanels < panel_end ? i + kGroupPanels : panel_end;
    for_each_tile(call.rows, [&](auto count, std::int64_t first) {
      float_tile<Type, decltype(count)::kCount>(call, i, end, first);
    });
  }
}

}  // namespace
}  // namespace espalier::cpu
