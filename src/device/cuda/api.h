// The CUDA runtime, or where ESPALIER_CUDA_EMULATED is defined what stands in for it on a machine without one: the same
// kernels, compiled by the host's compiler and run thread by thread (emulated/). Nothing else tells the two apart.
#pragma once

#ifdef ESPALIER_CUDA_EMULATED
#include "device/cuda/emulated/cuda_on_host.h"
#else
#include <cuda_runtime.h>
#endif
