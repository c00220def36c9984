#include "device/cuda/recorded_steps.h"

namespace espalier::cuda {

namespace {

constexpr std::size_t kMostKeys = 256;  // a graph takes memory on host and device

}  // namespace

RecordedSteps::~RecordedSteps() {
  forget();
}

void RecordedSteps::forget() {
  cudaStreamSynchronize(stream_);
  for (const auto& [key, graph] : by_key_)
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  by_key_.clear();
}

void RecordedSteps::run(const StepKey& key, const std::function<void()>& ops) {
  const auto known = by_key_.find(key);
  if (known == by_key_.end()) {
    if (by_key_.size() == kMostKeys) forget();
    ops();
    by_key_.emplace(key, nullptr);
    return;
  }
  if (known->second == nullptr) known->second = record(ops);
  check_cuda(cudaGraphLaunch(known->second, stream_), "launching a recorded step");
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
  check_cuda(made, "making a recorded step ready");
  return executable;
}

}  // namespace espalier::cuda
