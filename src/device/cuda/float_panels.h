// How f32 weights lie in device memory: panels of 32 outputs, one a lane; in a panel, for every 16 bytes of inputs,
// those of the 32 outputs one after the other. So a warp reads 512 bytes in a row, and a lane finds its own inputs
// ascending. Filled up with zeros, which nobody multiplies.
#pragma once

#include <cstdint>

#include "device/cuda/api.h"

namespace espalier::cuda {

class FloatPanels {
 public:
  static constexpr int kPanel = 32;
  static constexpr int kPack = 16 / sizeof(float);  // inputs in 16 bytes

  __host__ __device__ FloatPanels(std::int64_t outputs, std::int64_t inputs)
      : panels_((outputs + kPanel - 1) / kPanel), packs_((inputs + kPack - 1) / kPack) {}

  __host__ __device__ std::int64_t panels() const { return panels_; }
  __host__ __device__ std::int64_t elements() const { return panels_ * packs_ * kPanel * kPack; }
  // Of the first element of pack p of a lane's output.
  __host__ __device__ std::int64_t pack_place(std::int64_t panel, std::int64_t p, int lane) const {
    return ((panel * packs_ + p) * kPanel + lane) * kPack;
  }
  __host__ __device__ std::int64_t place(std::int64_t n, std::int64_t k) const {
    return pack_place(n / kPanel, k / kPack, static_cast<int>(n % kPanel)) + k % kPack;
  }
  __host__ __device__ std::int64_t output_of(std::int64_t place) const {
    return place / (packs_ * kPanel * kPack) * kPanel + place / kPack % kPanel;
  }
  __host__ __device__ std::int64_t input_of(std::int64_t place) const {
    return place / (kPack * kPanel) % packs_ * kPack + place % kPack;
  }

 private:
  std::int64_t panels_, packs_;
};

}  // namespace espalier::cuda
