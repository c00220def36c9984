// Quantiles of samples. Pure.
#pragma once

#include <span>

namespace espalier {

// Of samples in ascending order; between two of them it is interpolated, as numpy's method "linear" does. `share` from
// 0 to 1. Requires at least one sample.
double quantile(std::span<const double> sorted, double share);

}  // namespace espalier
