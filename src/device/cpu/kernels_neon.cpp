// Compiled for the baseline of Arm builds, Armv8.2-A.
#include "device/cpu/simd_neon.h"

#include "device/cpu/attention_on_arm.h"
#include "device/cpu/kernel_table.h"
#include "device/cpu/linear_kernels_lanes.h"

namespace espalier::cpu {
namespace {

constexpr Kernels kNeonKernels = with_lanes(kKernels);

}  // namespace

const Kernels& neon_kernels() {
  return kNeonKernels;
}

}  // namespace espalier::cpu
