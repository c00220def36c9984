// Compiled for the baseline of x86 builds, x86-64-v3: AVX2, FMA and F16C.
#include "device/cpu/simd_avx2.h"

#include "device/cpu/attention_on_x86.h"
#include "device/cpu/kernel_table.h"

namespace espalier::cpu {

const Kernels& avx2_kernels() {
  return kKernels;
}

}  // namespace espalier::cpu
