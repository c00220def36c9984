// The ops over a vocabulary: argmax, top_k, log_sum_exp. One block of threads for each row.
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kLanes = 256;  // partial sums over a vocabulary

// Where an element stands: the larger key comes first. The value above, the id inverted below, so that the lowest id
// wins among equals; both zeros are equal, and NaN counts as minus infinity. No element has key 0.
__device__ std::uint64_t order_key(float x, std::int64_t id) {
  const float value = rank_value(x);
  const std::uint32_t bits = value == 0.0f ? 0u : __float_as_uint(value);
  const std::uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<std::uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
}

__device__ std::int32_t id_of(std::uint64_t key) {
  return static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(key));
}

// The largest key of a block, to all of its threads. shared: one for each warp
__device__ std::uint64_t largest_of_block(std::uint64_t key, std::uint64_t* shared) {
  const auto larger = [](std::uint64_t a, std::uint64_t b) { return a > b ? a : b; };
  for (int lanes = kWarp / 2; lanes >= 1; lanes /= 2)
    key = larger(key,
                 static_cast<std::uint64_t>(__shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(key), lanes)));
  __syncthreads();  // whoever still reads the last one
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = key;
  __syncthreads();
  std::uint64_t all = 0;
  for (unsigned i = 0; i < blockDim.x / kWarp; ++i) all = larger(all, shared[i]);
  return all;
}

__global__ void __launch_bounds__(kThreads) argmax_kernel(ConstRows x, std::int32_t* id) {
  wait_and_hold_the_next_back();  // which may look ids up before it waits
  __shared__ std::uint64_t shared[kThreads / kWarp];
  const float* const row = x.data + blockIdx.x * x.stride;
  std::uint64_t best = 0;
#pragma unroll 8
  for (std::int64_t c = threadIdx.x; c < x.columns; c += blockDim.x) {
    const std::uint64_t key = order_key(row[c], c);
    best = key > best ? key : best;
  }
  best = largest_of_block(best, shared);
  if (threadIdx.x == 0) id[blockIdx.x] = id_of(best);
}

// One after the other: the largest of those behind the last one. A thread looks through its elements again only when
// its own was taken.
__global__ void __launch_bounds__(kThreads) top_k_kernel(ConstRows x, std::int64_t k, float* value, std::int32_t* id) {
  wait_and_hold_the_next_back();  // which may look ids up before it waits
  __shared__ std::uint64_t shared[kThreads / kWarp];
  const float* const row = x.data + blockIdx.x * x.stride;
  std::uint64_t last = ~std::uint64_t{0}, own = last;
  for (std::int64_t i = 0; i < k; ++i) {
    if (own == last) {  // at first, and where it was taken
      own = 0;
#pragma unroll 8
      for (std::int64_t c = threadIdx.x; c < x.columns; c += blockDim.x) {
        const std::uint64_t key = order_key(row[c], c);
        if (key < last && key > own) own = key;
      }
    }
    last = largest_of_block(own, shared);
    if (threadIdx.x == 0) {
      id[blockIdx.x * k + i] = id_of(last);
      value[blockIdx.x * k + i] = rank_value(row[id_of(last)]);
    }
  }
}

__global__ void __launch_bounds__(kLanes) log_sum_exp_kernel(ConstRows x, float scale, float* y) {
  wait_for_earlier_kernels();
  __shared__ float lane[kLanes];
  const float* const row = x.data + blockIdx.x * x.stride;
  const auto thread = static_cast<int>(threadIdx.x);
  float largest = -infinity();
#pragma unroll 8
  for (std::int64_t c = thread; c < x.columns; c += kLanes) {
    const float t = rank_value(scale * row[c]);
    largest = t > largest ? t : largest;
  }
  lane[thread] = largest;
  for (int half = kLanes / 2; half >= 1; half /= 2) {
    __syncthreads();
    if (thread < half) lane[thread] = lane[thread + half] > lane[thread] ? lane[thread + half] : lane[thread];
  }
  __syncthreads();
  largest = lane[0];
  __syncthreads();
  if (!is_finite(largest)) {
    if (thread == 0) y[blockIdx.x] = largest;
    return;
  }
  float sum = 0;
#pragma unroll 8
  for (std::int64_t c = thread; c < x.columns; c += kLanes) sum += exp_f32(rank_value(scale * row[c]) - largest);
  lane[thread] = sum;
  for (int half = kLanes / 2; half >= 1; half /= 2) {
    __syncthreads();
    if (thread < half) lane[thread] += lane[thread + half];
  }
  if (thread == 0) y[blockIdx.x] = static_cast<float>(static_cast<double>(largest) + log_f64(lane[0]));
}

unsigned threads_for(std::int64_t columns) {
  return columns >= kThreads ? kThreads : static_cast<unsigned>((columns + kWarp - 1) / kWarp * kWarp);
}

}  // namespace

void argmax(Queue queue, ConstRows x, std::int32_t* id) {
  launch(queue, "argmax", argmax_kernel, {{static_cast<unsigned>(x.rows), 1, 1}, threads_for(x.columns)}, x, id);
}

void top_k(Queue queue, ConstRows x, std::int64_t k, float* value, std::int32_t* id) {
  launch(queue, "top_k", top_k_kernel, {{static_cast<unsigned>(x.rows), 1, 1}, threads_for(x.columns)}, x, k, value,
         id);
}

void log_sum_exp(Queue queue, ConstRows x, float scale, float* y) {
  launch(queue, "log_sum_exp", log_sum_exp_kernel, {{static_cast<unsigned>(x.rows), 1, 1}, kLanes}, x, scale, y);
}

}  // namespace espalier::cuda
