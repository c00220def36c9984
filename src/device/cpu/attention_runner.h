// Runs an attention call in waves of row groups: the sums of every tile of keys, then their combination. Where few
// heads meet a long context, tiles are shared out among threads, else each thread takes a kv head of a group through
// both.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/attention_plan.h"
#include "device/cpu/host_memory.h"
#include "device/cpu/kernels.h"

namespace espalier::cpu {

class AttentionRunner {
 public:
  AttentionRunner(const Kernels& kernels, ThreadPool& pool);

  void run(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out);

 private:
  std::int64_t sum_floats(const AttentionRows& group) const;
  void run_wave(std::span<AttentionRows> wave);
  void run_whole_heads(std::span<const AttentionRows> wave);
  void run_tiles(std::span<const AttentionRows> wave);
  float* thread_scratch(int thread) { return scratch_[static_cast<std::size_t>(thread)].of<float>(scratch_floats_); }

  const Kernels& kernels_;
  ThreadPool& pool_;
  AttentionPlan plan_;
  AttentionShape shape_;
  std::int64_t scratch_floats_ = 0;
  Scratch sums_;
  std::vector<Scratch> scratch_;  // by thread
};

}  // namespace espalier::cpu
