// Compiled for Armv8.2-A with the dot product instructions.
#include "device/cpu/simd_neon.h"

#include "device/cpu/attention_on_arm.h"
#include "device/cpu/kernel_table.h"
#include "device/cpu/linear_kernels_halves.h"
#include "device/cpu/linear_kernels_lanes.h"

namespace espalier::cpu {
namespace {

constexpr Kernels kSdotKernels = with_halved_linears<SdotUnit>(with_lanes(kKernels));

}  // namespace

const Kernels& dotprod_kernels() {
  return kSdotKernels;
}

}  // namespace espalier::cpu
