// The CUDA device without a GPU, for tests: the same kernels and the same host code, over emulated/cuda_on_host.h.
#pragma once

#include <memory>

#include "device/device.h"

namespace espalier {

std::unique_ptr<Device> make_emulated_cuda_device();

}  // namespace espalier
