#include "device/named_device.h"

#include <charconv>

#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda/cuda_device.h"
#include "device/reference/reference_device.h"

namespace espalier {

int device_number(std::string_view name) {
  const auto colon = name.find(':');
  if (colon == name.npos) return 0;
  int number = -1;
  const auto [rest, error] = std::from_chars(name.data() + colon + 1, name.data() + name.size(), number);
  if (error != std::errc() || rest != name.data() + name.size() || number < 0)
    input_error("device {}: expected a number behind the colon", name);
  return number;
}

std::unique_ptr<Device> make_named_device(std::string_view name, const NamedDeviceOptions& options) {
  if (name == "cpu") return make_cpu_device({.threads = options.threads, .isa = options.isa});
  if (name == "reference") return make_reference_device(options.threads);
  if (name.substr(0, name.find(':')) == "cuda") return cuda::make_device({.index = device_number(name)});
  input_error("device {}: expected cpu, reference, cuda or cuda:N", name);
}

}  // namespace espalier
