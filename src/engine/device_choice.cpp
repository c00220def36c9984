#include "engine/device_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "cache/kv_memory.h"
#include "decode/pool_size.h"
#include "device/named_device.h"
#include "model/transformer.h"

namespace espalier {
namespace {

constexpr std::int64_t kRows = kPrefillRowsOnGpu + 64;  // of a step: a prompt's and a tree's
constexpr std::int64_t kOutputRows = 64;                // of those, with logits
constexpr std::int64_t kPackedShare = 32;  // a device's layout may take a part of this more than the file's

double gib(std::int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

// As it will lie on the device. Vectors are floats there.
std::int64_t loaded_bytes(const TensorInfo& tensor, WeightMode mode) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : tensor.shape) elements *= extent;
  if (tensor.shape.size() < 2 || mode == WeightMode::f32) return 4 * elements;
  if (mode == WeightMode::q8_0 && is_float(tensor.type))
    return elements / traits(DType::q8_0).block_elements * traits(DType::q8_0).block_bytes;
  return static_cast<std::int64_t>(tensor.bytes.size());
}

std::string gpu_name(const cuda::DeviceInfo& gpu) {
  return fmt::format("GPU {}, {}", gpu.index, gpu.name);
}

}  // namespace

MemoryNeeds memory_needs(const ModelConfig& config, std::span<const TensorInfo> tensors, const ModelUse& use) {
  MemoryNeeds needs{.positions = use.positions};
  for (const TensorInfo& tensor : tensors) {
    const std::int64_t bytes = loaded_bytes(tensor, use.weights);
    needs.weights += bytes;
    needs.on_its_way = std::max(needs.on_its_way, bytes);
  }
  needs.weights += use.beside;
  needs.weights += needs.weights / kPackedShare;
  needs.kv =
      use.positions *
      slot_bytes(
          {.layers = config.layers, .kv_heads = config.kv_heads, .head_size = config.head_size, .type = use.kv_type});
  needs.workspace =
      workspace_bytes(config, {.rows = kRows, .outputs = kOutputRows, .positions = use.positions}) + kDeviceOwnBytes;
  return needs;
}

std::string lack_of_memory(const MemoryNeeds& needs, const cuda::DeviceInfo& gpu) {
  const auto free = static_cast<std::int64_t>(gpu.free_memory), all = static_cast<std::int64_t>(gpu.memory);
  if (needs.total() <= free) return "";
  return fmt::format(
      "the model needs {:.1f} GiB (weights {:.1f}, KV of {} positions {:.1f}, workspace {:.1f}), {:.1f} of {:.1f} GiB "
      "are free",
      gib(needs.total()), gib(needs.weights), needs.positions, gib(needs.kv), gib(needs.workspace), gib(free),
      gib(all));
}

void check_room(const std::string& name, const MemoryNeeds& needs, cuda::Devices gpus, const LookAtGpu& look) {
  const auto gpu = std::ranges::find(gpus.gpus, device_number(name), &cuda::DeviceInfo::index);
  if (gpu == gpus.gpus.end() || !gpu->problem.empty()) return;
  look(*gpu);
  if (!gpu->problem.empty()) return;
  if (const std::string lack = lack_of_memory(needs, *gpu); !lack.empty())
    device_error("CUDA: {}: {}; try a smaller --context, or --device cpu", gpu_name(*gpu), lack);
}

DeviceChoice choose_device(const MemoryNeeds& needs, cuda::Devices gpus, const LookAtGpu& look) {
  if (!gpus.present) return {};
  for (cuda::DeviceInfo& gpu : gpus.gpus) {
    if (gpu.problem.empty()) look(gpu);
    if (gpu.problem.empty() && lack_of_memory(needs, gpu).empty()) return {.device = fmt::format("cuda:{}", gpu.index)};
  }
  std::string reason = gpus.problem;
  if (reason.empty()) {  // the one that came nearest
    const cuda::DeviceInfo& roomiest = *std::ranges::max_element(
        gpus.gpus, {}, [](const cuda::DeviceInfo& gpu) { return gpu.problem.empty() ? gpu.free_memory : 0; });
    reason = fmt::format("{}: {}", gpu_name(roomiest),
                         roomiest.problem.empty() ? lack_of_memory(needs, roomiest) : roomiest.problem);
  }
  return {.remark = fmt::format("computing on the CPU: {}", reason)};
}

std::string text_remark(const Device& device, const std::string& name, bool float_weights) {
  if (!float_weights || (device.float_order() == kContractFloatOrder && device.activations() == kContractActivations))
    return "";
  return fmt::format(
      "computing on {}: this model has float weights, whose text may differ from the CPU's there; --device cpu gives "
      "that one",
      name);
}

}  // namespace espalier
