// What kernels may rely on, by the card and by what their code was compiled for: code for an older card has neither
// waits nor large copies (kernel.h), although it runs on a new one.
#pragma once

#include <cstddef>

namespace espalier::cuda {

struct LaunchFacts {
  int generation = 0;            // of the GPU: 9 for compute capability 9.0
  int compiled_for = 0;          // the compute capability that the kernels' code was written for, 90
  int driver = 0;                // the newest CUDA it knows, 12030: from then on it records early launches in graphs
  std::size_t shared_bytes = 0;  // that a block of threads can have
};

inline constexpr std::size_t kSmallSharedBytes = 99 << 10;   // of a block, where a card has least: 8.6, 8.9, 12.0
inline constexpr std::size_t kLargeSharedBytes = 226 << 10;  // 9.0, 10.0

// Whether a kernel may be launched before the one ahead of it has ended. The launch is the host's, the wait for the
// other kernel is the kernel's own (wait_for_earlier_kernels).
constexpr bool may_begin_early(const LaunchFacts& facts) {
  return facts.generation >= 9 && facts.compiled_for >= 90 && facts.driver >= 12030;
}

// Whether linears have blocks of threads with much shared memory, into which one thread copies many bytes at once.
constexpr bool has_large_blocks(const LaunchFacts& facts) {
  return facts.generation >= 9 && facts.compiled_for >= 90 && facts.shared_bytes >= kLargeSharedBytes;
}

}  // namespace espalier::cuda
