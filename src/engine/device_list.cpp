#include "engine/device_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "device/ascend/ascend_device.h"
#include "device/cpu/isa.h"
#include "device/cuda/cuda_device.h"

namespace espalier {
namespace {

nlohmann::ordered_json describe_gpu(const cuda::DeviceInfo& gpu) {
  nlohmann::ordered_json object = {{"name", gpu.name},
                                   {"capability", gpu.capability},
                                   {"memory_bytes", gpu.memory},
                                   {"free_bytes", gpu.free_memory}};
  if (!gpu.problem.empty()) object["problem"] = gpu.problem;
  return object;
}

nlohmann::ordered_json describe_npu(const ascend::DeviceInfo& npu) {
  nlohmann::ordered_json object = {
      {"name", npu.name}, {"memory_bytes", npu.memory}, {"free_bytes", npu.free_memory}, {"row_independent", false}};
  if (!npu.problem.empty()) object["problem"] = npu.problem;
  return object;
}

void describe_npus(const ascend::LibraryOptions& cann, nlohmann::ordered_json& devices) {
  const ascend::Devices found = ascend::list_devices(cann);
  nlohmann::ordered_json npus = nlohmann::ordered_json::object();
  if (!found.runtime.empty()) npus["runtime"] = found.runtime;
  if (!found.problem.empty()) npus["problem"] = found.problem;
  devices["ascend"] = npus;
  for (const ascend::DeviceInfo& npu : found.npus) devices[fmt::format("ascend:{}", npu.index)] = describe_npu(npu);
}

}  // namespace

nlohmann::ordered_json describe_cpu() {
  auto supported = nlohmann::ordered_json::array();
  for (Isa isa : supported_isas()) supported.push_back(name(isa));
  return {{"isa", name(supported_isas().back())},
          {"supported", supported},
          {"cores", std::max(1u, std::thread::hardware_concurrency())}};
}

nlohmann::ordered_json describe_devices(const ascend::LibraryOptions& cann) {
  const cuda::Devices found = cuda::list_devices(cuda::Look::at_each);
  nlohmann::ordered_json gpus = nlohmann::ordered_json::object();
  if (!found.driver.empty()) gpus["driver_supports_cuda"] = found.driver;
  if (!found.runtime.empty()) gpus["runtime"] = found.runtime;
  if (!found.problem.empty()) gpus["problem"] = found.problem;
  nlohmann::ordered_json devices = {{"cpu", describe_cpu()}, {"reference", {{"isa", "portable"}}}, {"cuda", gpus}};
  for (const cuda::DeviceInfo& gpu : found.gpus) devices[fmt::format("cuda:{}", gpu.index)] = describe_gpu(gpu);
  describe_npus(cann, devices);
  return devices;
}

}  // namespace espalier
