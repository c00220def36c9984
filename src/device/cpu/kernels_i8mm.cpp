// Compiled for Armv8.2-A with the dot product and the 8-bit matrix product.
#include "device/cpu/simd_neon.h"

#include "device/cpu/attention_on_arm.h"
#include "device/cpu/kernel_table.h"
#include "device/cpu/linear_kernels_i8mm.h"
#include "device/cpu/linear_kernels_lanes.h"

namespace espalier::cpu {
namespace {

constexpr Kernels with_smmla() {
  Kernels kernels = with_halved_linears<SmmlaUnit>(with_lanes(kKernels));
  kernels.quantise = quantise_paired;
  return kernels;
}
constexpr Kernels kSmmlaKernels = with_smmla();

}  // namespace

const Kernels& i8mm_kernels() {
  return kSmmlaKernels;
}

}  // namespace espalier::cpu
