// The figures of a run, from its turns alone: what summary.json and the last lines on the screen say. A pure function.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/statistics.h"
#include "eval/turn_record.h"

namespace espalier {

// A figure and the interval of its percentile bootstrap, over turns.
struct Estimate {
  double value = 0;
  Interval interval = {};
};

// Over turns that have the figure (turn_figures.h).
struct SpeedDistributions {
  Distribution tokens_per_second = {};
  Distribution tpot = {};
  Distribution ttft = {};
};

// With speculation against without, on the turns that have both.
struct BaselineComparison {
  std::int64_t turns = 0;
  std::int64_t identical = 0;
  std::vector<double> near_ties = {};          // margins of turns that part where two tokens are nearly equal, in order
  std::optional<std::string> difference = {};  // the first of the others: which turn, where, and both tokens
  TurnSeconds seconds = {};                    // of the baseline
  double tokens_per_second = 0;                // likewise
  double decode_tokens_per_second = 0;
  SpeedDistributions speeds = {};
  Distribution speed_up = {};         // over turns: seconds of the whole turn without, by those with
  Distribution decode_speed_up = {};  // the same from the first token on, over turns that have more than one
  Distribution drift = {};            // over turns whose shared baseline was timed again: those seconds by the shared
};

struct Summary {
  std::int64_t turns = 0;
  std::int64_t tokens = 0;
  std::int64_t rounds = 0;   // verify steps
  std::int64_t drafted = 0;  // tokens that were drafted and accepted
  // Over all rounds. Those of a turn resemble each other, so the interval is drawn from turns. A token that the teacher
  // gave by itself comes with each round: tau = accept_L + 1. The first token of an answer is the prompt's and in none
  // of them.
  Distribution accept_length = {};
  Estimate tau = {};
  std::vector<std::int64_t> reached = {};  // by depth, from 1: guesses judged
  std::vector<Estimate> accept_pos = {};   // the share of them that was accepted
  TurnSeconds seconds = {};
  RoundTimes stages = {};
  Estimate tokens_per_second = {};         // all tokens over all seconds
  Estimate decode_tokens_per_second = {};  // without first tokens and prefill
  SpeedDistributions speeds = {};
  // Over the wall time of the run; turns do not say it: the manifest does (manifest.h).
  std::optional<double> tokens_per_second_in_all = {};
  std::optional<BaselineComparison> compared = {};
  std::int64_t failed = 0;                  // turns that could not be answered; they are in no other figure
  std::optional<std::string> failure = {};  // the first of them: which turn, and why
};

Summary summarize(std::span<const TurnRecord> turns);

nlohmann::ordered_json to_json(const Summary& summary);
// A line that says how many turns are identical, then a short table.
std::string summary_text(const Summary& summary);

// "prompt "81", turn 2 differs at position 5: 7 without, 8 with speculation"; nothing where it does not.
std::optional<std::string> difference_text(const TurnRecord& turn);

}  // namespace espalier
