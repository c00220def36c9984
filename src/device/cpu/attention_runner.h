// Runs an attention call in waves of tiles: scores, exponentials, weighted sums. Where few heads meet a long context
// the three are shared out one after the other (by keys, by heads, by dimensions), else each thread takes a kv head of
// a tile through all three.
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
  void run_wave(std::span<AttentionTile> wave);
  void run_whole_heads(std::span<const AttentionTile> wave);
  void run_in_phases(std::span<const AttentionTile> wave);
  void weigh_in_parts(std::span<const AttentionTile> wave, std::int64_t most_rows);
  float* thread_scratch(int thread) { return scratch_[static_cast<std::size_t>(thread)].of<float>(scratch_floats_); }
  std::int64_t heads() const { return shape_.kv_heads * shape_.group; }

  const Kernels& kernels_;
  ThreadPool& pool_;
  AttentionPlan plan_;
  AttentionShape shape_;
  std::int64_t scratch_floats_ = 0;
  Scratch scores_;
  Scratch valid_;
  std::vector<Scratch> scratch_;  // by thread
};

}  // namespace espalier::cpu
