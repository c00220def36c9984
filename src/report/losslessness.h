// The first line of a report: how many of how many turns are the same with and without speculation. Everything else is
// a failure, told with the turn, the position and the dump.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "report/report_source.h"

namespace espalier {

struct Losslessness {
  std::int64_t compared = 0;
  std::int64_t identical = 0;
  std::int64_t alone = 0;                  // turns without a baseline to compare with
  std::int64_t failed = 0;                 // turns that could not be answered
  std::vector<std::string> failures = {};  // a line each, for people

  bool holds() const { return identical == compared && failures.empty(); }
};

Losslessness losslessness_of(std::span<const ReportSource> sources);

// "240 of 240 turns are identical with and without speculation."
std::string losslessness_text(const Losslessness& losslessness);
nlohmann::ordered_json to_json(const Losslessness& losslessness);

}  // namespace espalier
