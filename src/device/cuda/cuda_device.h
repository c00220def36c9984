// The device for NVIDIA GPUs: the contract's bits, the reference device's, for every op and every type of weight but
// bf16 and f16, whose linears add in the order of its matrix instructions (docs/cuda.md). This header is all that the
// rest of the program sees of it; a build without nvcc has the same functions (absent.cpp), which find no GPU.
//
// Everything runs asynchronously on one stream; download() waits. A step of up to 96 rows is recorded as a CUDA
// graph when its key comes for the second time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "device/activations.h"
#include "device/device.h"

namespace espalier::cuda {

// A GPU as `espalier inspect --devices` shows it.
struct DeviceInfo {
  int index = 0;
  std::string name = {};
  std::string capability = {};  // "9.0"
  int generation = 0;           // 9
  int processors = 0;
  std::size_t shared_bytes = 0;  // that a block of threads can have
  std::size_t memory = 0;        // bytes
  std::size_t free_memory = 0;   // known to whoever has looked at it
  std::string problem = {};      // why it cannot be used; empty: it can
};

struct Devices {
  std::vector<DeviceInfo> gpus = {};
  std::string driver = {};   // the newest CUDA it knows, "13.0"; empty: none
  std::string runtime = {};  // the CUDA this program was built with; empty: without
  std::string problem = {};  // why there is none, in a line; empty: there is one that can be used
  bool present = false;      // there is a GPU, whether it can be used or not
};

// What is known of GPUs without using them, or as look_at() knows them.
enum class Look { from_outside, at_each };
// Never throws for want of a GPU or a driver.
Devices list_devices(Look look = Look::from_outside);
// What is free on a GPU that can be used, or why it cannot, which shows only in use. That makes a context there, some
// hundred megabytes of its memory, for the life of the process.
void look_at(DeviceInfo& gpu);

// All behind the activations are for tests and measurements: none of them changes a bit.
struct Options {
  int index = 0;                                     // of the GPU
  Activations activations = Activations::two_terms;  // of linears of bf16 and f16 weights
  bool recorded = true;                              // steps as graphs
  bool fused = true;                                 // neighbours in a step as one kernel
  bool small_blocks = false;                         // emulated only: linears as where there is little shared memory
  bool programmatic = true;  // a kernel begins before the one ahead of it has ended, where the GPU can
  // From so many rows on, linears of bf16 and f16 weights are multiplied by quads, where the GPU can; 0: never.
  int quads_from_rows = 9;
  bool clusters = false;  // layers of small models by one cluster of blocks of threads, where the GPU can
};

// Throws DeviceError, in one line, where there is no such GPU or it cannot be used.
std::unique_ptr<Device> make_device(const Options& options = {});

}  // namespace espalier::cuda
