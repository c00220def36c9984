// What kernels share: how they are launched, the memory of a block, warps' collective instructions. For .cu files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/cuda/api.h"
#include "device/cuda/early_launch.h"
#include "device/cuda/errors.h"
#include "device/cuda/kernels.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarp = 32;

// Code for 9.0 alone (90a) is for cards with large blocks (early_launch.h): kernels for small ones are empty there,
// which saves a third of the compiler's time.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
inline constexpr bool kHasSmallBlocks = false;
#else
inline constexpr bool kHasSmallBlocks = true;
#endif

// Older cards have no clusters: kernels for them are empty there.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kHasClusters = false;
#else
inline constexpr bool kHasClusters = true;
#endif

struct Launch {
  dim3 grid;
  unsigned threads = 128;  // of a block; a multiple of 32
  std::size_t shared_bytes = 0;
  unsigned cluster = 1;  // blocks, all of the grid, that run at once and can meet (wait_for_cluster)
};

inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

#ifdef ESPALIER_CUDA_EMULATED

template <typename... Parameters, typename... Arguments>
void launch(Queue queue, const char*, void (*kernel)(Parameters...), const Launch& how, Arguments... arguments) {
  if (queue.held != nullptr) launch_held(queue);
  const std::size_t most = queue.small_blocks ? kSmallSharedBytes : kLargeSharedBytes;
  cuda_on_host::enqueue([=] {
    cuda_on_host::run_grid({how.grid, {how.threads, 1, 1}, {how.shared_bytes, most}, how.cluster},
                           [&] { kernel(arguments...); });
  });
}

inline std::uint32_t largest_of_warp(std::uint32_t value) {
  for (int lanes = kWarp / 2; lanes >= 1; lanes /= 2) value = std::max(value, __shfl_xor_sync(kAllLanes, value, lanes));
  return value;
}
inline int sum_of_warp(int value) {
  for (int lanes = kWarp / 2; lanes >= 1; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  return value;
}

inline void wait_for_earlier_kernels() {}
inline void wait_and_hold_the_next_back() {}
inline void let_the_next_come() {}
inline void settle(float&, float&) {}

inline std::int32_t count_in_order(std::int32_t* counter) {
  return atomicAdd(counter, 1);
}

template <typename T>
T* shared_memory() {
  return reinterpret_cast<T*>(cuda_on_host::dynamic_shared_memory());
}
inline void arrive_at(int barrier, int threads) {
  cuda_on_host::named_barrier(barrier, threads, false);
}
inline void wait_at(int barrier, int threads) {
  cuda_on_host::named_barrier(barrier, threads, true);
}

inline void copy_ahead(void* shared, const void* global) {
  cuda_on_host::begin_copy(shared, global, 16);
}
inline void end_of_copies() {
  cuda_on_host::end_copy_group();
}
template <int groups>
void wait_for_copies() {
  cuda_on_host::wait_for_copy_groups(groups);
}

inline void arrive_at_cluster() {
  __syncthreads();
  cuda_on_host::arrive_at_cluster();
}
inline void let_copies_see_shared_memory() {}
inline void let_copies_see_memory() {}
inline void wait_for_cluster() {
  cuda_on_host::wait_for_cluster();
}

inline void begin_arrivals(std::uint64_t* arrival) {
  cuda_on_host::begin_arrivals(arrival);
}
inline void end_arrivals(std::uint64_t* arrival) {
  cuda_on_host::end_arrivals(arrival);
}
inline void arrivals_are_ready() {}
inline void expect_bytes(std::uint64_t* arrival, int bytes) {
  cuda_on_host::expect_bytes(arrival, bytes);
}
inline void copy_many_ahead(void* shared, const void* global, int bytes, std::uint64_t* arrival) {
  cuda_on_host::begin_copy_of_many(shared, global, static_cast<std::size_t>(bytes), arrival);
}
inline void wait_for_bytes(std::uint64_t* arrival, int parity) {
  cuda_on_host::wait_for_bytes(arrival, parity);
}

// c = start + a * b with a [16, words * 16], b [words * 16, 8] of signed bytes, as fragments of the 32 lanes.
template <int words>
void multiply_bytes_emulated(int (&c)[4], const std::uint32_t* a, const std::uint32_t* b, int start) {
  struct Fragments {
    std::int8_t a[2 * words][4], b[words][4];
  } mine;
  std::memcpy(mine.a, a, sizeof mine.a);
  std::memcpy(mine.b, b, sizeof mine.b);
  const Fragments* all = cuda_on_host::exchanged(mine);
  const int group = static_cast<int>(threadIdx.x & 31u) / 4, pair = static_cast<int>(threadIdx.x & 31u) % 4;
  for (int i = 0; i < 4; ++i) {
    const int upper = i / 2, column = 2 * pair + i % 2;
    c[i] = start;
    for (int word = 0; word < words; ++word)
      for (int t = 0; t < 4; ++t)
        for (int j = 0; j < 4; ++j)
          c[i] += int{all[group * 4 + t].a[2 * word + upper][j]} * int{all[column * 4 + t].b[word][j]};
  }
}
inline void multiply_bytes_32(int (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, int start) {
  const std::uint32_t b[2] = {b0, b1};
  multiply_bytes_emulated<2>(c, a, b, start);
}
inline void multiply_bytes_16(int (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b0, int start) {
  const std::uint32_t a[2] = {a0, a1};
  multiply_bytes_emulated<1>(c, a, &b0, start);
}

// Sixteen fused multiply-adds, ascending: no card's order. Each lane widens what it brings, and none what others bring.
template <typename Element>
void multiply_floats(float (&c)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  struct Fragments {
    float a[4][2], b[2][2];
  } mine;
  const auto widen = [](std::uint32_t two, float(&to)[2]) {
    to[0] = Element::widen(static_cast<std::uint16_t>(two));
    to[1] = Element::widen(static_cast<std::uint16_t>(two >> 16));
  };
  widen(a.x, mine.a[0]), widen(a.y, mine.a[1]), widen(a.z, mine.a[2]), widen(a.w, mine.a[3]);
  widen(b0, mine.b[0]), widen(b1, mine.b[1]);
  const Fragments* all = cuda_on_host::exchanged(mine);
  const int group = static_cast<int>(threadIdx.x & 31u) / 4, pair = static_cast<int>(threadIdx.x & 31u) % 4;
  for (int i = 0; i < 4; ++i) {
    const int upper = i / 2, column = 2 * pair + i % 2;
    for (int half = 0; half < 2; ++half)
      for (int t = 0; t < 4; ++t)
        for (int j = 0; j < 2; ++j)
          c[i] = std::fmaf(all[group * 4 + t].a[2 * half + upper][j], all[column * 4 + t].b[half][j], c[i]);
  }
}
inline constexpr bool kEmulatedMatrices = true;

#else

// Never less than was allowed before: launches that are recorded may have asked for that.
template <typename Kernel>
void allow_shared_bytes(const char* name, Kernel* kernel, std::size_t bytes) {
  // Of the 48 KB that a block may have unasked some are the kernel's own.
  constexpr std::size_t kWithoutAsking = 32 << 10;
  if (bytes <= kWithoutAsking) return;
  cudaFuncAttributes now{};
  check_cuda(cudaFuncGetAttributes(&now, kernel), name);
  if (bytes <= static_cast<std::size_t>(now.maxDynamicSharedSizeBytes)) return;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)), name);
}

