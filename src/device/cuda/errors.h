// What the CUDA runtime answers, as the project's errors.
#pragma once

#include "device/cuda/api.h"

namespace espalier::cuda {

// Throws DeviceError with the call and the driver's own words unless the result is success.
void check_cuda(cudaError_t result, const char* call);

}  // namespace espalier::cuda
