// The traces of a run, read once: the times of stages, the data of trees, and whether traces and turns.json tell the
// same story.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "experiments/round_figures.h"
#include "report/report_source.h"
#include "report/turn_data.h"

namespace espalier {

struct RunTraces {
  std::int64_t traced = 0;                       // turns of the run that have a trace
  std::int64_t agreeing = 0;                     // of those: tokens, rounds, judged guesses and seconds are the same
  std::optional<std::string> disagreement = {};  // the first
  StageTimes stages = {};
};

// Hears every turn of the run that has a trace, by its place in run.turns.
using TracedTurnSink = std::function<void(std::size_t turn, const nlohmann::ordered_json& data)>;

// Throws InputError where a trace cannot be read, or is of another version.
RunTraces read_run_traces(const ReportRun& run, const TokenWords& words, const TracedTurnSink& sink);

// What a turn and its trace say differently: "accept_lengths". Nothing where they agree.
std::optional<std::string> disagreement(const TurnRecord& turn, const TracedTurn& traced);

}  // namespace espalier
