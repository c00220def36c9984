// What the files compiled for one instruction set offer to the rest of the device: a table of plain functions over
// plain structs. Nothing inline and nothing from the standard library that could be emitted twice crosses this line,
// so that code compiled with wider instructions never replaces code of the baseline.
//
// Words: a *panel* holds 16 outputs of a weight (packed_weight.h); a *tile* holds up to tile_rows rows of a linear's
// input, side by side. Rows are cut into full tiles and one rest. Functions are pure but for what they write, and may
// run on several threads at once on disjoint outputs.
#pragma once

#include <cstdint>

namespace espalier::cpu {

constexpr int kPanel = 16;  // outputs side by side
constexpr int kBlock = 32;  // elements that share one activation scale

// R rows of one quantised block of a linear's input.
template <int R>
struct BlockActivations {
  std::int32_t q[kBlock / 4][R];         // four signed bytes each, elements 4g .. 4g+3
  float d[R];                            // NaN where a row is not finite
  float d_sum[R];                        // d * float(sum of q)
  std::int32_t negative_sum[R];          // -(sum of q)
  std::int32_t negative_half_sum[2][R];  // of elements 0..15 and 16..31
};

// The products of one part of a weight: panels of one format, all rows.
struct LinearCall {
  const std::uint8_t* panels = nullptr;
  std::int64_t panel_bytes = 0;
  std::int64_t fetch_end = 0;  // panels before this one are worth prefetching: this thread will read them
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  const void* tiles = nullptr;  // BlockActivations or floats, as written by quantise or interleave
  std::int64_t rows = 0;
  const float* bias = nullptr;  // [outputs] or null
  float* y = nullptr;           // [rows, outputs], y_stride floats from row to row
  std::int64_t y_stride = 0;
  std::uint8_t* scratch = nullptr;  // of this thread: expanded_panel_bytes(inputs)
};
using LinearKernel = void (*)(const LinearCall& call, std::int64_t panel_begin, std::int64_t panel_end);

static constexpr std::int64_t expanded_panel_bytes(std::int64_t inputs) {
  return inputs / kBlock * (kBlock * kPanel + 3 * kPanel * static_cast<std::int64_t>(sizeof(float)));
}

enum class KvType { f16, bf16, f32 };

// The keys of one row by their ordinals: [begin, end) are the positions of the same number in its sequence, the others
// follow in slots of their own.
struct AttentionRow {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const std::int32_t* tail = nullptr;  // slots of the ordinals [tail_begin, tail_end)
  std::int64_t tail_begin = 0;
  std::int64_t tail_end = 0;
};

// Rows of one sequence that are computed together. A *pair* is a row and a query head; those of one kv head are
// numbered row by row.
struct AttentionRows {
  const AttentionRow* rows = nullptr;
  std::int64_t row_count = 0;
  const std::int32_t* blocks = nullptr;  // of the sequence
  std::int64_t first_tile = 0;           // of 128 ordinals each
  std::int64_t tiles = 0;
  const float* q = nullptr;  // [rows, heads, dim]
  float* out = nullptr;      // [rows, heads, dim]
  float* sums = nullptr;     // [tiles, kv heads, pairs, attention_sum_floats]
};

struct AttentionShape {
  KvType type = KvType::f16;
  const void* k = nullptr;
  const void* v = nullptr;
  std::int64_t block_size = 0;
  std::int64_t kv_heads = 0;
  std::int64_t group = 0;  // query heads per kv head
  std::int64_t dim = 0;
  float scale = 0;
};

constexpr std::int64_t kTileKeys = 128;                        // ordinals of a tile
constexpr std::int64_t kKeyChunk = 64;                         // keys or values of a tile that are widened at a time
constexpr std::int64_t kScoreStride = kTileKeys + 2 * kPanel;  // a vector of scores may reach behind a tile

static constexpr std::int64_t attention_padded(std::int64_t dim) {
  return (dim + kPanel - 1) / kPanel * kPanel;
}
// The sums of a pair over one tile: the weighted sum of values, the largest score, the denominator.
static constexpr std::int64_t attention_sum_floats(std::int64_t dim) {
  return attention_padded(dim) + kPanel;
}
static constexpr std::int64_t attention_scratch_floats(std::int64_t dim, std::int64_t pairs) {
  const std::int64_t lanes = (pairs + 7) / 8 * 8;  // eight pairs are turned together
  return kKeyChunk * attention_padded(dim) + pairs * kScoreStride + lanes * (dim + kScoreStride);
}

// max over t = scale * x and the sum of exp(t - max), for log_sum_exp.
struct ExpSum {
  float max = 0;
  float sum = 0;
};

struct Kernels {
  int tile_rows;

  // Blocks [begin, end) of every row into tiles. x: [rows, 32 * blocks], stride floats from row to row.
  void (*quantise)(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t blocks, std::int64_t begin,
                   std::int64_t end, void* tiles);
  // Columns [begin, end) of every row into tiles of floats: element k of R rows side by side.
  void (*interleave)(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t inputs, std::int64_t begin,
                     std::int64_t end, float* tiles);
  LinearKernel linear_f32, linear_f16, linear_bf16;
  LinearKernel linear_q4_0, linear_q4_1, linear_q5_0, linear_q5_1, linear_q8_0, linear_q4_k, linear_q5_k, linear_q6_k;

  // The sums of all pairs of one kv head over one tile, counted from the first of the rows.
  void (*attention_tile)(const AttentionShape&, const AttentionRows&, std::int64_t kv_head, std::int64_t tile,
                         float* scratch);
  // The sums of all tiles to the output of the pairs of one kv head.
  void (*attention_combine)(const AttentionShape&, const AttentionRows&, std::int64_t kv_head, float* scratch);

  // The other ops of device.h, for n consecutive elements or one row.
  void (*rms_norm)(const float* x, const float* w, float eps, std::int64_t dim, float* y);
  void (*rope)(float* head, const float* cosine, const float* sine, std::int64_t half);
  void (*to_f16)(const float* x, std::uint16_t* y, std::int64_t n);
  void (*to_bf16)(const float* x, std::uint16_t* y, std::int64_t n);
  void (*swiglu)(const float* gate, const float* up, float* y, std::int64_t n);
  void (*silu)(float* x, std::int64_t n);
  void (*add)(float* x, const float* y, std::int64_t n);
  std::int32_t (*argmax)(const float* x, std::int64_t n);
  void (*top_k)(const float* x, std::int64_t n, std::int64_t k, float* value, std::int32_t* id);
  ExpSum (*exp_sum)(const float* x, float scale, std::int64_t n);
};

#if defined(__x86_64__)
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
#elif defined(__aarch64__)
const Kernels& neon_kernels();
const Kernels& dotprod_kernels();
const Kernels& i8mm_kernels();
#endif

}  // namespace espalier::cpu
