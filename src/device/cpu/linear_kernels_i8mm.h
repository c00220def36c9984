// The products of linear_kernels_halves.h with smmla, which multiplies two rows by two outputs over eight inputs.
// simd_neon.h must be included before. Internal linkage.
//
//   a register of weights    inputs 8k .. 8k+7 of outputs 2p and 2p + 1
//   a register of inputs     the same of rows 2i and 2i + 1
//   a register of sums       row 2i: outputs 2p, 2p + 1; row 2i + 1: outputs 2p, 2p + 1
//
// Weights come from the panels that all instruction sets share: zipping two neighbouring groups of four inputs gives
// such registers. Sums keep their order until a panel is done; scales are brought into it.
#pragma once

#include "device/cpu/linear_kernels_halves.h"

namespace espalier::cpu {
namespace {

// --- activations
// ------------------------------------------------------------------------------------------------------

// BlockActivations with the integers in another order: inputs 8k .. 8k+7 of row r side by side. Of one row alone they
// stand as usual.
template <int R>
inline const std::int8_t* eight_inputs(const BlockActivations<R>& tile, int k, int r) {
  return reinterpret_cast<const std::int8_t*>(tile.q) + (k * R + r) * 8;
}

// The sums that serve to subtract offsets are left out.
template <int R>
inline void put_paired_row(const QuantisedBlock& block, int r, BlockActivations<R>& tile) {
  for (int k = 0; k < kEights; ++k)
    __builtin_memcpy(const_cast<std::int8_t*>(eight_inputs(tile, k, r)), block.q + 8 * k, 8);
  tile.d[r] = block.d;
  tile.d_sum[r] = block.d * static_cast<float>(block.half_sum[0] + block.half_sum[1]);
}

template <int R>
void quantise_paired_tile(const float* x, std::int64_t stride, std::int64_t begin, std::int64_t end,
                          BlockActivations<R>* blocks) {
  for (std::int64_t b = begin; b < end; ++b)
    for (int r = 0; r < R; ++r) put_paired_row<R>(quantise_block(x + r * stride + b * kBlock), r, blocks[b]);
}

void quantise_paired(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t blocks, std::int64_t begin,
                     std::int64_t end, void* tiles) {
  if (rows == 1) return quantise(x, stride, rows, blocks, begin, end, tiles);
  for_each_tile(rows, [&](auto count, std::int64_t first) {
    constexpr int R = decltype(count)::kCount;
    auto* const tile = const_cast<BlockActivations<R>*>(block_tile<R>(tiles, first, blocks));
    quantise_paired_tile<R>(x + first * stride, stride, begin, end, tile);
  });
}

// --- products
// ---------------------------------------------------------------------------------------------------------

struct SmmlaUnit {
  static constexpr int kPairs = kHalfPanel / 2;  // of outputs
  template <int R>
  static constexpr int kRowPairs = (R + 1) / 2;  // the last row of an odd number is paired with itself

  // The floats of outputs 2p and 2p + 1 stored as one double, because one instruction loads that into both halves of a
  // register.
  using FloatPairs = double[kPairs];

  struct Half {
    int8x16_t q[kEights][kPairs];
    FloatPairs scale[2];
    FloatPairs minimum;
  };

  static void store_groups(int32x4_t first, int32x4_t second, int k, int quarter, Half& to) {
    to.q[k][2 * quarter] = vreinterpretq_s8_s32(vzip1q_s32(first, second));
    to.q[k][2 * quarter + 1] = vreinterpretq_s8_s32(vzip2q_s32(first, second));
  }
  static void store_floats(float32x4_t low, float32x4_t high, FloatPairs& to) {
    vst1q_f64(to, vreinterpretq_f64_f32(low));
    vst1q_f64(to + 2, vreinterpretq_f64_f32(high));
  }

  // Operands in the order of the sums: of outputs 2p and 2p + 1, and of rows 2i and 2i + 1.
  static float32x4_t of_outputs(const FloatPairs& values, int p) {
    return vreinterpretq_f32_f64(vld1q_dup_f64(values + p));
  }
  template <int R>
  static float32x4_t of_rows(const float (&values)[R], int i) {
    const float32x2_t two = 2 * i + 1 < R ? vld1_f32(values + 2 * i) : vdup_n_f32(values[2 * i]);
    const float32x4_t wide = vcombine_f32(two, vdup_n_f32(0.0f));  // costs nothing: loading two clears the others
    return vzip1q_f32(wide, wide);
  }
  template <int R>
  static int8x16_t inputs(const BlockActivations<R>& x, int k, int i) {
    const std::int8_t* const first = eight_inputs(x, k, 2 * i);
    return 2 * i + 1 < R ? vld1q_s8(first) : vcombine_s8(vld1_s8(first), vld1_s8(first));
  }

  template <int R>
  struct Sums {
    float32x4_t v[kRowPairs<R>][kPairs];
  };

  template <typename Format, int R, int part>
  static void add_part(const Half& w, const BlockActivations<R>& x, Sums<R>& acc) {
    constexpr int kCount = kEights / Format::kParts, kFirst = part * kCount;
    int32x4_t sum[kRowPairs<R>][kPairs];
#pragma GCC unroll 2
    for (auto& of_rows : sum)
#pragma GCC unroll 4
      for (int32x4_t& s : of_rows) s = vdupq_n_s32(0);
#pragma GCC unroll 4
    for (int k = kFirst; k < kFirst + kCount; ++k)
#pragma GCC unroll 4
      for (int p = 0; p < kPairs; ++p)
#pragma GCC unroll 2
        for (int i = 0; i < kRowPairs<R>; ++i) sum[i][p] = vmmlaq_s32(sum[i][p], inputs<R>(x, k, i), w.q[k][p]);
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p)
#pragma GCC unroll 2
      for (int i = 0; i < kRowPairs<R>; ++i) {
        const float32x4_t scale = vmulq_f32(of_outputs(w.scale[part], p), of_rows<R>(x.d, i));
        acc.v[i][p] = vfmaq_f32(acc.v[i][p], scale, vcvtq_f32_s32(sum[i][p]));
      }
  }

  template <int R>
  static void add_minimum(const Half& w, const BlockActivations<R>& x, Sums<R>& acc) {
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p)
#pragma GCC unroll 2
      for (int i = 0; i < kRowPairs<R>; ++i)
        acc.v[i][p] = vfmaq_f32(acc.v[i][p], of_outputs(w.minimum, p), of_rows<R>(x.d_sum, i));
  }

  template <int R>
  static float32x4_t quarter(const Sums<R>& sums, int r, int i) {
    const float32x4_t* const pair = sums.v[r / 2] + 2 * i;
    const float64x2_t first = vreinterpretq_f64_f32(pair[0]), second = vreinterpretq_f64_f32(pair[1]);
    return vreinterpretq_f32_f64(r % 2 == 0 ? vzip1q_f64(first, second) : vzip2q_f64(first, second));
  }
};

}  // namespace
}  // namespace espalier::cpu
