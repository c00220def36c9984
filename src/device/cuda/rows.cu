// The ops that treat each row, head or element by itself: rms_norm, rope, swiglu, silu, add, gather_rows.
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/cuda/rms_row.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {
namespace {

constexpr int kThreads = 256;

__device__ std::int64_t thread_number() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

Launch one_thread_each(std::int64_t items) {
  return {{blocks_for(items, kThreads), 1, 1}, kThreads};
}

// One row by one block of threads.
__global__ void rms_norm_kernel(const float* x, const float* w, float eps, std::int64_t dim, float* y) {
  wait_for_earlier_kernels();
  y += blockIdx.x * dim;
  const RmsRow row = rms_row(x + blockIdx.x * dim, dim, eps);
  for (std::int64_t c = threadIdx.x; c < dim; c += blockDim.x) y[c] = (row[c] * row.factor) * w[c];
}

__global__ void rope_kernel(float* x, const std::int32_t* position, const float* cosine, const float* sine,
                            RopeShape shape) {
  wait_for_earlier_kernels();
  const std::int64_t i = thread_number();
  if (i >= shape.rows * shape.heads * shape.half) return;
  const std::int64_t j = i % shape.half, head = i / shape.half;
  const std::int64_t place = position[head / shape.heads] * shape.half + j;
  float* const p = x + head * 2 * shape.half + j;
  const float a = p[0], b = p[shape.half], c = cosine[place], s = sine[place];
  p[0] = fmaf(a, c, -(b * s));
  p[shape.half] = fmaf(b, c, a * s);
}

__global__ void swiglu_kernel(const float* x, Rows y) {
  wait_for_earlier_kernels();
  const std::int64_t i = thread_number();
  if (i >= y.rows * y.columns) return;
  const std::int64_t r = i / y.columns, c = i % y.columns;
  const float* const row = x + r * 2 * y.columns;
  y.data[r * y.stride + c] = silu_f32(row[c]) * row[c + y.columns];
}

__global__ void silu_kernel(float* x, std::int64_t elements) {
  wait_for_earlier_kernels();
  const std::int64_t i = thread_number();
  if (i < elements) x[i] = silu_f32(x[i]);
}

__global__ void add_kernel(float* x, const float* y, std::int64_t elements) {
  wait_for_earlier_kernels();
  const std::int64_t i = thread_number();
  if (i < elements) x[i] = x[i] + y[i];
}

__global__ void gather_kernel(ConstRows x, const std::int32_t* index, Rows y) {
  wait_for_earlier_kernels();
  const std::int64_t i = thread_number();
  if (i >= y.rows * y.columns) return;
  const std::int64_t r = i / y.columns, c = i % y.columns;
  y.data[r * y.stride + c] = x.data[index[r] * x.stride + c];
}

}  // namespace

int compiled_for() {
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, add_kernel), "cudaFuncGetAttributes");
  return attributes.ptxVersion;
}

void rms_norm(Queue queue, const float* x, const float* w, float eps, std::int64_t rows, std::int64_t dim, float* y) {
  const unsigned threads = dim <= 256 ? kWarp : kThreads;
  launch(queue, "rms_norm", rms_norm_kernel, {{static_cast<unsigned>(rows), 1, 1}, threads}, x, w, eps, dim, y);
}

void rope(Queue queue, float* x, const std::int32_t* position, const float* cosine, const float* sine,
          RopeShape shape) {
  launch(queue, "rope", rope_kernel, one_thread_each(shape.rows * shape.heads * shape.half), x, position, cosine, sine,
         shape);
}

void swiglu(Queue queue, const float* x, Rows y) {
  launch(queue, "swiglu", swiglu_kernel, one_thread_each(y.rows * y.columns), x, y);
}

void silu(Queue queue, float* x, std::int64_t elements) {
  launch(queue, "silu", silu_kernel, one_thread_each(elements), x, elements);
}

void add(Queue queue, float* x, const float* y, std::int64_t elements) {
  launch(queue, "add", add_kernel, one_thread_each(elements), x, y, elements);
}

void gather_rows(Queue queue, ConstRows x, const std::int32_t* index, Rows y) {
  launch(queue, "gather_rows", gather_kernel, one_thread_each(y.rows * y.columns), x, index, y);
}

}  // namespace espalier::cuda
