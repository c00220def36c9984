#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "device/ascend/ascend_device.h"
#include "device/ascend/card.h"

namespace espalier::ascend {
namespace {

// "1.16"
std::string version_of(const Api& api) {
  std::int32_t major = 0, minor = 0, patch = 0;
  if (!api.aclrtGetVersion || api.aclrtGetVersion(&major, &minor, &patch) != 0) return "";
  return fmt::format("{}.{}", major, minor);
}

void read_memory(const Api& api, DeviceInfo& info) {
  for (const AclMemoryKind kind : {AclMemoryKind::hbm, AclMemoryKind::ddr})
    if (info.memory == 0 && api.aclrtGetMemInfo(kind, &info.free_memory, &info.memory) != 0)
      info.memory = info.free_memory = 0;
}

constexpr std::string_view kPrefix = "Ascend: ";

std::string without_prefix(std::string_view message) {
  return std::string(message.starts_with(kPrefix) ? message.substr(kPrefix.size()) : message);
}

// Memory is told of the NPU of the thread's context.
DeviceInfo describe_npu(const Api& api, int index) {
  DeviceInfo info{.index = index, .name = "NPU"};
  try {
    const OpenedNpu npu(api, index);
    const Context context(api, index);
    if (const char* const name = api.aclrtGetSocName()) info.name = name;
    read_memory(api, info);
  } catch (const DeviceError& error) {
    info.problem = without_prefix(error.what());
  }
  return info;
}

}  // namespace

Devices list_devices(const LibraryOptions& library) {
  Devices devices;
  try {
    const std::shared_ptr<const Api> api = load_api(library);
    devices.runtime = version_of(*api);
    const int count = count_npus(*api);
    for (int index = 0; index < count; ++index) devices.npus.push_back(describe_npu(*api, index));
  } catch (const DeviceError& error) {
    devices.problem = without_prefix(error.what());
    return devices;
  }
  if (std::ranges::none_of(devices.npus, &std::string::empty, &DeviceInfo::problem))
    devices.problem = fmt::format("NPU 0, {}: {}", devices.npus[0].name, devices.npus[0].problem);
  return devices;
}

}  // namespace espalier::ascend
