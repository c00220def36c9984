#include "device/named_device.h"

#include <charconv>

#include "base/error.h"
#include "device/ascend/ascend_device.h"
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
  const std::string_view kind = name.substr(0, name.find(':'));
  if (options.activations && kind != "cuda")
    input_error("--activations {}: only with --device cuda, on {} linears of float weights have one kind of input",
                espalier::name(*options.activations), name);
  if (name == "cpu") return make_cpu_device({.threads = options.threads, .isa = options.isa});
  if (name == "reference") return make_reference_device(options.threads);
  if (kind == "cuda")
    return cuda::make_device(
        {.index = device_number(name), .activations = options.activations.value_or(Activations::two_terms)});
  if (kind == "ascend") {
    ascend::Options npu;
    npu.index = device_number(name);
    npu.library = options.ascend;
    npu.remark = options.remark;
    return ascend::make_device(npu);
  }
  input_error("device {}: expected cpu, reference, cuda, cuda:N, ascend or ascend:N", name);
}

}  // namespace espalier
