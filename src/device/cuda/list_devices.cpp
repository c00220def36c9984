#include <fmt/format.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/errors.h"

namespace espalier::cuda {
namespace {

constexpr int kOldestGeneration = 8;  // the matrix instructions of the kernels

// 13020 -> "13.2"
std::string version_text(int version) {
  return version == 0 ? "" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

DeviceInfo describe(int index) {
  cudaDeviceProp properties{};
  const cudaError_t result = cudaGetDeviceProperties(&properties, index);
  if (result != cudaSuccess) return {.index = index, .name = "GPU", .problem = cudaGetErrorString(result)};
  DeviceInfo info{.index = index,
                  .name = properties.name,
                  .capability = fmt::format("{}.{}", properties.major, properties.minor),
                  .generation = properties.major,
                  .processors = properties.multiProcessorCount,
                  .shared_bytes = properties.sharedMemPerBlockOptin,
                  .memory = properties.totalGlobalMem};
  if (properties.major < kOldestGeneration)
    info.problem = fmt::format("compute capability {}, expected {}.0 or later", info.capability, kOldestGeneration);
  return info;
}

}  // namespace

void look_at(DeviceInfo& gpu) {
  std::size_t total = 0;
  if (const cudaError_t set = cudaSetDevice(gpu.index); set != cudaSuccess)
    gpu.problem = cudaGetErrorString(set);
  else if (const cudaError_t asked = cudaMemGetInfo(&gpu.free_memory, &total); asked != cudaSuccess)
    gpu.problem = cudaGetErrorString(asked);
  cudaGetLastError();
}

Devices list_devices(Look look) {
  Devices devices;
  int driver = 0, runtime = 0, count = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  devices.driver = version_text(driver);
  devices.runtime = version_text(runtime);
  const cudaError_t counted = cudaGetDeviceCount(&count);
  cudaGetLastError();  // the next call is not to find it again
  if (driver == 0) {
    devices.problem = "no NVIDIA driver on this machine";
    return devices;
  }
  devices.present = counted == cudaSuccess ? count > 0 : counted != cudaErrorNoDevice;
  if (counted != cudaSuccess) {
    devices.problem = fmt::format("{} (driver for CUDA {}, built with {})", cudaGetErrorString(counted), devices.driver,
                                  devices.runtime);
    return devices;
  }
  bool usable = false;
  for (int index = 0; index < count; ++index) {
    DeviceInfo& gpu = devices.gpus.emplace_back(describe(index));
    if (look == Look::at_each && gpu.problem.empty()) look_at(gpu);
    usable = usable || gpu.problem.empty();
  }
  if (count == 0) devices.problem = "no NVIDIA GPU on this machine";
  if (count > 0 && !usable)
    devices.problem = fmt::format("GPU 0, {}: {}", devices.gpus[0].name, devices.gpus[0].problem);
  return devices;
}

}  // namespace espalier::cuda
