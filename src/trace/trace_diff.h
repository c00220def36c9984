// Two traces of the same turns, compared: what differs first, and how much it matters.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "trace/trace_file.h"

namespace espalier {

// From nothing to everything: what is the least harmless thing that differs.
enum class DifferenceKind { none, times, trees, tokens };
std::string_view name(DifferenceKind kind);

struct TraceDifference {
  DifferenceKind kind = DifferenceKind::none;
  // The first place where something of that kind differs.
  std::int64_t index = 0;                  // of the turn in the files, from 1
  std::optional<std::int64_t> round = {};  // nothing: the turn as a whole
  std::string what = {};                   // one line: which field, and both values
};

// Tokens differ also where one has turns that the other lacks. Times: seconds and estimates.
TraceDifference compare_turns(const TracedTurn& left, const TracedTurn& right);
struct TraceComparison {
  TraceDifference difference = {};
  std::int64_t turns = 0;         // that both have
  std::int64_t equal_tokens = 0;  // of those
};
TraceComparison compare_traces(TraceReader& left, TraceReader& right);
nlohmann::ordered_json to_json(const TraceComparison& comparison);
std::string comparison_text(const TraceComparison& comparison);

}  // namespace espalier
