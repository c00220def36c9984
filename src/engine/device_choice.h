// Which device computes a model where nobody says (--device auto), and whether the GPU that somebody named has room for
// it. Pure functions of what the machine has and what the model needs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "device/cuda/cuda_device.h"
#include "format/tensor_info.h"
#include "model/config.h"
#include "model/weight_reader.h"

namespace espalier {

// Prompt rows of a step where a device has memory of its own: it computes many rows at once nearly as fast as few.
inline constexpr std::int64_t kPrefillRowsOnGpu = 512;

// Bytes of a device's memory.
struct MemoryNeeds {
  std::int64_t weights = 0;
  std::int64_t kv = 0;
  std::int64_t positions = 0;   // whose keys and values these are
  std::int64_t workspace = 0;   // of steps, and what a device keeps for itself
  std::int64_t on_its_way = 0;  // the largest tensor as it comes, until it lies there as the device wants it

  // Keys, values and workspace come when the weights are loaded.
  std::int64_t total() const { return weights + std::max(kv + workspace, on_its_way); }
};

// What decides how much a model takes besides its tensors.
struct ModelUse {
  WeightMode weights = WeightMode::stored;
  DType kv_type = DType::f16;
  std::int64_t positions = 0;  // of the KV pool
  std::int64_t beside = 0;     // bytes of heads and draft models that will lie there too
};
MemoryNeeds memory_needs(const ModelConfig& config, std::span<const TensorInfo> tensors, const ModelUse& use);

// "the model needs 15.3 GiB (weights 14.1, KV of 8192 positions 1.0, workspace 0.3), 14.0 of 15.0 GiB are free"; empty:
// it fits.
std::string lack_of_memory(const MemoryNeeds& needs, const cuda::DeviceInfo& gpu);

// Finds out what is free on a GPU, which takes a part of that memory: only those are looked at that may be chosen.
using LookAtGpu = std::function<void(cuda::DeviceInfo& gpu)>;

// Throws DeviceError, in one line with the numbers, where the GPU that --device calls `name` has no room for the model.
// One that is not there, or cannot be used, is left to whoever makes the device.
void check_room(const std::string& name, const MemoryNeeds& needs, cuda::Devices gpus,
                const LookAtGpu& look = cuda::look_at);

struct DeviceChoice {
  std::string device = "cpu";  // as --device names it
  std::string remark = {};     // why it is the CPU although there is a GPU; empty: nothing to say
};
// The first GPU that can be used and has room for the model, else the CPU.
DeviceChoice choose_device(const MemoryNeeds& needs, cuda::Devices gpus, const LookAtGpu& look = cuda::look_at);

// One line where a device chosen by nobody writes another text than the CPU does: float weights, added in an order of
// its own. Empty: the text is the same.
std::string text_remark(const Device& device, const std::string& name, bool float_weights);

}  // namespace espalier
