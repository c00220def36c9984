// The steps of a workspace as CUDA graphs. A step runs as plain launches when its key is new, so that whatever memory
// its ops need is there; when the key comes again it is captured, and from then on launched as a whole. The graph that
// was not launched for longest goes when there are many. Where there is no memory for one, its step stays plain
// launches.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "device/cuda/errors.h"
#include "device/device.h"

namespace espalier::cuda {

class RecordedSteps final : public Recordings {
 public:
  explicit RecordedSteps(cudaStream_t stream) : stream_(stream) {}
  ~RecordedSteps() override;

  void run(const StepKey& key, const std::function<void()>& ops);

 private:
  struct Step {
    cudaGraphExec_t graph = nullptr;  // null: it ran, and is not recorded yet
    std::uint64_t launched = 0;       // as which launch of all the graph ran last
  };

  void note(const StepKey& key);
  void make_room();
  // Null: there is no memory for the graph.
  cudaGraphExec_t record(const std::function<void()>& ops) const;

  cudaStream_t stream_;
  std::map<StepKey, Step> by_key_;
  std::uint64_t launches_ = 0;
};

}  // namespace espalier::cuda
