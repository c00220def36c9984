// The devices by the names that --device takes: "cpu", "reference", "cuda", "cuda:1", "ascend:1".
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "device/activations.h"
#include "device/ascend/library.h"
#include "device/cpu/isa.h"
#include "device/device.h"

namespace espalier {

struct NamedDeviceOptions {
  int threads = 1;                                    // of the host, for devices that compute there
  std::optional<Isa> isa = {};                        // of the CPU device; nothing: the fastest
  std::optional<Activations> activations = {};        // of the CUDA device; nothing: two terms
  ascend::LibraryOptions ascend = {};                 // where the Ascend device finds CANN
  std::function<void(std::string_view)> remark = {};  // a line that a user should see
};

// Throws InputError for a name that is none of these and for options that the device has not, DeviceError where the
// machine does not have it.
std::unique_ptr<Device> make_named_device(std::string_view name, const NamedDeviceOptions& options = {});

// The number behind the colon of "cuda:1"; 0 without one. Throws InputError where it is no number.
int device_number(std::string_view name);

}  // namespace espalier
