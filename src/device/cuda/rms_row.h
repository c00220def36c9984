// The factor of a norm, 1 / sqrt(dot16(x, x) / dim + eps), of one row, by a block of threads.
#pragma once

#include "device/cuda/kernel.h"

namespace espalier::cuda {

// A row and its factor. The first kPiece elements lie in shared memory by the lanes of dot16 that they belong to, so
// that a lane finds four of its own at once.
class RmsRow {
 public:
  static constexpr int kLanes = 16, kPiece = 4096, kPitch = kPiece / kLanes + 4;

  __device__ RmsRow(const float* x, const float* piece, std::int64_t dim, float factor)
      : x_(x), piece_(piece), whole_(dim <= kPiece), factor(factor) {}

  __device__ float operator[](std::int64_t i) const { return whole_ ? piece_[place(static_cast<int>(i))] : x_[i]; }
  __device__ static int place(int i) { return i % kLanes * kPitch + i / kLanes; }

 private:
  const float *x_, *piece_;
  bool whole_;

 public:
  float factor;
};

// What a lane adds of `count` elements of its own, four at a time: the next ones are read while these are added.
__device__ inline float add_squares(const float* own, int count, float sum) {
  constexpr int kAhead = 4;
  const auto* const fours = reinterpret_cast<const float4*>(own);
  const int whole = count / 4;
  float4 next[kAhead];
#pragma unroll
  for (int u = 0; u < kAhead; ++u) next[u] = fours[u < whole ? u : 0];
  int i = 0;
  for (; i + kAhead <= whole; i += kAhead) {
    float4 now[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      now[u] = next[u];
      next[u] = fours[i + kAhead + u < whole ? i + kAhead + u : 0];
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      sum = fmaf(now[u].x, now[u].x, sum);
      sum = fmaf(now[u].y, now[u].y, sum);
      sum = fmaf(now[u].z, now[u].z, sum);
      sum = fmaf(now[u].w, now[u].w, sum);
    }
  }
  for (i *= 4; i < count; ++i) sum = fmaf(own[i], own[i], sum);
  return sum;
}

// Sixteen threads have a partial sum each, over pieces of the row that all bring into shared memory. The result is
// every thread's.
__device__ inline RmsRow rms_row(const float* x, std::int64_t dim, float eps) {
  constexpr int kLanes = RmsRow::kLanes, kPiece = RmsRow::kPiece, kAtOnce = 8;
  __shared__ float4 fours[kLanes * RmsRow::kPitch / 4];
  __shared__ float factor;
  auto* const piece = reinterpret_cast<float*>(fours);
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  float sum = 0;
  for (std::int64_t begin = 0; begin < dim; begin += kPiece) {
    const int count = static_cast<int>(dim - begin < kPiece ? dim - begin : kPiece);
    if (begin > 0) __syncthreads();
    for (int first = thread; first < count; first += kAtOnce * threads) {
      float value[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) value[u] = first + u * threads < count ? x[begin + first + u * threads] : 0.0f;
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
        if (first + u * threads < count) piece[RmsRow::place(first + u * threads)] = value[u];
    }
    __syncthreads();
    if (thread < kLanes)
      sum = add_squares(piece + thread * RmsRow::kPitch, (count - thread + kLanes - 1) / kLanes, sum);
  }
  if (thread < kWarp) {
    for (int lanes = kLanes / 2; lanes >= 1; lanes /= 2) sum = sum + __shfl_xor_sync(kAllLanes, sum, lanes);
    if (thread == 0) factor = 1.0f / sqrtf(sum / static_cast<float>(dim) + eps);
  }
  __syncthreads();
  return {x, piece, dim, factor};
}

}  // namespace espalier::cuda
