// What replays came to, as lines for a terminal. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trace/replay.h"

namespace espalier {

// Of a dump: the answer and the error that it is about, on a line.
std::string dump_line(const FailureDump& dump);
// What its round came to this time, and whether the failure was reproduced.
std::string replay_text(const FailureDump& dump, const DumpReplay& replay);

// Of a turn: that its rounds are identical, or where they differ. index: from 1, in the order of the file.
std::string replayed_turn_line(std::int64_t index, const TracedTurn& turn,
                               const std::optional<TurnDifference>& difference);

}  // namespace espalier
