// Everything that is measured of one loaded model: steps, the loop, rounds with drafts, the host's work, memory; and
// the same figures of other programs, interleaved. One thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench_report.h"
#include "engine/drafting.h"

namespace espalier {

struct BenchJob {
  const OpenEngine& engine;  // with timed ops
  const Drafting& drafting;
  BenchSizes sizes = {};  // cut to the engine's context
  int repeats = 5;
  std::vector<std::string> against = {};  // llama-bench programs
  double load_seconds = 0;                // what opening the engine took
  std::function<bool()> cancelled = {};
};

// What can be told before a model is loaded. Throws InputError: a model or weights that another program cannot read, or
// no such program.
void check_peers(const std::vector<std::string>& against, const EngineOptions& options);

// Nothing: it was cancelled.
std::optional<BenchResult> run_benchmark(const BenchJob& job);

}  // namespace espalier
