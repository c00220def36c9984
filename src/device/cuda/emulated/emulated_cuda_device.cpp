#include "device/cuda/emulated/emulated_cuda_device.h"

#include "device/cuda/cuda_device.h"

namespace espalier {

std::unique_ptr<Device> make_emulated_cuda_device() {
  return cuda::make_device();
}

}  // namespace espalier
