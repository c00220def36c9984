// Several blocks of threads that leave parts of one result: the last of them to arrive puts the parts together. For .cu
// files.
#pragma once

#include <cstdint>

#include "device/cuda/kernel.h"

namespace espalier::cuda {

// Whether this block is the last of `blocks` that arrive here; then it sees what the others left. arrived: 0 before the
// first of them and after the last. All threads of the block
__device__ inline bool arrive_last(std::int32_t* arrived, int blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    last = count_in_order(arrived) + 1 == blocks;
    if (last) *arrived = 0;
  }
  __syncthreads();
  return last;
}

// The same of a warp of each of `warps` blocks. All lanes
__device__ inline bool arrive_last_of_warps(std::int32_t* arrived, int warps, int lane) {
  __syncwarp();
  int last = 0;
  if (lane == 0) {
    last = count_in_order(arrived) + 1 == warps ? 1 : 0;
    if (last) *arrived = 0;
  }
  last = __shfl_sync(kAllLanes, last, 0);
  __syncwarp();
  return last != 0;
}

}  // namespace espalier::cuda
