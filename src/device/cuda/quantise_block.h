// One block of 32 elements of one row, quantised as the contract says and stored where linear_blocks.cu looks for it:
// by a whole warp, an element a lane.
#pragma once

#include "device/cuda/kernel.h"
#include "device/cuda/packed_layout.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {

// The rows of a linear's input behind the kernel that quantises them (kernels.h): [tiles of 8 rows][chunks], or
// [chunks] of one row alone.
struct QuantisedRows {
  std::uint8_t* data = nullptr;
  std::int64_t blocks = 0;
  bool one_row = false;

  // Where the four integers t of a half of a block go.
  __device__ std::uint8_t* integers(std::int64_t r, std::int64_t block, int half, int t) const {
    const std::int64_t pair = block % kChunkBlocks / 2;
    std::uint8_t* const quarters = one_row ? of_one_row(block) + (pair * 4 + t) * 16
                                           : of_tile(r, block) + pair * kTilePairBytes + (r % kRowTile * 4 + t) * 16;
    return quarters + block % 2 * 8 + half * 4;
  }
  __device__ void store_scales(std::int64_t r, std::int64_t block, float d, float d_sum) const {
    float* scales;
    if (one_row) {
      scales = reinterpret_cast<float*>(of_one_row(block) + kChunkBlocks * kBlock) + block % kChunkBlocks * 2;
    } else {
      std::uint8_t* const of_pair = of_tile(r, block) + block % kChunkBlocks / 2 * kTilePairBytes;
      scales =
          reinterpret_cast<float*>(of_pair + 2 * kRowTile * kBlock) + block % 2 * 16 + r % kRowTile / 2 * 4 + r % 2;
    }
    scales[0] = d;
    scales[one_row ? 1 : 2] = d_sum;
  }

 private:
  __device__ std::uint8_t* of_one_row(std::int64_t block) const {
    return data + block / kChunkBlocks * kOneRowChunkBytes;
  }
  __device__ std::uint8_t* of_tile(std::int64_t r, std::int64_t block) const {
    const std::int64_t chunks = (blocks + kChunkBlocks - 1) / kChunkBlocks;
    return data + (r / kRowTile * chunks + block / kChunkBlocks) * kTileChunkBytes;
  }
};

// A block with a NaN or an infinity gets the scale NaN, which makes every output of its row NaN.
__device__ inline void quantise_block(float value, std::int64_t r, std::int64_t block, QuantisedRows rows) {
  constexpr std::uint32_t kLeast = 0x0d800000u, kInfinity = 0x7f800000u;  // bits of 2^-100
  constexpr float kMagic = 12582912.0f;  // added to a small number it leaves the nearest integer in the lowest bits
  constexpr std::int32_t kMagicBits = 0x4B400000;
  const int j = static_cast<int>(threadIdx.x % kWarp);
  const std::uint32_t largest_bits =
      largest_of_warp(__float_as_uint(value) & 0x7fffffffu);  // ordered as magnitudes are
  const bool counts_as_zero = largest_bits - kLeast >= kInfinity - kLeast;
  const float largest = __uint_as_float(counts_as_zero ? 0x3f800000u : largest_bits);
  const int q = counts_as_zero ? 0 : __float_as_int(value * divide_127_by(largest) + kMagic) - kMagicBits;
  rows.integers(r, block, j / 16, j % 16 / 4)[j % 4] = static_cast<std::uint8_t>(q & 0xff);
  const float d = largest_bits >= kInfinity ? not_a_number() : counts_as_zero ? 0.0f : divide_by_127(largest);
  const float sum = __int_as_float(sum_of_warp(q) + kMagicBits) - kMagic;
  if (j == 0) rows.store_scales(r, block, d, d * sum);
}

}  // namespace espalier::cuda
