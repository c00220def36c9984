// A build without nvcc: there is no GPU that can be used.
#include <filesystem>

#include "base/error.h"
#include "device/cuda/cuda_device.h"

namespace espalier::cuda {

// Where NVIDIA's driver runs there is a GPU, and somebody who may want to know why it is not used.
Devices list_devices(Look) {
  std::error_code ignored;
  return {.problem = "this program was built without CUDA (no nvcc was found)",
          .present = std::filesystem::exists("/dev/nvidiactl", ignored)};
}

void look_at(DeviceInfo&) {}

std::unique_ptr<Device> make_device(const Options&) {
  device_error("CUDA: {}", list_devices().problem);
}

}  // namespace espalier::cuda
