#include "device/cuda/emulated/emulated_cuda_device.h"

#include "device/cuda/cuda_device.h"

namespace espalier {

std::unique_ptr<Device> make_emulated_cuda_device(bool small_blocks) {
  return cuda::make_device({.small_blocks = small_blocks});
}

}  // namespace espalier
