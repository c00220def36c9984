// The CUDA device without a GPU, for tests: the same kernels and the same host code, over emulated/cuda_on_host.h.
#pragma once

#include <cstddef>
#include <memory>

#include "device/activations.h"
#include "device/device.h"

namespace espalier {

struct EmulatedCudaOptions {
  bool small_blocks = false;  // linears as on a card with little shared memory
  Activations activations = Activations::two_terms;
  bool clusters = false;    // layers of small models by one cluster of blocks of threads
  int quads_from_rows = 9;  // from so many rows on, linears of bf16 and f16 weights by quads; 0: never
};
std::unique_ptr<Device> make_emulated_cuda_device(const EmulatedCudaOptions& options = {});

// What can happen to a GPU, for as long as one of these lives. One at a time.
class EmulatedFault {
 public:
  EmulatedFault() = default;
  ~EmulatedFault();
  EmulatedFault(const EmulatedFault&) = delete;
  EmulatedFault& operator=(const EmulatedFault&) = delete;

  // So many bytes more can be allocated.
  void leave_memory(std::size_t bytes);
  // Every call from now on fails, as behind a fault of a kernel or a card that has gone.
  void lose_device();
};

}  // namespace espalier
