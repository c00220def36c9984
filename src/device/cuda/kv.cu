// KV memory: rows written in its stored type, and slots moved as they are stored.
#include "device/cuda/cluster_ops.h"
#include "device/cuda/format_switch.h"
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/cuda/rotated_elements.h"

namespace espalier::cuda {
namespace {

constexpr int kThreads = 256;

__device__ std::int64_t thread_number() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

template <typename Element>
__global__ void write_kernel(const float* from, const std::int32_t* slot, std::int64_t rows, std::int64_t width,
                             typename Element::Stored* memory) {
  wait_for_earlier_kernels();
  const std::int64_t i = thread_number();
  if (i < rows * width) memory[slot[i / width] * width + i % width] = Element::round(from[i]);
}

// A row for each x of the grid.
template <typename Element>
__global__ void rotate_kernel(RotateAndWrite call) {
  let_the_next_come();
  const RotatedElements<Element> elements(call, blockIdx.x, static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x));
  wait_and_hold_the_next_back();
  elements.compute(call);
}

// Slots have an even number of bytes, and start on one: two bytes a thread. A memory for each y of the grid.
__global__ void gather_kernel(const __grid_constant__ SlotMemories memories, const std::int32_t* from, std::int64_t n,
                              std::int64_t width, std::uint16_t* copies) {
  wait_for_earlier_kernels();
  const std::int64_t i = thread_number();
  const auto* const memory = reinterpret_cast<const std::uint16_t*>(memories.first[blockIdx.y]);
  if (i < n * width) copies[blockIdx.y * n * width + i] = memory[from[i / width] * width + i % width];
}

__global__ void scatter_kernel(const std::uint16_t* copies, const std::int32_t* to, std::int64_t n, std::int64_t width,
                               const __grid_constant__ SlotMemories memories) {
  wait_for_earlier_kernels();
  const std::int64_t i = thread_number();
  auto* const memory = reinterpret_cast<std::uint16_t*>(memories.first[blockIdx.y]);
  if (i < n * width) memory[to[i / width] * width + i % width] = copies[blockIdx.y * n * width + i];
}

Launch for_slots(const SlotMemories& memories, std::int64_t elements) {
  return {{blocks_for(elements, kThreads), static_cast<unsigned>(memories.count), 1}, kThreads};
}

}  // namespace

void kv_write(Queue queue, DType type, const float* from, const std::int32_t* slot, std::int64_t rows,
              std::int64_t width, std::byte* memory) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(queue, "kv_write", write_kernel<Element>, {{blocks_for(rows * width, kThreads), 1, 1}, kThreads}, from, slot,
           rows, width, reinterpret_cast<typename Element::Stored*>(memory));
  });
}

void rotate_and_write(Queue queue, DType type, const RotateAndWrite& call) {
  if (queue.held != nullptr && queue.held->hold(queue, RotateOp{type, call})) return;
  with_element(type, [&](auto element) {
    launch(queue, "rope", rotate_kernel<decltype(element)>,
           {{static_cast<unsigned>(call.rows), blocks_for(rotated_items(call), kThreads), 1}, kThreads}, call);
  });
}

void gather_slots(Queue queue, const SlotMemories& memories, const std::int32_t* from, std::int64_t n,
                  std::int64_t slot_bytes, std::byte* copies) {
  const std::int64_t width = slot_bytes / 2;
  launch(queue, "kv_copy", gather_kernel, for_slots(memories, n * width), memories, from, n, width,
         reinterpret_cast<std::uint16_t*>(copies));
}

void scatter_slots(Queue queue, const std::byte* copies, const std::int32_t* to, std::int64_t n,
                   std::int64_t slot_bytes, const SlotMemories& memories) {
  const std::int64_t width = slot_bytes / 2;
  launch(queue, "kv_copy", scatter_kernel, for_slots(memories, n * width),
         reinterpret_cast<const std::uint16_t*>(copies), to, n, width, memories);
}

}  // namespace espalier::cuda
