// Turns for property tests: they hold together as those of a run do, and the same seed gives the same turn (library
// espalier_trace_testing).
#pragma once

#include <cstdint>

#include "trace/traced_turn.h"

namespace espalier {

TracedTurn random_turn(std::uint64_t seed);
// Written as a trace and read again.
TracedTurn through_a_file(const TracedTurn& turn);

}  // namespace espalier
