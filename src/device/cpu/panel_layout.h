// How a weight lies in memory: panels of 16 outputs, so that one vector holds the same input of 16 outputs.
//
// Float weights: [inputs][16] in the stored type.
//
// Block formats: blocks of 32 inputs ascending. First the integers of all blocks, then all scales; a panel is one
// stretch of memory that a linear reads once, front to back but for the scales.
//   integers of one block  four groups of 64 bytes: byte 4o + i of group g holds inputs 4g + i (low nibble) and
//                          16 + 4g + i (high nibble) of output o. q8_0: eight groups of whole signed bytes instead.
//   fifth bits (q5)        64 bytes: bit g of byte 4o + i belongs to input 4g + i, g = 0 .. 7
//   high pairs (q6_k)      two times 64 bytes: bits 2g, 2g + 1 of byte 4o + i belong to inputs 4g + i and 16 + 4g + i
//   scales                 16 f16 per block, and 16 f16 minima where the format has them
//   scales (q4_k, q5_k)    per 8 blocks 16 f16 d, 16 f16 dmin, then per block 16 scales and 16 minima of 6 bits
//   scales (q6_k)          per 8 blocks 16 f16 d, then per half block 16 signed scales
//
// A part whose outputs do not fill its last panel is padded with zeros.
#pragma once

#include <cstdint>

namespace espalier::cpu {

struct BlockLayout {
  std::int64_t integer_bytes;  // per block of 32 inputs
  std::int64_t scale_bytes;    // per scale_blocks blocks
  std::int64_t scale_blocks;
};

constexpr BlockLayout kLayoutQ4_0{256, 32, 1};
constexpr BlockLayout kLayoutQ4_1{256, 64, 1};
constexpr BlockLayout kLayoutQ5_0{320, 32, 1};
constexpr BlockLayout kLayoutQ5_1{320, 64, 1};
constexpr BlockLayout kLayoutQ8_0{512, 32, 1};
constexpr BlockLayout kLayoutQ4_K{256, 320, 8};
constexpr BlockLayout kLayoutQ5_K{320, 320, 8};
constexpr BlockLayout kLayoutQ6_K{384, 288, 8};

}  // namespace espalier::cpu
