// The ops of a small model's layers by one cluster of blocks of threads, in one kernel, because kernels of their own
// spend a good part of their time on waiting for each other. Ops of a step are held until one comes that a cluster
// cannot do; those that were held are then one launch, or, where they are too few for that, as many as they are. Every
// op is computed and stored as it is by itself.
#pragma once

#include <algorithm>
#include <variant>
#include <vector>

#include "device/cuda/kernels.h"

namespace espalier::cuda {

inline constexpr int kClusterBlocks = 16;  // the most that a card of 9.0 gathers

struct LinearOp {
  LinearOp(const LinearPart* all, int n, const std::byte* rows) : count(n), quantised(rows) {
    std::copy_n(all, n, parts);
  }
  LinearPart parts[kMostParts];
  int count;
  const std::byte* quantised;
};
struct RotateOp {
  DType type;  // of keys and values
  RotateAndWrite call;
};
struct AttentionOp {
  AttentionCall call;
  AttentionScratch scratch;
  AttentionForms forms;
};
using ClusterOp = std::variant<NormOp, LinearOp, RotateOp, AttentionOp, SwigluOp>;

class HeldOps {
 public:
  // Whether the op waits here now; otherwise it is the caller's, behind what waited.
  bool hold(Queue queue, const ClusterOp& op);
  void launch(Queue queue);
  void clear() { ops_.clear(); }

 private:
  std::vector<ClusterOp> ops_;
  std::int64_t rows_ = 0;    // of all of them
  DType type_ = DType::f32;  // of the weights of linears; f32: there are none yet
};

// Blocks of threads that this GPU can gather in a cluster for these ops: kClusterBlocks, or 0.
int cluster_blocks();

}  // namespace espalier::cuda