template <typename... Parameters, typename... Arguments>
void launch(Queue queue, const char* name, void (*kernel)(Parameters...), const Launch& how, Arguments... arguments) {
  if (queue.held != nullptr) launch_held(queue);
  // All kernels alike: a multiprocessor has to be empty before it shares out its memory in another way.
  check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
      name);
  allow_shared_bytes(name, kernel, how.shared_bytes);
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (queue.programmatic) {
    cudaLaunchAttribute& early = attributes[count++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (how.cluster > 1) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), name);
    cudaLaunchAttribute& cluster = attributes[count++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = how.cluster, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = how.grid;
  config.blockDim = dim3(how.threads);
  config.dynamicSmemBytes = how.shared_bytes;
  config.stream = queue.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), name);
}

// Of the values of all lanes, for all lanes.
__device__ inline std::uint32_t largest_of_warp(std::uint32_t value) {
  return __reduce_max_sync(kAllLanes, value);
}
__device__ inline int sum_of_warp(int value) {
  return __reduce_add_sync(kAllLanes, value);
}

// Computes these now: the compiler moves no work from before this to behind a barrier that follows.
__device__ inline void settle(float& a, float& b) {
  asm volatile("" : "+f"(a), "+f"(b));
}

// Every kernel calls one of these before it reads or writes what others may have written or read: the kernels before it
// in the queue have then ended. The next one may come and wait in its turn from here on; or only when this one ends:
// where the blocks of this one do not fill the GPU evenly, those of the next would crowd where there is room; or from
// the beginning on: for short kernels, whose next one has much to fetch.
//
// What a kernel may read before it waits: tables of a step and weights, since who may write those holds the next kernel
// back, and every block of threads waits before it ends. Keys and values only where the two kernels ahead are known: a
// linear, which lets nobody come before all ahead of it have ended, and the write of some slots, and of other slots.
__device__ inline void wait_and_hold_the_next_back() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void let_the_next_come() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ inline void wait_for_earlier_kernels() {
  wait_and_hold_the_next_back();
  let_the_next_come();
}

