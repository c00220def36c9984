// Measures what steps cost: trees of 1 to 64 rows, on a GPU of up to 512, behind a short and a longer text, on a cache
// of their own, through the same forward pass that verifies drafts. Takes about a second, whatever the model: where
// steps are slow, fewer of them are measured.
#pragma once

#include <cstdint>

#include "cache/kv_cache.h"
#include "decode/step_times.h"
#include "model/transformer.h"

namespace espalier {

// Steps of more rows are not measured where they cost in proportion: on a CPU.
inline constexpr std::int64_t kTimedRows = 64;

struct TimingOptions {
  std::int64_t rows = kTimedRows;  // the most of a step; those that the workspace has no logits for want none
  bool taps = false;               // rows want taps, as they do for a drafter that reads them
  double seconds = 1;              // when to stop, once there is something to tell; without the first text
  SecondsClock clock = steady_seconds;
};

// Cache, with room for some hundred positions, and workspace, bound to its first memory, are used as a step would use
// them, and are free again afterwards.
StepTimes measure_step_times(const Transformer& model, KvCache& cache, Workspace& workspace,
                             const TimingOptions& options);

}  // namespace espalier
