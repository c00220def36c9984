// Runs a linear: its input quantised or interleaved once for all projections, then the panels of all of them shared out
// as one loop.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/host_memory.h"
#include "device/cpu/kernels.h"
#include "device/cpu/packed_weight.h"
#include "device/cpu/read_ahead.h"

namespace espalier::cpu {

class LinearRunner {
 public:
  // All three must outlive the runner.
  LinearRunner(const Kernels& kernels, ThreadPool& pool, ReadAhead& read_ahead);

  void run(ConstView x, std::span<const Projection> projections);

 private:
  // One part of one weight; units are panels, or groups of panels that a kernel takes side by side.
  struct Job {
    LinearKernel kernel = nullptr;
    LinearCall call = {};
    std::int64_t panels = 0;
    std::int64_t unit_panels = 1;
    std::int64_t units = 0;
  };

  void run_rows(ConstView x, std::span<const Projection> projections, std::int64_t first_row);
  const void* quantised(ConstView x);
  const void* interleaved(ConstView x);
  void add_job(const PackedPart& part, const Projection& projection, ConstView x, std::int64_t first_row);
  void run_jobs(std::int64_t rows, std::int64_t inputs);
  void announce(std::int64_t units);
  void run_units(std::int64_t begin, std::int64_t end, std::int64_t fetch_end, std::uint8_t* scratch) const;
  LinearKernel kernel_for(DType type) const;

  const Kernels& kernels_;
  ThreadPool& pool_;
  std::vector<Job> jobs_;
  const void* block_tiles_ = nullptr;  // of the input at hand, once a part has asked for them
  const void* float_tiles_ = nullptr;
  Scratch block_memory_;
  Scratch float_memory_;
  std::vector<Scratch> scratch_;  // by thread
  ReadAhead& read_ahead_;
  std::vector<ReadAhead::Place> starts_;  // by thread, of the jobs at hand
};

}  // namespace espalier::cpu
