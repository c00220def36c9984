// The part of CUDA's runtime that the device calls, in the host's memory: allocations of a card of one gigabyte, a
// queue whose work is done at once, and graphs that keep what was queued while they were captured.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/cuda/emulated/cuda_on_host.h"
#include "device/cuda/emulated/emulated_cuda_device.h"

namespace {

using Work = std::vector<std::function<void()>>;

constexpr std::size_t kMemory = std::size_t{1} << 30;
constexpr std::size_t kGraphBytes = 64 << 10;  // that a graph takes of it
std::size_t memory_left = kMemory;
std::unordered_map<void*, std::size_t> allocated;
std::optional<Work> capture;
bool lost = false;  // the device, as EmulatedFault says

cudaError_t unless_lost() {
  return lost ? cudaErrorUnknown : cudaSuccess;
}

}  // namespace

void espalier::cuda_on_host::enqueue(std::function<void()> work) {
  if (lost) return;
  if (capture)
    capture->push_back(std::move(work));
  else
    work();
}

namespace espalier {

EmulatedFault::~EmulatedFault() {
  lost = false;
  memory_left = kMemory;
  for (const auto& [memory, bytes] : allocated) memory_left -= bytes;
}

void EmulatedFault::leave_memory(std::size_t bytes) {
  memory_left = bytes;
}

void EmulatedFault::lose_device() {
  lost = true;
}

}  // namespace espalier

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : error == cudaErrorMemoryAllocation ? "out of memory" : "unknown error";
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"emulated", 9, 0, 2, std::size_t{1} << 30, std::size_t{227} << 10};
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = memory_left;
  *total = kMemory;
  return unless_lost();
}
cudaError_t cudaSetDevice(int) {
  return unless_lost();
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return unless_lost();
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (lost) return cudaErrorUnknown;
  if (bytes > memory_left) return cudaErrorMemoryAllocation;
  const cudaError_t result = cudaMallocHost(memory, bytes);
  if (result != cudaSuccess) return result;
  allocated[*memory] = bytes;
  memory_left -= bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (const auto known = allocated.extract(memory)) memory_left += known.mapped();
  return cudaFreeHost(memory);
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
// A device that is lost gives nothing back; the host does.
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return unless_lost();
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  espalier::cuda_on_host::enqueue([=] { std::memcpy(to, from, bytes); });
  return unless_lost();
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return unless_lost();
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  capture.emplace();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = new Work(std::move(*capture));
  capture.reset();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  if (kGraphBytes > memory_left) return cudaErrorMemoryAllocation;
  *executable = new Work(*static_cast<Work*>(graph));
  allocated[*executable] = kGraphBytes;
  memory_left -= kGraphBytes;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  if (lost) return cudaErrorUnknown;
  for (const auto& work : *static_cast<Work*>(executable)) work();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete static_cast<Work*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  if (const auto known = allocated.extract(executable)) memory_left += known.mapped();
  delete static_cast<Work*>(executable);
  return cudaSuccess;
}
