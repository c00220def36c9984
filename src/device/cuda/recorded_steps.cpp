#include "device/cuda/recorded_steps.h"

#include <algorithm>

namespace espalier::cuda {

namespace {

constexpr std::ptrdiff_t kMostGraphs = 256;  // a graph takes memory on host and device
constexpr std::size_t kMostKeys = 4096;      // with those that ran once

}  // namespace

RecordedSteps::~RecordedSteps() {
  cudaStreamSynchronize(stream_);
  for (const auto& [key, step] : by_key_)
    if (step.graph != nullptr) cudaGraphExecDestroy(step.graph);
}

void RecordedSteps::run(const StepKey& key, const std::function<void()>& ops) {
  const auto known = by_key_.find(key);
  if (known == by_key_.end()) {
    ops();
    return note(key);
  }
  Step& step = known->second;
  if (step.graph == nullptr) {
    make_room();
    step.graph = record(ops);
    if (step.graph == nullptr) return ops();
  }
  step.launched = ++launches_;
  check_cuda(cudaGraphLaunch(step.graph, stream_), "launching a recorded step");
}

void RecordedSteps::note(const StepKey& key) {
  if (by_key_.size() == kMostKeys) std::erase_if(by_key_, [](const auto& entry) { return !entry.second.graph; });
  by_key_.emplace(key, Step{});
}

// For one graph more.
void RecordedSteps::make_room() {
  const auto recorded = [](const auto& entry) { return entry.second.graph != nullptr; };
  if (std::ranges::count_if(by_key_, recorded) < kMostGraphs) return;
  const auto age = [](const auto& entry) { return entry.second.graph == nullptr ? UINT64_MAX : entry.second.launched; };
  const auto oldest = std::ranges::min_element(by_key_, {}, age);
  cudaStreamSynchronize(stream_);
  cudaGraphExecDestroy(oldest->second.graph);
  by_key_.erase(oldest);
}

cudaGraphExec_t RecordedSteps::record(const std::function<void()>& ops) const {
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording a step");
  try {
    ops();
  } catch (...) {
    if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream_, &graph), "recording a step");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  if (made == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the next call is not to find it again
    return nullptr;
  }
  check_cuda(made, "making a recorded step ready");
  return executable;
}

}  // namespace espalier::cuda
