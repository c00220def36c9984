// What the load benchmark measured, as charts.
#pragma once

#include <vector>

#include "bench/load/load_benchmark.h"
#include "report/chart.h"

namespace espalier {

// Over the loads: speed, first tokens, gaps; or, where long prompts arrived, the users' silences. Those that have
// something to show.
std::vector<Chart> load_charts(const LoadResult& result);

}  // namespace espalier
