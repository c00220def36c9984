// A chunk of a group of packed weights (packed_layout.h) against the same chunk of a tile of eight quantised rows, by
// one warp: exact dots from matrix instructions, and what the contract's chain of sums takes of them.
#pragma once

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/cuda/packed_layout.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {

// Integers start here: the bits of 12582912.0f. What is added, up to 2^22 either way, is then added to the float too,
// and one subtraction makes it a float: conversions run at a fraction of the rate.
inline constexpr int kMagicBits = 0x4B400000;
inline constexpr float kMagic = 12582912.0f;

// Bytes u, below 128, as signed u - offset.
template <int offset>
__device__ inline std::uint32_t subtract_from_bytes(std::uint32_t bytes) {
  if constexpr (offset == 0) return bytes;
  return ((bytes | 0x80808080u) - static_cast<std::uint32_t>(offset) * 0x01010101u) ^ 0x80808080u;
}

// The integers of one lane of a chunk, as they lie in memory, and as fragments of signed bytes.
template <DType type>
class ChunkIntegers {
 public:
  static constexpr BlockFormat kFormat = block_format(type);
  static constexpr int kWords4 = kFormat.bits == 8 ? kChunkBlocks : kChunkBlocks / 2;

  __device__ void load(const std::uint8_t* piece, int lane) {
    const auto* const words = reinterpret_cast<const uint4*>(piece) + lane;
#pragma unroll
    for (int i = 0; i < kWords4; ++i) words_[i] = words[i * kWarp];
    const std::uint8_t* const bits = piece + upper_bits_offset(kFormat.bits);
    if constexpr (kFormat.bits == 5) {
#pragma unroll
      for (int i = 0; i < kChunkBlocks / 2; ++i)
        upper_[i] = reinterpret_cast<const std::uint32_t*>(bits)[i * kWarp + lane];
    }
    if constexpr (kFormat.bits == 6) {
#pragma unroll
      for (int i = 0; i < kChunkBlocks / 2; ++i) {
        const uint2 both = reinterpret_cast<const uint2*>(bits)[i * kWarp + lane];
        upper_[2 * i] = both.x, upper_[2 * i + 1] = both.y;
      }
    }
  }

  // Low half of output g, of g + 8, high half of g, of g + 8. block: a constant after unrolling
  __device__ void fragment(int block, std::uint32_t (&a)[4]) const {
    if constexpr (kFormat.bits == 8) {
      a[0] = words_[block].x, a[1] = words_[block].y, a[2] = words_[block].z, a[3] = words_[block].w;
      return;
    }
    const uint4 pair = words_[block / 2];
    const int second = block % 2;
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const std::uint32_t nibbles = second ? (upper ? pair.w : pair.z) : (upper ? pair.y : pair.x);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t word = (half ? nibbles >> 4 : nibbles) & 0x0f0f0f0fu;
        if constexpr (kFormat.bits == 5)
          word |= move_bit(upper_[block / 2], 4 * second + 2 * upper + half, 4) & 0x10101010u;
        if constexpr (kFormat.bits == 6)
          word |= move_bit(upper_[block / 2 * 2 + upper], 4 * second + 2 * half, 4) & 0x30303030u;
        a[2 * half + upper] = subtract_from_bytes<kFormat.offset>(word);
      }
    }
  }

 private:
  __device__ static std::uint32_t move_bit(std::uint32_t word, int from, int to) {
    return from <= to ? word << (to - from) : word >> (from - to);
  }

  uint4 words_[kWords4];
  std::uint32_t upper_[kFormat.bits == 5 ? kChunkBlocks / 2 : kFormat.bits == 6 ? kChunkBlocks : 1];
};

// Byte `i` of a word, of which the lower 23 bits of a float make a float without a conversion.
__device__ inline float float_of_byte(std::uint32_t word, int i) {
  return __uint_as_float(0x4B000000u | (word >> 8 * i & 0xffu)) - 8388608.0f;
}

// The scales of one output of a chunk.
template <DType type>
class OutputScales {
 public:
  static constexpr ScaleForm kForm = block_format(type).scales;
  static constexpr bool kHasMinimum = kForm == ScaleForm::with_minimum || kForm == ScaleForm::k;

