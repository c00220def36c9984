// turns.csv: a line for each turn, for spreadsheets and data frames (docs/eval.md). Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "eval/turn_record.h"

namespace espalier {

// A headline and a line a turn; what a turn does not have is an empty field. Numbers are written so that reading them
// gives the same bits.
std::string turns_csv(std::span<const TurnRecord> turns);

// A field of a line of comma-separated values, in quotes where it must be (RFC 4180).
std::string csv_field(std::string_view text);

}  // namespace espalier