// Adds 1 and returns what was there. What this thread, and threads it has met at a barrier, wrote before is seen by
// those that count after it.
__device__ inline std::int32_t count_in_order(std::int32_t* counter) {
  std::int32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

template <typename T>
__device__ T* shared_memory() {
  extern __shared__ __align__(16) unsigned char bytes_of_block[];
  return reinterpret_cast<T*>(bytes_of_block);
}
__device__ inline void arrive_at(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void wait_at(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// The blocks of a cluster meet: all threads of a block arrive together, and see when they have waited what those of all
// blocks had done when they arrived. One thread, which has met the others of its block, makes that known for all of it.
__device__ inline void arrive_at_cluster() {
  __syncthreads();
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x + 1 == blockDim.x)
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  else
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
__device__ inline void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
// Copies of many bytes that this thread asks for from here on see what it sees; to shared memory, they come behind what
// was read and written there.
__device__ inline void let_copies_see_shared_memory() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
__device__ inline void let_copies_see_memory() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

// 16 bytes to shared memory, without waiting. Copies up to an end are a group; wait_for_copies<n> waits until at most
// the last n groups are under way.
__device__ inline void copy_ahead(void* shared, const void* global) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
__device__ inline void end_of_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int groups>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

// Larger copies, each by one thread, that are waited for at an `arrival` in shared memory (from 9.0 on). It is made
// once by begin_arrivals, which arrivals_are_ready makes known to the copies. Then, over and over: expect_bytes says
// how many will come, copies bring them, and wait_for_bytes waits for all; parity: 0 the first time, 1 the second, and
// so on.
__device__ inline std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}
#if __CUDA_ARCH__ >= 900
__device__ inline void begin_arrivals(std::uint64_t* arrival) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrival)) : "memory");
}
__device__ inline void end_arrivals(std::uint64_t* arrival) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(arrival)) : "memory");
}
__device__ inline void arrivals_are_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void expect_bytes(std::uint64_t* arrival, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(arrival)), "r"(bytes)
               : "memory");
}
__device__ inline void copy_many_ahead(void* shared, const void* global, int bytes, std::uint64_t* arrival) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(arrival))
               : "memory");
}
__device__ inline void wait_for_bytes(std::uint64_t* arrival, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred there;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n"
      "@!there bra again_%=;\n"
      "}\n" ::"r"(shared_address(arrival)),
      "r"(parity)
      : "memory");
}
#else
__device__ inline void begin_arrivals(std::uint64_t*) {}
__device__ inline void end_arrivals(std::uint64_t*) {}
__device__ inline void arrivals_are_ready() {}
__device__ inline void expect_bytes(std::uint64_t*, int) {}
__device__ inline void copy_many_ahead(void*, const void*, int, std::uint64_t*) {}
__device__ inline void wait_for_bytes(std::uint64_t*, int) {}
#endif

// c = start + a * b with a [16, 32], b [32, 8] of signed bytes, as fragments of the 32 lanes: lane 4 g + t has of a the
// bytes 4 t to 4 t + 3 of rows g and g + 8, then 16 + 4 t of both; of b the same bytes of column g; of c columns 2 t
// and 2 t + 1 of row g, then of row g + 8.
__device__ inline void multiply_bytes_32(int (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                                         int start) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
}
// The same with 16 bytes.
__device__ inline void multiply_bytes_16(int (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b0, int start) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a0), "r"(a1), "r"(b0), "r"(start));
}

// c = c + a * b with a [16, 16], b [16, 8] of bf16 or f16 (Element), added as the card adds: lane 4 g + t has of a the
// elements 2 t and 2 t + 1 of rows g and g + 8, then 8 + 2 t of both; of b the same elements of column g; of c columns
// 2 t and 2 t + 1 of row g, then of row g + 8.
template <typename Element>
__device__ inline void multiply_floats(float (&c)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<Element, Bf16Element>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
inline constexpr bool kEmulatedMatrices = false;

#endif

// Calls each(i) for i in [0, count), shared out to the threads of a block.
template <typename Each>
__device__ void for_each_of(int count, Each each) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) each(i);
}

}  // namespace espalier::cuda
