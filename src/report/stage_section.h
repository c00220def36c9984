// Where time and attention go: the stages of rounds (EAGLE-Pangu, arXiv 2603.08088, Figure 5) and the distances a
// drafter looks back (Figure 7). Pure functions of figures as experiments write them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "report/report_section.h"

namespace espalier {

// Of each run, by its label: a list as StageTimes::to_json() gives it, or buckets as those of AttentionDistances.
using NamedLists = std::vector<std::pair<std::string, nlohmann::ordered_json>>;

void add_stages(const NamedLists& runs, ReportSection& section);
void add_distances(const NamedLists& runs, ReportSection& section);

}  // namespace espalier
