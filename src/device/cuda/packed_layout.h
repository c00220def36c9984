// How block-quantised weights lie in device memory (docs/cuda.md), the same for all formats but for what a piece holds.
//
// Outputs in groups of 16, inputs in chunks of 8 blocks of 32. One chunk of one group is a piece: first the integers in
// the order in which the 32 lanes of a warp want their matrix fragments, then the scales. Pieces are ordered by group,
// then by chunk, so that whoever computes a group reads one stretch of memory. A group or a chunk that is not full is
// filled up with zeros, whose sums nobody reads.
//
// Lane 4 g + t of a warp has outputs g and g + 8 of its group, and of every block the elements 4 t to 4 t + 3 (the low
// half) and 16 + 4 t to 16 + 4 t + 3 (the high half), as words of four bytes.
//   8 bits:    for each block a uint4 a lane: low half of g, of g + 8, high half of g, of g + 8.
//   4 bits:    for each pair of blocks a uint4 a lane: first block of g, of g + 8, second block of g, of g + 8; the
//              low half in the low nibbles, as in a file of q4_0.
//   5, 6 bits: behind all nibbles the upper bits, for each pair of blocks: 5 bits a word a lane, in whose bytes bit
//              4 block + 2 (g + 8) + half belongs to the word of that half; 6 bits a word a lane for g and one for
//              g + 8, with the bits 4 block + 2 half and the next.
//   Scales:
//     plain:        f16 [output][block]
//     with minimum: f16 [output][block][scale, minimum]
//     q4_k, q5_k:   f16 [output][d, dmin], then u8 [output][block][scale, minimum]
//     q6_k:         f16 [output] d, then i8 [output][sub-block of 16]
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "device/cuda/linear_parts.h"

namespace espalier::cuda {

inline constexpr int kChunkBlocks = 8;  // blocks of 32 inputs
inline constexpr int kBlock = 32;

enum class ScaleForm { plain, with_minimum, k, q6_k };

struct BlockFormat {
  int bits = 8;
  int offset = 0;  // what is stored unsigned, less this, is the integer of the contract
  ScaleForm scales = ScaleForm::plain;
  int file_elements = 32;  // of one block of the file
  int file_bytes = 0;
};

__host__ __device__ constexpr BlockFormat block_format(DType type) {
  switch (type) {
    case DType::q4_0: return {4, 8, ScaleForm::plain, 32, 18};
    case DType::q4_1: return {4, 0, ScaleForm::with_minimum, 32, 20};
    case DType::q5_0: return {5, 16, ScaleForm::plain, 32, 22};
    case DType::q5_1: return {5, 0, ScaleForm::with_minimum, 32, 24};
    case DType::q8_0: return {8, 0, ScaleForm::plain, 32, 34};
    case DType::q4_k: return {4, 0, ScaleForm::k, 256, 144};
    case DType::q5_k: return {5, 0, ScaleForm::k, 256, 176};
    default: return {6, 32, ScaleForm::q6_k, 256, 210};
  }
}

// Bytes of a piece, and where its parts begin.
__host__ __device__ constexpr int upper_bits_offset(int bits) {
  return bits == 8 ? 4096 : 2048;
}
__host__ __device__ constexpr int scales_offset(int bits) {
  return bits == 8 ? 4096 : 2048 + (bits - 4) * 512;
}
__host__ __device__ constexpr int scale_bytes(ScaleForm form) {
  switch (form) {
    case ScaleForm::plain: return 256;
    case ScaleForm::with_minimum: return 512;
    case ScaleForm::k: return 64 + 256;
    default: return 32 + 256;
  }
}
__host__ __device__ constexpr int piece_bytes(DType type) {
  return scales_offset(block_format(type).bits) + scale_bytes(block_format(type).scales);
}

// Where the piece of a group and a chunk begins.
__host__ __device__ constexpr std::int64_t piece_offset(DType type, std::int64_t group, std::int64_t chunk,
                                                        std::int64_t chunks) {
  return (group * chunks + chunk) * piece_bytes(type);
}

// Element k of a row as its file has it, unsigned where the format has an offset.
__device__ inline int file_integer(DType type, const std::uint8_t* row, std::int64_t k) {
  const BlockFormat format = block_format(type);
  const std::uint8_t* p = row + k / format.file_elements * format.file_bytes;
  const int j = static_cast<int>(k % format.file_elements);
  const auto nibble = [](std::uint8_t byte, bool high) { return high ? byte >> 4 : byte & 0x0f; };
  const auto bit = [](const std::uint8_t* bytes, int i) { return bytes[i / 8] >> (i % 8) & 1; };
  switch (type) {
    case DType::q4_0: return nibble(p[2 + j % 16], j >= 16);
    case DType::q4_1: return nibble(p[4 + j % 16], j >= 16);
    case DType::q5_0: return nibble(p[6 + j % 16], j >= 16) | bit(p + 2, j) << 4;
    case DType::q5_1: return nibble(p[8 + j % 16], j >= 16) | bit(p + 4, j) << 4;
    case DType::q8_0: return static_cast<std::int8_t>(p[2 + j]);
    case DType::q4_k: return nibble(p[16 + j / 64 * 32 + j % 32], j / 32 % 2 == 1);
    case DType::q5_k:
      return nibble(p[48 + j / 64 * 32 + j % 32], j / 32 % 2 == 1) | (p[16 + j % 32] >> j / 32 & 1) << 4;
    default: {
      const int half = j / 128, quarter = j % 128 / 32, e = j % 32;
      return nibble(p[half * 64 + quarter % 2 * 32 + e], quarter >= 2) | (p[128 + half * 32 + e] >> 2 * quarter & 3)
                                                                             << 4;
    }
  }
}

// The 6-bit scale and minimum of sub-block i of a q4_k or q5_k block.
__device__ inline void file_k_scales(const std::uint8_t* block, int i, std::uint8_t& scale, std::uint8_t& minimum) {
  const std::uint8_t* p = block + 4;
  if (i < 4) {
    scale = static_cast<std::uint8_t>(p[i] & 63);
    minimum = static_cast<std::uint8_t>(p[i + 4] & 63);
  } else {
    scale = static_cast<std::uint8_t>((p[i + 4] & 0x0f) | (p[i - 4] >> 6) << 4);
    minimum = static_cast<std::uint8_t>((p[i + 4] >> 4) | (p[i] >> 6) << 4);
  }
}

}  // namespace espalier::cuda