  __device__ void load(const std::uint8_t* piece, int output) {
    const std::uint8_t* p = piece + scales_offset(block_format(type).bits);
    if constexpr (kForm == ScaleForm::k) {
      large_ = reinterpret_cast<const std::uint32_t*>(p)[output];
      p += kGroup * 4;
    }
    if constexpr (kForm == ScaleForm::q6_k) {
      large_ = reinterpret_cast<const std::uint16_t*>(p)[output];
      p += kGroup * 2;
    }
    const auto* const words = reinterpret_cast<const uint4*>(p + output * 4 * kWords);
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i) {
      const uint4 four = words[i];
      words_[4 * i] = four.x, words_[4 * i + 1] = four.y, words_[4 * i + 2] = four.z, words_[4 * i + 3] = four.w;
    }
  }

  // half: which sub-block of 16, for q6_k
  __device__ float scale(int block, int half) const {
    if constexpr (kForm == ScaleForm::plain) return half_of(words_[block / 2], block % 2);
    if constexpr (kForm == ScaleForm::with_minimum) return half_of(words_[block], 0);
    if constexpr (kForm == ScaleForm::k) return half_of(large_, 0) * float_of_byte(words_[block / 2], block % 2 * 2);
    const float raised = float_of_byte(words_[block / 2] ^ 0x80808080u, block % 2 * 2 + half);
    return half_of(large_, 0) * (raised - 128.0f);
  }
  __device__ float minimum(int block) const {
    if constexpr (kForm == ScaleForm::with_minimum) return half_of(words_[block], 1);
    if constexpr (kForm == ScaleForm::k)
      return -(half_of(large_, 1) * float_of_byte(words_[block / 2], block % 2 * 2 + 1));
    return 0.0f;
  }

 private:
  static constexpr int kWords = kForm == ScaleForm::with_minimum ? 8 : 4;

  __device__ static float half_of(std::uint32_t word, int high) {
    return widen_f16(static_cast<std::uint16_t>(high ? word >> 16 : word & 0xffffu));
  }

  std::uint32_t large_;
  std::uint32_t words_[kWords];
};

// How the warps of a linear share out a tile of eight rows. Of two and more, a lane has outputs g and g + 8 for rows
// 2 t and 2 t + 1 (columns 2). One row alone (columns 1) stands in every column of a matrix instruction, so every lane
// has the dots of both outputs: those with t < 2 go on with g, the others with g + 8.
template <int columns>
struct LaneShare {
  static constexpr int kOutputs = columns == 1 ? 1 : 2;
  static constexpr int kSums = kOutputs * columns;
  static constexpr int kTileBytes = columns == 1 ? kOneRowChunkBytes : kTileChunkBytes;  // of a chunk
  __device__ static int output(int lane, int i) { return lane / 4 + 8 * (columns == 1 ? lane % 4 / 2 : i); }
};

// What a warp has of one chunk of weights.
template <DType type, int columns>
struct ChunkWeights {
  ChunkIntegers<type> integers;
  OutputScales<type> scales[LaneShare<columns>::kOutputs];
  __device__ void load(const std::uint8_t* piece, int lane) {
    integers.load(piece, lane);
#pragma unroll
    for (int i = 0; i < LaneShare<columns>::kOutputs; ++i) scales[i].load(piece, LaneShare<columns>::output(lane, i));
  }
};

// What a lane has of a pair of blocks of a tile of rows, as quantise_block.h left it.
template <int columns>
class RowPair {
 public:
  // rows: the chunk of the tile
  __device__ void load(const std::uint8_t* rows, int pair, int lane) {
    if constexpr (columns == 1) {
      integers_ = reinterpret_cast<const uint4*>(rows)[pair * 4 + lane % 4];
      scales_[0] = reinterpret_cast<const float4*>(rows + kChunkBlocks * kBlock)[pair];
    } else {
      const std::uint8_t* const of_pair = rows + pair * kTilePairBytes;
      integers_ = reinterpret_cast<const uint4*>(of_pair)[lane];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        scales_[i] = reinterpret_cast<const float4*>(of_pair + 2 * kRowTile * kBlock)[i * 4 + lane % 4];
    }
  }
  __device__ std::uint32_t integers(int second, int half) const {
    return second ? (half ? integers_.w : integers_.z) : (half ? integers_.y : integers_.x);
  }
  __device__ float scale(int second, int column) const {
    if constexpr (columns == 1) return second ? scales_[0].z : scales_[0].x;
    return column ? scales_[second].y : scales_[second].x;
  }
  __device__ float scaled_sum(int second, int column) const {
    if constexpr (columns == 1) return second ? scales_[0].w : scales_[0].y;
    return column ? scales_[second].w : scales_[second].z;
  }

