// Linears of f32 weights in the contract's own order: one accumulator for each output of each row, inputs ascending.
// A lane has one output and up to kRows rows; the rows' inputs come through shared memory, piece by piece.
#include "device/cuda/float_panels.h"
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

namespace espalier::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kPiece = 256;  // inputs at a time

struct F32Linear {
  std::int64_t outputs, inputs;
  const float* bias;
  ConstRows x;
  Rows y;
};

template <int rows>
__global__ void __launch_bounds__(kThreads) f32_kernel(const float* __restrict__ packed, F32Linear call) {
  wait_for_earlier_kernels();
  using Panels = FloatPanels;
  __shared__ float x[rows][kPiece];
  const Panels panels(call.outputs, call.inputs);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t panel = std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  const std::int64_t first_row = std::int64_t{blockIdx.y} * rows;
  float sum[rows];
#pragma unroll
  for (int r = 0; r < rows; ++r) sum[r] = 0;
  for (std::int64_t begin = 0; begin < call.inputs; begin += kPiece) {
    const int count = static_cast<int>(call.inputs - begin < kPiece ? call.inputs - begin : kPiece);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < rows * kPiece; i += kThreads) {
      const std::int64_t r = first_row + i / kPiece;
      x[i / kPiece][i % kPiece] =
          r < call.x.rows && i % kPiece < count ? call.x.data[r * call.x.stride + begin + i % kPiece] : 0.0f;
    }
    __syncthreads();
    if (panel >= panels.panels()) continue;
#pragma unroll 4
    for (int k = 0; k < count; k += Panels::kPack) {
      const float4 pack =
          __ldg(reinterpret_cast<const float4*>(packed + panels.pack_place(panel, (begin + k) / Panels::kPack, lane)));
      const float element[Panels::kPack] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
      for (int j = 0; j < Panels::kPack; ++j) {
        if (k + j >= count) break;
#pragma unroll
        for (int r = 0; r < rows; ++r) sum[r] = fmaf(element[j], x[r][k + j], sum[r]);
      }
    }
  }
  const std::int64_t n = panel * Panels::kPanel + lane;
  if (n >= call.outputs) return;
#pragma unroll
  for (int r = 0; r < rows; ++r)
    if (first_row + r < call.y.rows)
      call.y.data[(first_row + r) * call.y.stride + n] = call.bias == nullptr ? sum[r] : sum[r] + call.bias[n];
}

template <int rows>
void launch_rows(Queue queue, const LinearPart& part, const F32Linear& call) {
  const std::int64_t panels = FloatPanels(part.outputs, part.inputs).panels();
  const Launch how{{blocks_for(panels, kThreads / kWarp), blocks_for(part.y.rows, rows), 1}, kThreads};
  launch(queue, "linear", f32_kernel<rows>, how, reinterpret_cast<const float*>(part.packed), call);
}

}  // namespace

void linear_f32(Queue queue, const LinearPart& part, ConstRows x) {
  const F32Linear call{part.outputs, part.inputs, part.bias, x, part.y};
  if (part.y.rows == 1)
    launch_rows<1>(queue, part, call);
  else if (part.y.rows <= 4)
    launch_rows<4>(queue, part, call);
  else
    launch_rows<8>(queue, part, call);
}

}  // namespace espalier::cuda
