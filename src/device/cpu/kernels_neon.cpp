// Compiled for the baseline of Arm builds, Armv8.2-A.
#include "device/cpu/simd_neon.h"

#include "device/cpu/kernel_table.h"

namespace espalier::cpu {

const Kernels& neon_kernels() {
  return kKernels;
}

}  // namespace espalier::cpu
