// For tests of the scheduler: what steps cost.
#pragma once

#include <vector>

namespace espalier {

// t(n) = 1 + slope * (n - 1), in stairs of `bucket` rows.
inline std::vector<double> stair_seconds(double slope, int bucket, int rows) {
  std::vector<double> seconds;
  for (int n = 0; n < rows; ++n) seconds.push_back(1 + slope * (n / bucket * bucket));
  return seconds;
}

}  // namespace espalier
