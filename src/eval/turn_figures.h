// What a single turn says in figures, by the definitions of docs/eval.md. Pure functions; a figure that a turn does not
// have is nothing, not 0.
#pragma once

#include <cstdint>
#include <optional>

#include "eval/turn_record.h"

namespace espalier {

// Of an answer, with speculation or without.
struct SpeedFigures {
  std::optional<double> tokens_per_second = {};  // prefill included
  std::optional<double> tpot = {};               // seconds per token after the first; nothing with a single token
  double ttft = 0;                               // seconds until the first token
};
SpeedFigures speed_of(const TurnSeconds& seconds, std::size_t tokens);
SpeedFigures speed_of(const TurnRecord& turn);
SpeedFigures speed_of(const BaselineTurn& turn);

// Seconds without speculation by seconds with it, of the whole turn and from the first token on.
std::optional<double> speed_up(const TurnRecord& turn);
std::optional<double> decode_speed_up(const TurnRecord& turn);

// Drafted tokens that were accepted, in all rounds together.
std::int64_t accepted_of(const TurnRecord& turn);
// Per round, and that plus one; nothing where there was no round.
std::optional<double> accept_length_of(const TurnRecord& turn);
std::optional<double> tau_of(const TurnRecord& turn);

}  // namespace espalier
