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

// The scales of one lane of a chunk: of outputs g and g + 8.
template <DType type>
class ChunkScales {
 public:
  static constexpr ScaleForm kForm = block_format(type).scales;
  static constexpr bool kHasMinimum = kForm == ScaleForm::with_minimum || kForm == ScaleForm::k;

  __device__ void load(const std::uint8_t* piece, int lane) {
    const std::uint8_t* p = piece + scales_offset(block_format(type).bits);
    const int g = lane / 4;
    if constexpr (kForm == ScaleForm::k) {
      const uint2 both = reinterpret_cast<const uint2*>(p)[g];
      large_[0] = both.x, large_[1] = both.y;
      p += 64;
    }
    if constexpr (kForm == ScaleForm::q6_k) {
      large_[0] = reinterpret_cast<const std::uint32_t*>(p)[g];
      p += 32;
    }
    const auto* const words = reinterpret_cast<const uint4*>(p + g * 4 * kWords);
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i) {
      const uint4 four = words[i];
      words_[4 * i] = four.x, words_[4 * i + 1] = four.y, words_[4 * i + 2] = four.z, words_[4 * i + 3] = four.w;
    }
  }

  // half: which sub-block of 16, for q6_k
  __device__ float scale(int block, int upper, int half) const {
    if constexpr (kForm == ScaleForm::plain) return half_of(words_[block], upper);
    if constexpr (kForm == ScaleForm::with_minimum) return half_of(words_[2 * block + upper], 0);
    if constexpr (kForm == ScaleForm::k)
      return half_of(large_[upper], 0) * static_cast<float>(words_[block] >> 16 * upper & 0xffu);
    const auto small = static_cast<std::int8_t>(words_[block] >> (16 * half + 8 * upper) & 0xffu);
    return half_of(large_[0], upper) * static_cast<float>(small);
  }
  __device__ float minimum(int block, int upper) const {
    if constexpr (kForm == ScaleForm::with_minimum) return half_of(words_[2 * block + upper], 1);
    if constexpr (kForm == ScaleForm::k)
      return -(half_of(large_[upper], 1) * static_cast<float>(words_[block] >> (16 * upper + 8) & 0xffu));
    return 0.0f;
  }

 private:
  static constexpr int kWords = kForm == ScaleForm::with_minimum ? 16 : 8;  // for each g

  __device__ static float half_of(std::uint32_t word, int high) {
    return widen_f16(static_cast<std::uint16_t>(high ? word >> 16 : word & 0xffffu));
  }

  std::uint32_t large_[2];
  std::uint32_t words_[kWords];
};

// What a warp has of one chunk of weights.
template <DType type>
struct ChunkWeights {
  ChunkIntegers<type> integers;
  ChunkScales<type> scales;
  __device__ void load(const std::uint8_t* piece, int lane) {
    integers.load(piece, lane);
    scales.load(piece, lane);
  }
};

// Where the rows of a tile lie for ChunkProducts: as quantise_block.h left them, or one row alone.
template <int columns>
struct RowLayout {
  static constexpr int kBlockBytes = columns == 1 ? 48 : kTileBlockBytes;
  static constexpr int kScales = columns == 1 ? 32 : 256;
};

// What a lane adds to its sums, block by block: outputs g and g + 8, for rows 2 t and 2 t + 1 of the tile. One row
// alone (columns 1) stands in every column, and lanes with t = 0 have the sums that count. Those of rows that there are
// not may be anything.
template <DType type, int columns>
class ChunkProducts {
 public:
  static constexpr int kSums = 2 * columns;

  __device__ void compute(const std::uint8_t* piece, const std::uint8_t* rows, int lane) {
    ChunkIntegers<type> integers;
    ChunkScales<type> scales;
    integers.load(piece, lane);
    scales.load(piece, lane);
#pragma unroll
    for (int block = 0; block < kChunkBlocks; ++block) {
      const std::uint8_t* const x = rows + block * RowLayout<columns>::kBlockBytes;
      const uint2 b = reinterpret_cast<const uint2*>(x)[columns == 1 ? lane % 4 : lane];
      const float4 d = reinterpret_cast<const float4*>(x + RowLayout<columns>::kScales)[columns == 1 ? 0 : lane % 4];
      std::uint32_t a[4];
      integers.fragment(block, a);
      int dot[kDots][4];
      if constexpr (kDots == 1) {
        multiply_bytes_32(dot[0], a, b.x, b.y, kMagicBits);
      } else {
        multiply_bytes_16(dot[0], a[0], a[1], b.x, kMagicBits);
        multiply_bytes_16(dot[1], a[2], a[3], b.y, kMagicBits);
      }
#pragma unroll
      for (int half = 0; half < kDots; ++half)
#pragma unroll
        for (int i = 0; i < kSums; ++i) {
          const int upper = i / columns, column = i % columns;
          scale_[block][half][i] = scales.scale(block, upper, half) * (column ? d.y : d.x);
          dot_[block][half][i] = __int_as_float(dot[half][upper * 2 + column]) - kMagic;
          settle(scale_[block][half][i], dot_[block][half][i]);
        }
      if constexpr (kHasMinimum) {
        minimum_[block][0] = scales.minimum(block, 0), minimum_[block][1] = scales.minimum(block, 1);
        row_sum_[block][0] = d.z, row_sum_[block][columns - 1] = columns == 1 ? d.z : d.w;
        settle(minimum_[block][0], minimum_[block][1]);
      }
    }
  }

  // blocks: of this chunk that there are
  __device__ void add_to(float (&sum)[kSums], int blocks) const {
    if (blocks == kChunkBlocks) {
#pragma unroll
      for (int block = 0; block < kChunkBlocks; ++block) add_block(block, sum);
    } else {
#pragma unroll
      for (int block = 0; block < kChunkBlocks; ++block)
        if (block < blocks) add_block(block, sum);
    }
  }

 private:
  static constexpr bool kHasMinimum = ChunkScales<type>::kHasMinimum;
  static constexpr int kDots = type == DType::q6_k ? 2 : 1;

  __device__ void add_block(int block, float (&sum)[kSums]) const {
#pragma unroll
    for (int half = 0; half < kDots; ++half)
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        sum[i] = fmaf(scale_[block][half][i], dot_[block][half][i], sum[i]);
        if constexpr (kHasMinimum) sum[i] = fmaf(minimum_[block][i / columns], row_sum_[block][i % columns], sum[i]);
      }
  }

  float scale_[kChunkBlocks][kDots][kSums];
  float dot_[kChunkBlocks][kDots][kSums];
  float minimum_[kHasMinimum ? kChunkBlocks : 1][2];
  float row_sum_[kHasMinimum ? kChunkBlocks : 1][columns];
};

}  // namespace espalier::cuda
