// The linears over the vector type of a simd_*.h, which must be included before. Internal linkage.
//
// Lanes are the sixteen outputs of a panel; every row has a float sum of its own. A weight block is decoded once into
// registers and used for all rows of a tile; where many tiles follow each other, the panel is decoded once into memory
// that stays in the first-level cache.
#pragma once

#include "device/cpu/kernels.h"
#include "device/cpu/panel_layout.h"
#include "device/cpu/row_kernels.h"

namespace espalier::cpu {
namespace {

constexpr std::int64_t kPrefetchBytes = 4096;  // ahead of the float weights in use
constexpr std::int64_t kExpandFromTiles = 3;   // fewer tiles decode faster than they would reload
constexpr std::int64_t kGroupPanels = 4;       // read side by side: memory serves four streams faster than one

// --- activations
// ------------------------------------------------------------------------------------------------------

struct QuantisedBlock {
  std::int8_t q[kBlock];
  float d;
  std::int32_t half_sum[2];
};

inline QuantisedBlock quantise_block(const float* x) {
  const F32 low = load(x), high = load(x + kPanel);
  const std::int32_t bits = reduce_max(max(magnitude_bits(low), magnitude_bits(high)));
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  const bool finite = largest < kInfinity;
  if (!finite || largest < 0x1p-100f) return {{}, finite ? 0.0f : __builtin_nanf(""), {}};
  const F32 inverse = broadcast(127.0f / largest);
  const I32 q_low = to_int(mul(low, inverse)), q_high = to_int(mul(high, inverse));
  QuantisedBlock block;
  block.d = largest / 127.0f;
  block.half_sum[0] = store_as_bytes(block.q, q_low);
  block.half_sum[1] = store_as_bytes(block.q + kPanel, q_high);
  return block;
}

template <int R>
inline void put_row(const QuantisedBlock& block, int r, BlockActivations<R>& tile) {
  for (int g = 0; g < kBlock / 4; ++g) __builtin_memcpy(&tile.q[g][r], block.q + 4 * g, 4);
  const std::int32_t sum = block.half_sum[0] + block.half_sum[1];
  tile.d[r] = block.d;
  tile.d_sum[r] = block.d * static_cast<float>(sum);
  tile.negative_sum[r] = -sum;
  tile.negative_half_sum[0][r] = -block.half_sum[0];
  tile.negative_half_sum[1][r] = -block.half_sum[1];
}

// A row count as a type, for lambdas over it.
template <int R>
struct Rows {
  static constexpr int kCount = R;
};

// Calls body(Rows<rows>), 1 <= rows <= kTileRows.
template <int R = kTileRows, typename Body>
inline void with_rows(std::int64_t rows, const Body& body) {
  if (rows == R) {
    body(Rows<R>());
  } else if constexpr (R > 1) {
    with_rows<R - 1>(rows, body);
  }
}

// A group of four elements within a block, likewise.
template <int g>
struct Group {};
template <int kCount, int g = 0, typename Body>
inline void for_each_group(const Body& body) {
  if constexpr (g < kCount) {
    body(Group<g>());
    for_each_group<kCount, g + 1>(body);
  }
}

// Calls body(Rows<R>, first) for each tile of the rows: full ones and one rest.
template <typename Body>
inline void for_each_tile(std::int64_t rows, const Body& body) {
  std::int64_t first = 0;
  for (; first + kTileRows <= rows; first += kTileRows) body(Rows<kTileRows>(), first);
  if (first < rows) with_rows<kTileRows - 1>(rows - first, [&](auto rest) { body(rest, first); });
}

template <int R>
void quantise_tile(const float* x, std::int64_t stride, std::int64_t begin, std::int64_t end,
                   BlockActivations<R>* blocks) {
  for (std::int64_t b = begin; b < end; ++b)
    for (int r = 0; r < R; ++r) put_row<R>(quantise_block(x + r * stride + b * kBlock), r, blocks[b]);
}

template <int R>
void interleave_tile(const float* x, std::int64_t stride, std::int64_t begin, std::int64_t end, float* values) {
  for (std::int64_t k = begin; k < end; ++k)
    for (int r = 0; r < R; ++r) values[k * R + r] = x[r * stride + k];
}

// A tile of R rows takes R times the space of one row, so its place follows from its first row.
template <int R>
inline const BlockActivations<R>* block_tile(const void* tiles, std::int64_t first, std::int64_t blocks) {
  const auto* const rows = static_cast<const BlockActivations<1>*>(tiles) + first * blocks;
  return reinterpret_cast<const BlockActivations<R>*>(rows);
}

void quantise(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t blocks, std::int64_t begin,
              std::int64_t end, void* tiles) {
  for_each_tile(rows, [&](auto count, std::int64_t first) {
    constexpr int R = decltype(count)::kCount;
    auto* const tile = const_cast<BlockActivations<R>*>(block_tile<R>(tiles, first, blocks));
    quantise_tile<R>(x + first * stride, stride, begin, end, tile);
  });
}

void interleave(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t inputs, std::int64_t begin,
                std::int64_t end, float* tiles) {
  for_each_tile(rows, [&](auto count, std::int64_t first) {
    constexpr int R = decltype(count)::kCount;
    interleave_tile<R>(x + first * stride, stride, begin, end, tiles + first * inputs);
  });
}

// --- weight formats
// ---------------------------------------------------------------------------------------------------

// A block in registers: unsigned (or, for q8_0, as from_signed leaves them) integers, scales and minimum as floats.
template <int kParts>
struct DecodedBlock {
  Bytes q[kBlock / 4];
  F32 scale[kParts];
  F32 minimum;
};

inline const std::uint16_t* halves(const std::uint8_t* p) {
  return reinterpret_cast<const std::uint16_t*>(p);
}

inline void decode_nibbles(const std::uint8_t* p, Bytes (&q)[8]) {
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const Bytes both = load_bytes(p + 64 * g);
    q[g] = low_nibbles(both);
    q[g + 4] = high_nibbles(both);
  }
}

inline void decode_five_bits(const std::uint8_t* p, Bytes (&q)[8]) {
  decode_nibbles(p, q);
  const Bytes fifth = load_bytes(p + 256);
  q[0] = with_high_bits<0, 0x10>(q[0], fifth);
  q[1] = with_high_bits<1, 0x10>(q[1], fifth);
  q[2] = with_high_bits<2, 0x10>(q[2], fifth);
  q[3] = with_high_bits<3, 0x10>(q[3], fifth);
  q[4] = with_high_bits<4, 0x10>(q[4], fifth);
  q[5] = with_high_bits<5, 0x10>(q[5], fifth);
  q[6] = with_high_bits<6, 0x10>(q[6], fifth);
  q[7] = with_high_bits<7, 0x10>(q[7], fifth);
}

inline void decode_six_bits(const std::uint8_t* p, Bytes (&q)[8]) {
  decode_nibbles(p, q);
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const Bytes pairs = load_bytes(p + 256 + 64 * half);
    Bytes* const part = q + 4 * half;
    part[0] = with_high_bits<0, 0x30>(part[0], pairs);
    part[1] = with_high_bits<2, 0x30>(part[1], pairs);
    part[2] = with_high_bits<4, 0x30>(part[2], pairs);
    part[3] = with_high_bits<6, 0x30>(part[3], pairs);
  }
}

