#include "base/quantile.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace espalier {

double quantile(std::span<const double> sorted, double share) {
  check(!sorted.empty() && share >= 0 && share <= 1, "quantile {} of {} samples", share, sorted.size());
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(at));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - std::floor(at)) * (sorted[above] - sorted[below]);
}

}  // namespace espalier
