// Compiled for Armv8.2-A with the dot product instructions.
#include "device/cpu/simd_neon.h"

#include "device/cpu/kernel_table.h"

namespace espalier::cpu {

const Kernels& dotprod_kernels() {
  return kKernels;
}

}  // namespace espalier::cpu
