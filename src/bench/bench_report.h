// The result of a benchmark, as JSON and as tables for people. Pure functions of what was measured.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/figures.h"
#include "bench/model_times.h"
#include "bench/peer.h"

namespace espalier {

// What one peer took for one figure.
struct PeerTrack {
  std::string program = {};
  std::int64_t depth = 0;            // of the context behind which it ran
  std::vector<double> samples = {};  // none, and a problem, where it failed
  std::string problem = {};
};

// A figure of ours against the same of the peers, sample by sample.
struct Duel {
  std::string figure = {};
  std::int64_t rows = 0;
  std::int64_t context = 0;
  PeerTest test = {};
  std::vector<PeerTrack> peers = {};

  // The fastest; nullptr where all failed.
  const PeerTrack* best() const;
};

struct BenchMemory {
  std::int64_t peak_after_loading = 0;  // VmHWM
  std::int64_t peak = 0;
  std::int64_t weights = 0;  // as the file has them
  std::int64_t kv = 0;       // of the step benchmark's contexts
  std::int64_t kv_per_token = 0;
};

struct BenchResult {
  std::string model = {};
  std::string device = {};
  std::string isa = {};
  std::string kv = {};
  int threads = 0;
  int repeats = 0;
  double load_seconds = 0;
  std::string draft = {};  // "none": no rounds were measured
  double draft_rows = 0;   // of a tree, on average
  BenchSizes sizes = {};
  std::int64_t host_rows = 0;     // the tree for which the host's work was measured
  std::int64_t host_context = 0;  // and the context behind which
  BenchMemory memory = {};
  std::vector<Figure> figures = {};
  std::vector<Duel> duels = {};
};

// Of all time that a step takes, the parts that are linears and attention; what is left is the rest.
struct StepShare {
  std::string figure = {};  // "step" or "plain_decoding"
  std::int64_t rows = 0;
  std::int64_t context = 0;
  double linears = 0;
  double attention = 0;

  double other() const { return 1 - linears - attention; }
};
std::vector<StepShare> step_shares(const BenchResult& result);

// What the host does in a round (growing, tables, mask, commit) as a share of the verify step of the same size.
std::optional<double> host_share(const BenchResult& result);

nlohmann::ordered_json bench_json(const BenchResult& result);
std::string bench_text(const BenchResult& result);

}  // namespace espalier
