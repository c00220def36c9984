// The matrix instruction of a quad, four warps together (wgmma, of 9.0 alone): 16 inputs of four groups of weights, a
// group a warp, from registers, times those of up to 16 tiles of rows from shared memory. It goes on while the warps do
// something else. A float gets the products of an instruction as it gets them from multiply_floats (kernel.h), so a
// chain of these has the bits of a chain of those. For .cu files.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/cuda/float_fragments.h"
#include "device/cuda/kernel.h"

namespace espalier::cuda {

inline constexpr int kQuadWarps = 4;
inline constexpr int kQuadThreads = kQuadWarps * kWarp;

// Whether code for quads is compiled here.
#if defined(ESPALIER_CUDA_EMULATED) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasQuads = true;
#else
inline constexpr bool kHasQuads = false;
#endif

// Where 16 inputs of tiles of rows lie in shared memory: eight inputs of a tile are kCoreBytes in a row, 16 bytes for
// each of its rows; the other eight follow, and the next tile is tile_bytes further. The fields of a descriptor of the
// instruction, in 16 bytes each: from bit 0 the address, from 16 the way to the other inputs, from 32 that to the next
// tile; nothing is swizzled.
inline constexpr int kCoreBytes = 128;
__device__ inline std::uint64_t rows_descriptor(std::uint32_t address, int tile_bytes) {
  return (address & 0x3ffffu) >> 4 | std::uint64_t{kCoreBytes >> 4} << 16 |
         static_cast<std::uint64_t>(tile_bytes >> 4) << 32;
}
// The same, `bytes` further on.
__device__ inline std::uint64_t further(std::uint64_t rows, int bytes) {
  return rows + static_cast<std::uint64_t>(bytes >> 4);
}

// The sums of a lane: of output g and, from the third on, of g + 8, for rows 2 t and 2 t + 1 of every tile.
template <int tiles>
using QuadSums = float[tiles][4];

// In this order: begin_multiplying() behind whatever has written the sums or the weights' registers, multiplications,
// and end_of_multiplications(), which makes a group of them. wait_for_multiplications<n> waits until at most the last n
// groups are under way; until then nobody touches their sums and their rows.
#ifdef ESPALIER_CUDA_EMULATED

inline std::uint32_t address_in_block(const void* shared) {
  return cuda_on_host::address_in_block(shared);
}
inline void begin_multiplying() {}
inline void end_of_multiplications() {
  cuda_on_host::end_multiplication_group();
}
template <int groups>
void wait_for_multiplications() {
  cuda_on_host::wait_for_multiplication_groups(groups);
}
template <int tiles>
void wait_for_sums(QuadSums<tiles>&) {
  wait_for_multiplications<0>();
}

// As multiply_floats adds there.
template <typename Element, int tiles>
void multiply_quad(QuadSums<tiles>& sum, const uint4& weights, std::uint64_t rows) {
  const cuda_on_host::LaneOfWeights* all =
      cuda_on_host::exchanged(cuda_on_host::LaneOfWeights{{weights.x, weights.y, weights.z, weights.w}});
  cuda_on_host::begin_multiplication({&sum[0][0], tiles, rows, &Element::widen}, all);
}

template <int registers>
void give_registers() {}
template <int registers>
void take_registers() {}

#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline std::uint32_t address_in_block(const void* shared) {
  return shared_address(shared);
}
__device__ inline void begin_multiplying() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void end_of_multiplications() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int groups>
__device__ void wait_for_multiplications() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}
// For all of them; from here on the compiler may read the sums.
template <int tiles>
__device__ void wait_for_sums(QuadSums<tiles>& sum) {
  wait_for_multiplications<0>();
#pragma unroll
  for (int i = 0; i < 4 * tiles; ++i) asm volatile("" : "+f"(sum[i / 4][i % 4])::"memory");
}

#define ESPALIER_TILE(i) "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3])
#define ESPALIER_TILES_1 ESPALIER_TILE(0)
#define ESPALIER_TILES_2 ESPALIER_TILES_1, ESPALIER_TILE(1)
#define ESPALIER_TILES_4 ESPALIER_TILES_2, ESPALIER_TILE(2), ESPALIER_TILE(3)
#define ESPALIER_TILES_8 ESPALIER_TILES_4, ESPALIER_TILE(4), ESPALIER_TILE(5), ESPALIER_TILE(6), ESPALIER_TILE(7)
#define ESPALIER_TILES_16                                                                                        \
  ESPALIER_TILES_8, ESPALIER_TILE(8), ESPALIER_TILE(9), ESPALIER_TILE(10), ESPALIER_TILE(11), ESPALIER_TILE(12), \
      ESPALIER_TILE(13), ESPALIER_TILE(14), ESPALIER_TILE(15)
