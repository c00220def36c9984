// turns.csv: a line for each turn, for spreadsheets and data frames (docs/eval.md).
#pragma once

#include <span>
#include <string>

#include "eval/turn_record.h"

namespace espalier {

// A headline and a line a turn; what a turn does not have is an empty field. Numbers are written so that reading them
// gives the same bits.
std::string turns_csv(std::span<const TurnRecord> turns);

}  // namespace espalier
