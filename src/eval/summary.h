// The figures of a run, from its turns alone: what summary.json and the last lines on the screen say. A pure function.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/turn_record.h"

namespace espalier {

// With speculation against without, on the turns that have both.
struct BaselineComparison {
  std::int64_t turns = 0;
  std::int64_t identical = 0;
  std::optional<std::string> difference = {};  // the first: which turn, where, and both tokens
  TurnSeconds seconds = {};                    // of the baseline
  double tokens_per_second = 0;                // likewise
  double decode_tokens_per_second = 0;
  double speed_up = 0;         // the mean over turns of: seconds of the whole turn without, by those with
  double decode_speed_up = 0;  // the same from the first token on, over turns that have more than one
};

struct Summary {
  std::int64_t turns = 0;
  std::int64_t tokens = 0;
  std::int64_t rounds = 0;   // verify steps
  std::int64_t drafted = 0;  // tokens that were drafted and accepted
  // A token that the teacher gave by itself comes with each round: tau = accept_L + 1. The first token of an answer is
  // the prompt's and in none of them.
  double accept_length = 0;
  double tau = 0;
  std::vector<std::int64_t> reached = {};  // by depth, from 1: guesses judged
  std::vector<double> accept_pos = {};     // the share of them that was accepted
  TurnSeconds seconds = {};
  RoundTimes stages = {};
  double tokens_per_second = 0;         // all tokens over all seconds
  double decode_tokens_per_second = 0;  // without first tokens and prefill
  std::optional<BaselineComparison> compared = {};
};

Summary summarize(std::span<const TurnRecord> turns);

nlohmann::ordered_json to_json(const Summary& summary);
// A line that says how many turns are identical, then a short table.
std::string summary_text(const Summary& summary);

}  // namespace espalier
