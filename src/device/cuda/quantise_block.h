// One block of 32 elements of one row, quantised as the contract says and stored where linear_blocks.cu looks for it:
// by a whole warp, an element a lane.
#pragma once

#include "device/cuda/kernel.h"
#include "device/cuda/packed_layout.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {

// The rows of a linear's input behind the kernel that quantises them: [tiles of 8 rows][blocks][kTileBlockBytes].
struct QuantisedRows {
  std::uint8_t* data = nullptr;
  std::int64_t blocks = 0;
};

// A block with a NaN or an infinity gets the scale NaN, which makes every output of its row NaN.
__device__ inline void quantise_block(float value, std::int64_t r, std::int64_t block, QuantisedRows rows) {
  const int j = static_cast<int>(threadIdx.x % kWarp);
  std::uint32_t largest_bits = __float_as_uint(value) & 0x7fffffffu;  // ordered as the magnitudes are
#pragma unroll
  for (int lanes = 16; lanes >= 1; lanes /= 2) {
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, largest_bits, lanes);
    largest_bits = other > largest_bits ? other : largest_bits;
  }
  const float largest = __uint_as_float(largest_bits);
  const bool finite = largest_bits < 0x7f800000u;
  const bool counts_as_zero = !finite || largest < 0x1p-100f;
  const float inverse = counts_as_zero ? 0.0f : 127.0f / largest;
  const int q = counts_as_zero ? 0 : static_cast<int>(rintf(value * inverse));
  int sum = q;
#pragma unroll
  for (int lanes = 16; lanes >= 1; lanes /= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
  const int g = static_cast<int>(r % kRowTile), lane = g * 4 + j % 16 / 4;
  std::uint8_t* const out = rows.data + (r / kRowTile * rows.blocks + block) * kTileBlockBytes;
  out[lane * 8 + j / 16 * 4 + j % 4] = static_cast<std::uint8_t>(q & 0xff);
  if (j == 0) {
    const float d = !finite ? not_a_number() : counts_as_zero ? 0.0f : largest / 127.0f;
    float* const scales = reinterpret_cast<float*>(out + 256) + g / 2 * 4 + g % 2;
    scales[0] = d;
    scales[2] = d * static_cast<float>(sum);
  }
}

}  // namespace espalier::cuda