// d * scale and -(dmin * minimum) of q4_k and q5_k, as the file format defines them.
inline void decode_k_scales(const std::uint8_t* group, std::int64_t sub_block, DecodedBlock<1>& block) {
  const std::uint8_t* const six_bits = group + 64 + 32 * sub_block;
  block.scale[0] = mul(load_f16(halves(group)), load_u8_as_float(six_bits));
  block.minimum = negate(mul(load_f16(halves(group + 32)), load_u8_as_float(six_bits + 16)));
}

// kBits: the integers are below 2^kBits. kOffsetShift: 2^kOffsetShift is to be subtracted from each; -1: nothing.
// kParts: scales per block. decode(): integers at `q`, scales of the block's group at `s`, `b` counted within it.
struct FormatQ4_0 {
  static constexpr BlockLayout kLayout = kLayoutQ4_0;
  static constexpr int kBits = 4, kOffsetShift = 3, kParts = 1;
  static constexpr bool kMinimum = false;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t, DecodedBlock<1>& block) {
    decode_nibbles(q, block.q);
    block.scale[0] = load_f16(halves(s));
  }
};

struct FormatQ4_1 {
  static constexpr BlockLayout kLayout = kLayoutQ4_1;
  static constexpr int kBits = 4, kOffsetShift = -1, kParts = 1;
  static constexpr bool kMinimum = true;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t, DecodedBlock<1>& block) {
    decode_nibbles(q, block.q);
    block.scale[0] = load_f16(halves(s));
    block.minimum = load_f16(halves(s + 32));
  }
};

