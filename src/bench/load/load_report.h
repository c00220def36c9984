// What the load benchmark measured, as tables for people, as JSON and as charts. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/load/load_benchmark.h"
#include "report/chart.h"

namespace espalier {

// No line is longer than 100 columns.
std::string load_text(const LoadResult& result);
nlohmann::ordered_json load_json(const LoadResult& result);
// Those that have something to show.
std::vector<Chart> load_charts(const LoadResult& result);

}  // namespace espalier
