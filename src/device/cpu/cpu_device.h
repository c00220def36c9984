// The fast device for processors: SIMD kernels over weights repacked at load, bit-equal to the reference device for
// every instruction set and number of threads. See docs/cpu.md.
//
// In a steady decoding step it allocates nothing: scratch memory grows with the largest call and stays.
#pragma once

#include <memory>
#include <optional>

#include "device/cpu/isa.h"
#include "device/device.h"

namespace espalier {

struct CpuOptions {
  int threads = 1;              // the caller included
  std::optional<Isa> isa = {};  // none: the fastest this machine runs
};

// Throws InputError if this machine does not run options.isa.
std::unique_ptr<Device> make_cpu_device(const CpuOptions& options = {});

}  // namespace espalier
