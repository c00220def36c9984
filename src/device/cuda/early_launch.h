// Whether a kernel may be launched before the one ahead of it has ended. The launch is the host's, the wait for the
// other kernel is the kernel's own (wait_for_earlier_kernels in kernel.h): code that was compiled for an older card has
// none, although it runs on a new one.
#pragma once

namespace espalier::cuda {

struct LaunchFacts {
  int generation = 0;    // of the GPU: 9 for compute capability 9.0
  int compiled_for = 0;  // the compute capability that the kernels' code was written for, 90
  int driver = 0;        // the newest CUDA it knows, 12030: from then on it records such launches in graphs
};

constexpr bool may_begin_early(const LaunchFacts& facts) {
  return facts.generation >= 9 && facts.compiled_for >= 90 && facts.driver >= 12030;
}

}  // namespace espalier::cuda
