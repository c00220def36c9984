// Sorting by one block of threads, in its shared memory. For .cu files.
#pragma once

#include "device/cuda/kernel.h"

namespace espalier::cuda {

// As many as are sorted together, at least two: a power of two.
__host__ __device__ inline int sorted_size(int count) {
  int size = 2;
  while (size < count) size *= 2;
  return size;
}

template <typename T>
__device__ void exchange_values(T& a, T& b) {
  const T first = a;
  a = b;
  b = first;
}

// Sorts `size` elements, a power of two, bitonically: comes_before(a, b) says whether element a stands before element b
// in the order wanted, swap(a, b) exchanges them. No two are equal, or those are alike. Waits for all threads before
// and behind it.
template <typename Before, typename Swap>
__device__ void sort_block(int size, Before comes_before, Swap swap) {
  for (int run = 2; run <= size; run *= 2)
    for (int step = run / 2; step >= 1; step /= 2) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < size / 2; i += static_cast<int>(blockDim.x)) {
        const int a = 2 * i - (i & (step - 1)), b = a + step;
        const bool ascends = (a & run) == 0;
        if (ascends ? comes_before(b, a) : comes_before(a, b)) swap(a, b);
      }
    }
  __syncthreads();
}

}  // namespace espalier::cuda
