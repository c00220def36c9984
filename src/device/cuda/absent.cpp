// A build without nvcc: there is no GPU.
#include "base/error.h"
#include "device/cuda/cuda_device.h"

namespace espalier::cuda {

Devices list_devices(Look) {
  return {.problem = "this program was built without CUDA (no nvcc was found)"};
}

void look_at(DeviceInfo&) {}

std::unique_ptr<Device> make_device(const Options&) {
  device_error("CUDA: {}", list_devices().problem);
}

}  // namespace espalier::cuda