 private:
  uint4 integers_;
  float4 scales_[columns];
};

// What a lane adds to its sums for one block: [output][row of the tile]. Those of rows that there are not may be
// anything.
template <DType type, int columns>
class BlockTerms {
 public:
  static constexpr int kSums = LaneShare<columns>::kSums;

  // a: the block's fragment; rows: of the pair that the block belongs to
  __device__ void compute(const std::uint32_t (&a)[4], const ChunkWeights<type, columns>& weights, int block,
                          const RowPair<columns>& rows, int lane) {
    const int second = block % 2;
    int dot[kDots][4];
    if constexpr (kDots == 1) {
      multiply_bytes_32(dot[0], a, rows.integers(second, 0), rows.integers(second, 1), kMagicBits);
    } else {
      multiply_bytes_16(dot[0], a[0], a[1], rows.integers(second, 0), kMagicBits);
      multiply_bytes_16(dot[1], a[2], a[3], rows.integers(second, 1), kMagicBits);
    }
#pragma unroll
    for (int half = 0; half < kDots; ++half)
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        const int upper = i / columns, column = i % columns;
        const int exact = columns == 1 ? (lane % 4 < 2 ? dot[half][0] : dot[half][2]) : dot[half][2 * upper + column];
        scale_[half][i] = weights.scales[upper].scale(block, half) * rows.scale(second, column);
        dot_[half][i] = __int_as_float(exact) - kMagic;
      }
    if constexpr (kHasMinimum) {
#pragma unroll
      for (int i = 0; i < LaneShare<columns>::kOutputs; ++i) minimum_[i] = weights.scales[i].minimum(block);
#pragma unroll
      for (int i = 0; i < columns; ++i) row_sum_[i] = rows.scaled_sum(second, i);
    }
  }

  // Whatever the compiler would rather do later, behind a barrier that follows, is done here.
  __device__ void settle_all() {
#pragma unroll
    for (int half = 0; half < kDots; ++half)
#pragma unroll
      for (int i = 0; i < kSums; ++i) settle(scale_[half][i], dot_[half][i]);
    if constexpr (kHasMinimum) settle(minimum_[0], minimum_[LaneShare<columns>::kOutputs - 1]);
  }

  __device__ void add_to(float (&sum)[kSums]) const {
#pragma unroll
    for (int half = 0; half < kDots; ++half)
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        sum[i] = fmaf(scale_[half][i], dot_[half][i], sum[i]);
        if constexpr (kHasMinimum) sum[i] = fmaf(minimum_[i / columns], row_sum_[i % columns], sum[i]);
      }
  }

 private:
  static constexpr bool kHasMinimum = OutputScales<type>::kHasMinimum;
  static constexpr int kDots = type == DType::q6_k ? 2 : 1;

  float scale_[kDots][kSums];
  float dot_[kDots][kSums];
  float minimum_[kHasMinimum ? LaneShare<columns>::kOutputs : 1];
  float row_sum_[columns];
};

// A pair of blocks of weights against the same of some tiles of rows: all dots first, then the chains, so that none
// waits for another's dots. blocks: of the chunk that there are
template <DType type, int tiles>
__device__ void add_pair(const ChunkWeights<type, 2>& weights, int pair, int blocks, const std::uint8_t* rows, int lane,
                         float (&sum)[tiles][4]) {
  RowPair<2> of_rows[tiles];
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile) of_rows[tile].load(rows + tile * kTileChunkBytes, pair, lane);
#pragma unroll
  for (int block = 2 * pair; block < 2 * pair + 2; ++block) {
    if (block >= blocks) return;
    std::uint32_t a[4];
    weights.integers.fragment(block, a);
    BlockTerms<type, 2> terms[tiles];
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) terms[tile].compute(a, weights, block, of_rows[tile], lane);
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) terms[tile].add_to(sum[tile]);
  }
}

}  // namespace espalier::cuda
