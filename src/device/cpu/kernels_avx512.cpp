// Compiled with AVX-512 F, BW, DQ, VL and VNNI.
#include "device/cpu/simd_avx512.h"

#include "device/cpu/attention_on_x86.h"
#include "device/cpu/kernel_table.h"

namespace espalier::cpu {

const Kernels& avx512_kernels() {
  return kKernels;
}

}  // namespace espalier::cpu
