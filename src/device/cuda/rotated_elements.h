// What a thread does where q and k are rotated, and k and v written, in one kernel (kv.cu) or among other ops
// (cluster_ops.cu): a pair of elements of a head of q or k, or an element of v.
#pragma once

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

namespace espalier::cuda {

// Of a row.
__host__ __device__ inline std::int64_t rotated_items(const RotateAndWrite& call) {
  return (call.heads + 3 * call.kv_heads) * call.half;
}

template <typename Element>
class RotatedElements {
 public:
  // What does not wait for q and k. i: of the items of row r, or more
  __device__ RotatedElements(const RotateAndWrite& call, std::int64_t r, int i) : r_(r), i_(i), slot_(call.slot[r]) {
    const std::int64_t place = call.position[r] * call.half + i % static_cast<int>(call.half);
    cosine_ = call.cosine[place], sine_ = call.sine[place];
  }
  __device__ void compute(const RotateAndWrite& call) const {
    using Stored = typename Element::Stored;
    const int half = static_cast<int>(call.half), heads = static_cast<int>(call.heads);
    const int kv_heads = static_cast<int>(call.kv_heads), width = kv_heads * 2 * half;
    const int pairs = (heads + kv_heads) * half, head = i_ / half, j = i_ % half, k_head = head - heads;
    if (i_ < pairs) {
      float* const p =
          k_head >= 0 ? call.k + r_ * width + k_head * 2 * half + j : call.q + (r_ * call.heads + head) * 2 * half + j;
      const float a = p[0], b = p[half];
      const float first = fmaf(a, cosine_, -(b * sine_)), second = fmaf(b, cosine_, a * sine_);
      p[0] = first;
      p[half] = second;
      if (k_head < 0) return;
      Stored* const stored = reinterpret_cast<Stored*>(call.kv_k) + slot_ * width + k_head * 2 * half + j;
      stored[0] = Element::round(first);
      stored[half] = Element::round(second);
    } else if (i_ - pairs < width) {
      reinterpret_cast<Stored*>(call.kv_v)[slot_ * width + i_ - pairs] =
          Element::round(call.v[r_ * width + i_ - pairs]);
    }
  }

 private:
  std::int64_t r_;
  int i_;
  std::int64_t slot_;
  float cosine_, sine_;
};

}  // namespace espalier::cuda