struct FormatQ5_0 {
  static constexpr BlockLayout kLayout = kLayoutQ5_0;
  static constexpr int kBits = 5, kOffsetShift = 4, kParts = 1;
  static constexpr bool kMinimum = false;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t, DecodedBlock<1>& block) {
    decode_five_bits(q, block.q);
    block.scale[0] = load_f16(halves(s));
  }
};

struct FormatQ5_1 {
  static constexpr BlockLayout kLayout = kLayoutQ5_1;
  static constexpr int kBits = 5, kOffsetShift = -1, kParts = 1;
  static constexpr bool kMinimum = true;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t, DecodedBlock<1>& block) {
    decode_five_bits(q, block.q);
    block.scale[0] = load_f16(halves(s));
    block.minimum = load_f16(halves(s + 32));
  }
};

struct FormatQ8_0 {
  static constexpr BlockLayout kLayout = kLayoutQ8_0;
  static constexpr int kBits = 8, kOffsetShift = kSignedShift, kParts = 1;
  static constexpr bool kMinimum = false;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t, DecodedBlock<1>& block) {
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) block.q[g] = from_signed(load_bytes(q + 64 * g));
    block.scale[0] = load_f16(halves(s));
  }
};

struct FormatQ4_K {
  static constexpr BlockLayout kLayout = kLayoutQ4_K;
  static constexpr int kBits = 4, kOffsetShift = -1, kParts = 1;
  static constexpr bool kMinimum = true;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t b, DecodedBlock<1>& block) {
    decode_nibbles(q, block.q);
    decode_k_scales(s, b, block);
  }
};

struct FormatQ5_K {
  static constexpr BlockLayout kLayout = kLayoutQ5_K;
  static constexpr int kBits = 5, kOffsetShift = -1, kParts = 1;
  static constexpr bool kMinimum = true;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t b, DecodedBlock<1>& block) {
    decode_five_bits(q, block.q);
    decode_k_scales(s, b, block);
  }
};

struct FormatQ6_K {
  static constexpr BlockLayout kLayout = kLayoutQ6_K;
  static constexpr int kBits = 6, kOffsetShift = 5, kParts = 2;
  static constexpr bool kMinimum = false;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t b, DecodedBlock<2>& block) {
    decode_six_bits(q, block.q);
    const F32 d = load_f16(halves(s));
    block.scale[0] = mul(d, load_i8_as_float(s + 32 + 32 * b));
    block.scale[1] = mul(d, load_i8_as_float(s + 48 + 32 * b));
  }
};

// A panel decoded into memory: 512 bytes, up to two scales and a minimum per block.
template <typename Format>
struct Expanded : Format {
  static constexpr std::int64_t kFloatsAt = kBlock * kPanel, kVectorBytes = kPanel * sizeof(float);
  static constexpr BlockLayout kLayout{kFloatsAt + 3 * kVectorBytes, 0, 1};

  static void encode(const DecodedBlock<Format::kParts>& block, std::uint8_t* to) {
    for (int g = 0; g < kBlock / 4; ++g) store_bytes(to + 64 * g, block.q[g]);
    auto* const floats = reinterpret_cast<float*>(to + kFloatsAt);
    for (int part = 0; part < Format::kParts; ++part) store(floats + part * kPanel, block.scale[part]);
    if (Format::kMinimum) store(floats + 2 * kPanel, block.minimum);
  }
  static void decode(const std::uint8_t* from, const std::uint8_t*, std::int64_t, DecodedBlock<Format::kParts>& block) {
#pragma GCC unroll 8
    for (int g = 0; g < kBlock / 4; ++g) block.q[g] = load_bytes(from + 64 * g);
    const auto* const floats = reinterpret_cast<const float*>(from + kFloatsAt);
    for (int part = 0; part < Format::kParts; ++part) block.scale[part] = load(floats + part * kPanel);
    if (Format::kMinimum) block.minimum = load(floats + 2 * kPanel);
  }
};

// Block b of a panel with `blocks` blocks.
template <typename Format>
inline void decode_block(const std::uint8_t* panel, std::int64_t blocks, std::int64_t b,
                         DecodedBlock<Format::kParts>& block) {
  constexpr BlockLayout kLayout = Format::kLayout;
  const std::uint8_t* const scales =
      panel + blocks * kLayout.integer_bytes + b / kLayout.scale_blocks * kLayout.scale_bytes;
  Format::decode(panel + b * kLayout.integer_bytes, scales, b % kLayout.scale_blocks, block);
}

// --- block-quantised weights
// --------------------------------------------------------------------------------------------

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
// ------------------------------------------------------------------------------------------------------

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
