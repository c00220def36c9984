// Ops that make the rows of a linear, and the quantising of what they make, as a kernel does them alone (quantise.cu)
// or with others (cluster_ops.cu). What an op stores is stored all the same.
#pragma once

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/cuda/quantise_block.h"
#include "device/cuda/rms_row.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {

inline QuantisedRows quantised_rows(std::byte* quantised, std::int64_t rows, std::int64_t inputs) {
  return {reinterpret_cast<std::uint8_t*>(quantised), inputs / kBlock, rows == 1};
}

struct SwigluQuantised {
  const float* x;
  Rows y;
  QuantisedRows quantised;
};
inline SwigluQuantised swiglu_call(const SwigluOp& op) {
  return {op.x, op.y, quantised_rows(op.quantised, op.y.rows, op.y.columns)};
}

// A block of a row, by a warp.
__device__ inline void swiglu_block(const SwigluQuantised& call, std::int64_t r, std::int64_t block) {
  const std::int64_t column = block * kBlock + threadIdx.x % kWarp;
  const float* const row = call.x + r * 2 * call.y.columns;
  const float gate = row[column], up = row[column + call.y.columns];
  const float value = silu_f32(gate) * up;
  call.y.data[r * call.y.stride + column] = value;
  quantise_block(value, r, block, call.quantised);
}

struct NormQuantised {
  const float *x, *w;
  float eps;
  Rows y;
  QuantisedRows quantised;
};
inline NormQuantised norm_call(const NormOp& op) {
  return {op.x, op.w, op.eps, op.y, quantised_rows(op.quantised, op.y.rows, op.y.columns)};
}

// Share `share` of `shares` of row r, by a block of threads, which has the row's factor for itself.
class NormShare {
 public:
  __device__ NormShare(const NormQuantised& call, std::int64_t r, std::int64_t share, std::int64_t shares)
      : call_(call),
        r_(r),
        lane_(static_cast<int>(threadIdx.x % kWarp)),
        first_(share + shares * (threadIdx.x / kWarp)),
        step_(shares * (blockDim.x / kWarp)),
        // On its way while others still work.
        first_weight_(first_ < call.quantised.blocks ? call.w[first_ * kBlock + lane_] : 0.0f) {}

  __device__ void compute() const {
    const RmsRow row = rms_row(call_.x + r_ * call_.y.columns, call_.y.columns, call_.eps);
    for (std::int64_t block = first_; block < call_.quantised.blocks; block += step_) {
      const std::int64_t c = block * kBlock + lane_;
      const float value = (row[c] * row.factor) * (block == first_ ? first_weight_ : call_.w[c]);
      call_.y.data[r_ * call_.y.stride + c] = value;
      quantise_block(value, r_, block, call_.quantised);
    }
  }

 private:
  const NormQuantised& call_;
  std::int64_t r_;
  int lane_;
  std::int64_t first_, step_;
  float first_weight_;
};

}  // namespace espalier::cuda
