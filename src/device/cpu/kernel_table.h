// The table of kernels of one instruction set, for the file that includes it after a simd_*.h.
#pragma once

#include "device/cpu/attention_kernels.h"
#include "device/cpu/linear_kernels.h"
#include "device/cpu/row_kernels.h"

namespace espalier::cpu {
namespace {

constexpr Kernels kKernels = {
    .tile_rows = kTileRows,
    .quantise = quantise,
    .interleave = interleave,
    .linear_f32 = float_linear<WeightF32>,
    .linear_f16 = float_linear<WeightF16>,
    .linear_bf16 = float_linear<WeightBf16>,
    .linear_q4_0 = block_linear<FormatQ4_0>,
    .linear_q4_1 = block_linear<FormatQ4_1>,
    .linear_q5_0 = block_linear<FormatQ5_0>,
    .linear_q5_1 = block_linear<FormatQ5_1>,
    .linear_q8_0 = block_linear<FormatQ8_0>,
    .linear_q4_k = block_linear<FormatQ4_K>,
    .linear_q5_k = block_linear<FormatQ5_K>,
    .linear_q6_k = block_linear<FormatQ6_K>,
    .attention_tile = attention_tile,
    .attention_combine = attention_combine,
    .rms_norm = rms_norm,
    .rope = rope,
    .to_f16 = to_half<store_f16>,
    .to_bf16 = to_half<store_bf16>,
    .swiglu = swiglu,
    .silu = silu,
    .add = add_rows,
    .argmax = argmax,
    .top_k = top_k,
    .exp_sum = exp_sum,
};

}  // namespace
}  // namespace espalier::cpu
