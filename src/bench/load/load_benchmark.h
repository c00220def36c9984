// The load benchmark: every load on one server or two, round by round and in turn, so that whatever else the machine
// does meets both alike.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "bench/load/load_figures.h"
#include "bench/load/load_prompts.h"
#include "bench/load/load_run.h"
#include "bench/load/load_target.h"

namespace espalier {

struct LoadPlan {
  std::vector<LoadTarget> targets = {};  // one or two: the server, and the one beside it
  std::vector<LoadShape> shapes = {};
  LoadSettings settings = {};
  LoadPromptOptions prompts = {};
  int rounds = 3;
};

struct ShapeResult {
  LoadShape shape = {};
  std::vector<LoadFigures> figures = {};  // one for each target
};

struct LoadResult {
  LoadPlan plan = {};  // with what the servers said of themselves
  std::vector<ShapeResult> shapes = {};
  bool interrupted = false;  // what was measured until then is there

  bool all_failed() const;  // no answer of any server was complete
};

struct LoadEvents {
  std::function<bool()> cancelled = {};
  std::function<void(std::string_view work, double share)> progress = {};
};

// Throws as meet_server() does, and where the first request fails.
LoadResult run_load_benchmark(LoadPlan plan, const LoadPrompts& prompts, const LoadEvents& events);

// How many times as many tokens a second the first server gave as the second, by the medians of their rounds. Nothing:
// there is no second one, or one of them has no round.
std::optional<double> speed_ratio(const ShapeResult& result);

}  // namespace espalier
