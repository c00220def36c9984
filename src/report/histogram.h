// How samples are spread, as a chart: the share of them in each of some ranges of equal width, the same for all series.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/chart.h"

namespace espalier {

using NamedSamples = std::pair<std::string, std::vector<double>>;

// Series without samples are left out; where all have the same samples one stands for all of them. Titles and the form
// are set here, the id and the axis' title by the caller.
Chart histogram_of(std::string title, ChartAxis x, const std::vector<NamedSamples>& series);

}  // namespace espalier
