// The rows of a linear of weights of two bytes as sums of one or two numbers of their type, alone or in one kernel with
// the op that makes them; what that op stores is stored all the same.
//
// bf16 has the range of a float. f16 has not: a row is first multiplied by the power of two that brings its largest
// finite number to 2^14 or more, below 2^15, and the row's sums are divided by it in the end. Both are exact but for
// what is so small beside the largest number that it does not count.
#include "device/cuda/float_fragments.h"
#include "device/cuda/kernels.h"
#include "device/cuda/rms_row.h"

namespace espalier::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostThreads = 1024;

// A row for each x of the grid, an input a thread, those too that only fill up a chunk.
struct Element {
  std::int64_t r, k;
  __device__ Element() : r(blockIdx.x), k(std::int64_t{blockIdx.y} * kThreads + threadIdx.x) {}
};

__global__ void split_kernel(ConstRows x, TermRows terms) {
  wait_for_earlier_kernels();
  const Element at;
  if (at.k >= terms.chunks * kFloatChunk) return;
  store_terms<Bf16Element>(at.k < x.columns ? x.data[at.r * x.stride + at.k] : 0.0f, at.r, at.k, terms);
}

__global__ void swiglu_split_kernel(const float* x, Rows y, TermRows terms) {
  let_the_next_come();
  wait_and_hold_the_next_back();
  const Element at;
  if (at.k >= terms.chunks * kFloatChunk) return;
  float value = 0;
  if (at.k < y.columns) {
    const float* const row = x + at.r * 2 * y.columns;
    value = silu_f32(row[at.k]) * row[at.k + y.columns];
    y.data[at.r * y.stride + at.k] = value;
  }
  store_terms<Bf16Element>(value, at.r, at.k, terms);
}

// One row by one block of threads.
__global__ void __launch_bounds__(kMostThreads)
    norm_split_kernel(const float* x, const float* w, float eps, Rows y, TermRows terms) {
  let_the_next_come();
  const std::int64_t r = blockIdx.x, first = threadIdx.x;
  const float first_weight = first < y.columns ? w[first] : 0.0f;  // on its way while others still work
  wait_and_hold_the_next_back();
  const RmsRow row = rms_row(x + r * y.columns, y.columns, eps);
  for (std::int64_t k = first; k < terms.chunks * kFloatChunk; k += blockDim.x) {
    float value = 0;
    if (k < y.columns) {
      value = (row[k] * row.factor) * (k == first ? first_weight : w[k]);
      y.data[r * y.stride + k] = value;
    }
    store_terms<Bf16Element>(value, r, k, terms);
  }
}

// The largest finite magnitude of a row, as bits, which are ordered as magnitudes are; by a block of threads.
__device__ std::uint32_t largest_finite(const float* row, std::int64_t columns) {
  __shared__ std::uint32_t of_warp[kThreads / kWarp];
  std::uint32_t largest = 0;
  for (std::int64_t k = threadIdx.x; k < columns; k += kThreads) {
    const std::uint32_t bits = __float_as_uint(row[k]) & 0x7fffffffu;
    if (bits < 0x7f800000u && bits > largest) largest = bits;
  }
#pragma unroll
  for (int lanes = kWarp / 2; lanes >= 1; lanes /= 2) {
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, largest, lanes);
    largest = other > largest ? other : largest;
  }
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = largest;
  __syncthreads();
  for (const std::uint32_t other : of_warp) largest = other > largest ? other : largest;
  return largest;
}

__device__ float power_of_two(int exponent) {  // from -127, the least of which a float has no whole exponent, to 127
  return exponent == -127 ? __uint_as_float(0x00400000u)
                          : __uint_as_float(static_cast<std::uint32_t>(exponent + 127) << 23);
}

__global__ void __launch_bounds__(kThreads) scale_and_split_kernel(ConstRows x, TermRows terms, float* scales) {
  wait_for_earlier_kernels();
  const std::int64_t r = blockIdx.x;
  const float* const row = x.data + r * x.stride;
  const int wanted = 14 - (static_cast<int>(largest_finite(row, x.columns) >> 23) - 127);
  const int exponent = wanted < 127 ? wanted : 127;
  const float scale = power_of_two(exponent);
  for (std::int64_t k = threadIdx.x; k < terms.chunks * kFloatChunk; k += kThreads)
    store_terms<F16Element>(k < x.columns ? row[k] * scale : 0.0f, r, k, terms);
  if (threadIdx.x == 0) scales[r] = power_of_two(-exponent);
}

Launch a_thread_each(std::int64_t rows, std::int64_t inputs) {
  return {{static_cast<unsigned>(rows), blocks_for(float_chunks(inputs) * kFloatChunk, kThreads), 1}, kThreads};
}

}  // namespace

std::int64_t term_bytes(Queue queue, std::int64_t rows, std::int64_t inputs) {
  return term_rows(queue, nullptr, rows, inputs).bytes() + rows * static_cast<std::int64_t>(sizeof(float));
}

void split_rows(Queue queue, DType type, ConstRows x, std::byte* terms) {
  const TermRows to = term_rows(queue, terms, x.rows, x.columns);
  if (type == DType::bf16)
    launch(queue, "split_rows", split_kernel, a_thread_each(x.rows, x.columns), x, to);
  else
    launch(queue, "split_rows", scale_and_split_kernel, {{static_cast<unsigned>(x.rows), 1, 1}, kThreads}, x, to,
           term_scales(to));
}

void swiglu_split(Queue queue, const float* x, Rows y, std::byte* terms) {
  launch(queue, "swiglu", swiglu_split_kernel, a_thread_each(y.rows, y.columns), x, y,
         term_rows(queue, terms, y.rows, y.columns));
}

void rms_norm_split(Queue queue, const float* x, const float* w, float eps, Rows y, std::byte* terms) {
  const std::int64_t inputs = float_chunks(y.columns) * kFloatChunk;
  launch(queue, "rms_norm", norm_split_kernel,
         {{static_cast<unsigned>(y.rows), 1, 1}, static_cast<unsigned>(inputs < kMostThreads ? inputs : kMostThreads)},
         x, w, eps, y, term_rows(queue, terms, y.rows, y.columns));
}

}  // namespace espalier::cuda
