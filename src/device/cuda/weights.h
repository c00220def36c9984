// A weight matrix in device memory: its parts one after the other, each in the layout of its kind (packed_layout.h for
// block formats, float_fragments.h for bf16 and f16, float_panels.h for f32).
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "device/cuda/memory.h"
#include "device/device.h"

namespace espalier::cuda {

struct DevicePart {
  DType type = DType::f32;
  std::int64_t first_output = 0;
  std::int64_t outputs = 0;
  Memory memory;
};

class CudaWeight final : public Weight {
 public:
  CudaWeight(std::span<const WeightPart> parts, Staging& staging, cudaStream_t stream);

  const std::vector<DevicePart>& parts() const { return parts_; }

 private:
  std::vector<DevicePart> parts_;
};

}  // namespace espalier::cuda
