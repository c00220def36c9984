// What the kernels of device/cuda use of CUDA, on a processor: every thread of a block is a fibre that runs until it
// waits for the others, the blocks of a grid run one after the other (those of a cluster in turn), and a launch returns
// when it has finished. Slow,
// and exact: the arithmetic is IEEE, as the kernels ask for it. Threads run in a shuffled order, so that a barrier that
// is missing shows. One thread of the host at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__
#ifndef __restrict__
#define __restrict__ __restrict
#endif

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(8) float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace espalier::cuda_on_host {

struct SharedBytes {
  std::size_t wanted, most;  // by a block, and that one can have
};
struct Grid {
  dim3 blocks, threads;
  SharedBytes shared;
  unsigned cluster = 1;  // blocks that can meet: 1, or all of them
};
// Throws where a block wants more shared memory than it can have.
void run_grid(const Grid& grid, const std::function<void()>& thread);
std::byte* dynamic_shared_memory();
void barrier_of_block();
// Meets 64 or so threads of a block at barrier `id`; a thread that only arrives does not wait.
void named_barrier(int id, int threads, bool waits);
// The blocks of a cluster run in turn, each until all of its threads wait for the others. What is declared __shared__
// they have in common, so none of it may be needed behind such a wait; dynamic shared memory is each one's own.
void arrive_at_cluster();
void wait_for_cluster();
// A copy to shared memory happens at once or when somebody waits for it, by chance: what is read without waiting shows,
// and so does what is overwritten while others still read it. Groups end as those of cp.async, and `left` of them may
// be under way after the wait.
void begin_copy(void* to, const void* from, std::size_t bytes);
void end_copy_group();
void wait_for_copy_groups(int left);
// Copies that are waited for at an address (kernel.h).
void begin_arrivals(const void* arrival);
void end_arrivals(const void* arrival);
void expect_bytes(const void* arrival, int bytes);
void begin_copy_of_many(void* to, const void* from, std::size_t bytes, const void* arrival);
void wait_for_bytes(const void* arrival, int parity);
// What a lane has of the weights of a quad's multiplication (quad_multiply.h): elements 2 t and 2 t + 1 of outputs g
// and g + 8, then 8 + 2 t of both.
struct LaneOfWeights {
  unsigned words[4];
};
struct QuadMultiplication {
  float* sum;  // [tiles][4]
  int tiles;
  std::uint64_t rows;  // a descriptor
  float (*widen)(std::uint16_t);
};
// A lane's part of it, given the weights of its warp. It happens at once or when somebody waits for it, by chance, as
// copies do, in the order in which it was asked for.
void begin_multiplication(const QuadMultiplication& what, const LaneOfWeights* of_warp);
void end_multiplication_group();
void wait_for_multiplication_groups(int left);
// Of memory of this block, as instructions write addresses.
unsigned address_in_block(const void* shared);
// Every lane of a warp brings `bytes`; returns those of all 32, one after the other.
const std::byte* exchange(const void* mine, std::size_t bytes);

template <typename T>
const T* exchanged(const T& mine) {
  return reinterpret_cast<const T*>(exchange(&mine, sizeof(T)));
}

}  // namespace espalier::cuda_on_host

inline void __syncthreads() {
  espalier::cuda_on_host::barrier_of_block();
}
inline void __syncwarp() {
  espalier::cuda_on_host::exchanged(0);
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return espalier::cuda_on_host::exchanged(value)[lane & 31];
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int lanes) {
  return espalier::cuda_on_host::exchanged(value)[(threadIdx.x & 31u) ^ static_cast<unsigned>(lanes)];
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  const int* const all = espalier::cuda_on_host::exchanged(predicate);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) bits |= all[lane] != 0 ? 1u << lane : 0u;
  return bits;
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  const unsigned* const all = espalier::cuda_on_host::exchanged(value);
  unsigned largest = 0;
  for (int lane = 0; lane < 32; ++lane) largest = std::max(largest, all[lane]);
  return largest;
}
inline unsigned __reduce_add_sync(unsigned, unsigned value) {
  const unsigned* const all = espalier::cuda_on_host::exchanged(value);
  return std::accumulate(all, all + 32, 0u);
}

inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline int __float_as_int(float x) {
  return static_cast<int>(__float_as_uint(x));
}
inline float __int_as_float(int bits) {
  return __uint_as_float(static_cast<unsigned>(bits));
}
inline unsigned long long __double_as_longlong(double x) {
  unsigned long long bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline double __longlong_as_double(unsigned long long bits) {
  double x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
T __ldcg(const T* p) {
  return *p;
}
inline int atomicAdd(int* p, int more) {
  const int before = *p;
  *p += more;
  return before;
}
inline int atomicMin(int* p, int other) {
  const int before = *p;
  *p = std::min(before, other);
  return before;
}
inline void __threadfence() {}
[[noreturn]] inline void __trap() {
  std::abort();
}

// --- the runtime -----------------------------------------------------------------------------------------------------
enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation, cudaErrorNoDevice, cudaErrorUnknown };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
using cudaStream_t = void*;
using cudaGraph_t = void*;
using cudaGraphExec_t = void*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount;
  std::size_t totalGlobalMem, sharedMemPerBlockOptin;
};
struct cudaFuncAttributes {
  int ptxVersion;
};
inline constexpr unsigned cudaStreamNonBlocking = 1;

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaSetDevice(int device);
template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel*) {
  attributes->ptxVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, std::size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes);
cudaError_t cudaDeviceSynchronize();
template <typename T>
cudaError_t cudaMemcpyFromSymbol(T* to, const T& symbol, std::size_t) {
  *to = symbol;
  return cudaSuccess;
}
// Launches are recorded between begin and end, and run by cudaGraphLaunch.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

namespace espalier::cuda_on_host {

// Runs it, or records it where a capture is under way.
void enqueue(std::function<void()> work);

}  // namespace espalier::cuda_on_host
