#include "device/cuda/errors.h"

#include "base/error.h"

namespace espalier::cuda {

void check_cuda(cudaError_t result, const char* call) {
  if (result != cudaSuccess) device_error("CUDA: {}: {}", call, cudaGetErrorString(result));
}

}  // namespace espalier::cuda
