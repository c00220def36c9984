#include "device/cuda/emulated/emulated_cuda_device.h"

#include "device/cuda/cuda_device.h"

namespace espalier {

std::unique_ptr<Device> make_emulated_cuda_device(const EmulatedCudaOptions& options) {
  return cuda::make_device({.activations = options.activations,
                            .small_blocks = options.small_blocks,
                            .quads_from_rows = options.quads_from_rows,
                            .clusters = options.clusters});
}

}  // namespace espalier