#define ESPALIER_SUMS_1 "%0, %1, %2, %3"
#define ESPALIER_SUMS_2 ESPALIER_SUMS_1 ", %4, %5, %6, %7"
#define ESPALIER_SUMS_4 ESPALIER_SUMS_2 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define ESPALIER_SUMS_8 \
  ESPALIER_SUMS_4 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ESPALIER_SUMS_16                                                                  \
  ESPALIER_SUMS_8                                                                         \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48" \
  ", %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
// others: the operands behind the sums, weights and rows
#define ESPALIER_MULTIPLY_QUAD(count, shape, type, others)                                                \
  asm volatile(                                                                                           \
      "{\n"                                                                                               \
      ".reg .pred add;\n"                                                                                 \
      "setp.eq.u32 add, 0, 0;\n"                                                                          \
      "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" ESPALIER_SUMS_##count "}, " others \
                                                                                             ", add, "    \
                                                                                             "1, 1, 0;\n" \
                                                                                             "}\n"        \
      : ESPALIER_TILES_##count                                                                            \
      : "r"(weights.x), "r"(weights.y), "r"(weights.z), "r"(weights.w), "l"(rows))

template <typename Element, int tiles>
__device__ void multiply_quad(QuadSums<tiles>& sum, const uint4& weights, std::uint64_t rows) {
  constexpr bool kBf16 = std::is_same_v<Element, Bf16Element>;
  if constexpr (kBf16 && tiles == 1)
    ESPALIER_MULTIPLY_QUAD(1, "m64n8k16", "bf16", "{%4, %5, %6, %7}, %8");
  else if constexpr (kBf16 && tiles == 2)
    ESPALIER_MULTIPLY_QUAD(2, "m64n16k16", "bf16", "{%8, %9, %10, %11}, %12");
  else if constexpr (kBf16 && tiles == 4)
    ESPALIER_MULTIPLY_QUAD(4, "m64n32k16", "bf16", "{%16, %17, %18, %19}, %20");
  else if constexpr (kBf16 && tiles == 8)
    ESPALIER_MULTIPLY_QUAD(8, "m64n64k16", "bf16", "{%32, %33, %34, %35}, %36");
  else if constexpr (kBf16 && tiles == 16)
    ESPALIER_MULTIPLY_QUAD(16, "m64n128k16", "bf16", "{%64, %65, %66, %67}, %68");
  else if constexpr (tiles == 1)
    ESPALIER_MULTIPLY_QUAD(1, "m64n8k16", "f16", "{%4, %5, %6, %7}, %8");
  else if constexpr (tiles == 2)
    ESPALIER_MULTIPLY_QUAD(2, "m64n16k16", "f16", "{%8, %9, %10, %11}, %12");
  else if constexpr (tiles == 4)
    ESPALIER_MULTIPLY_QUAD(4, "m64n32k16", "f16", "{%16, %17, %18, %19}, %20");
  else if constexpr (tiles == 8)
    ESPALIER_MULTIPLY_QUAD(8, "m64n64k16", "f16", "{%32, %33, %34, %35}, %36");
  else
    ESPALIER_MULTIPLY_QUAD(16, "m64n128k16", "f16", "{%64, %65, %66, %67}, %68");
}

#undef ESPALIER_MULTIPLY_QUAD
#undef ESPALIER_SUMS_16
#undef ESPALIER_SUMS_8
#undef ESPALIER_SUMS_4
#undef ESPALIER_SUMS_2
#undef ESPALIER_SUMS_1
#undef ESPALIER_TILES_16
#undef ESPALIER_TILES_8
#undef ESPALIER_TILES_4
#undef ESPALIER_TILES_2
#undef ESPALIER_TILES_1
#undef ESPALIER_TILE

// All warps of a quad: from here on each of its threads has at most so many registers, or may have so many.
template <int registers>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

#else

// Named, and never called: kernels of quads are empty there.
__device__ std::uint32_t address_in_block(const void* shared);
__device__ void begin_multiplying();
__device__ void end_of_multiplications();
template <int groups>
__device__ void wait_for_multiplications();
template <int tiles>
__device__ void wait_for_sums(QuadSums<tiles>& sum);
template <typename Element, int tiles>
__device__ void multiply_quad(QuadSums<tiles>& sum, const uint4& weights, std::uint64_t rows);
template <int registers>
__device__ void give_registers();
template <int registers>
__device__ void take_registers();

#endif

}  // namespace espalier::cuda
