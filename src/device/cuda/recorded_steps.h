// The steps of a workspace as CUDA graphs. A step runs as plain launches when its key is new, so that whatever memory
// its ops need is there; when the key comes again it is captured, and from then on launched as a whole.
#pragma once

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
  void forget();
  cudaGraphExec_t record(const std::function<void()>& ops) const;

  cudaStream_t stream_;
  std::map<StepKey, cudaGraphExec_t> by_key_;  // null: ran once, is not recorded yet
};

}  // namespace espalier::cuda
