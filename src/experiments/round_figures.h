// Figures of experiments that the summary of a run (eval/summary.h) does not have. Pure functions of turns and traces.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "eval/statistics.h"
#include "eval/summary.h"
#include "eval/turn_record.h"
#include "trace/traced_turn.h"

namespace espalier {

// As OpenPangu-Medusa (arXiv 2603.03383) counts, from the first token on: speed_up = ac / overhead.
struct StepEconomy {
  Estimate ac = {};        // tokens of a step, the root's included
  Estimate overhead = {};  // a step's time over that of a plain step; the interval is that of the mean over turns
  Estimate speed_up = {};
};

// Of turns that have a baseline and more than one token; all figures are 0 where there is none.
StepEconomy step_economy(std::span<const TurnRecord> turns);
nlohmann::ordered_json to_json(const StepEconomy& economy);

// Where the time of rounds went (their Figure 5).
class StageTimes {
 public:
  void add(const TracedTurn& turn);
  // A list: each stage with its distribution in milliseconds, p99 over mean, and its share of all time. Prefill is
  // counted by turns, the others by rounds.
  nlohmann::ordered_json to_json() const;
  std::int64_t rounds() const { return static_cast<std::int64_t>(draft_.size()); }

 private:
  std::vector<double> prefill_, draft_, prepare_, verify_, accept_, commit_;  // milliseconds
};

}  // namespace espalier
