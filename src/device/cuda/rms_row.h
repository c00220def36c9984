// The factor of a norm, 1 / sqrt(dot16(x, x) / dim + eps), of one row, by a block of threads.
#pragma once

#include "device/cuda/kernel.h"

namespace espalier::cuda {

struct RmsRow {
  const float* x;  // the row once more: in shared memory, where it has room
  float factor;
};

// Sixteen threads have a partial sum each, over a piece of the row that all bring into shared memory. The result is
// every thread's.
__device__ inline RmsRow rms_row(const float* x, std::int64_t dim, float eps) {
  constexpr int kLanes = 16, kPiece = 2048;
  __shared__ float piece[kPiece];
  __shared__ float factor;
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  float sum = 0;
  for (std::int64_t begin = 0; begin < dim; begin += kPiece) {
    const int count = static_cast<int>(dim - begin < kPiece ? dim - begin : kPiece);
    if (begin > 0) __syncthreads();
    for (int i = thread; i < count; i += threads) piece[i] = x[begin + i];
    __syncthreads();
    if (thread < kLanes) {
#pragma unroll 8
      for (int i = thread; i < count; i += kLanes) sum = fmaf(piece[i], piece[i], sum);
    }
  }
  if (thread < kWarp) {
    for (int lanes = kLanes / 2; lanes >= 1; lanes /= 2) sum = sum + __shfl_xor_sync(kAllLanes, sum, lanes);
    if (thread == 0) factor = 1.0f / sqrtf(sum / static_cast<float>(dim) + eps);
  }
  __syncthreads();
  return {dim <= kPiece ? piece : x, factor};
}

}  // namespace espalier::cuda
