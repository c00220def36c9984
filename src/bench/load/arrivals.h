// When requests arrive that do not wait for each other: a Poisson process. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace espalier {

struct ArrivalPlan {
  double rate = 1;            // requests a second, on average
  std::int64_t requests = 0;  // so many, or
  double seconds = 0;         // as many as come in so long, where this is not 0
  std::uint64_t seed = 0;
};

// Seconds, ascending; the first gap is drawn as all others are. Never more than kMostArrivals.
inline constexpr std::int64_t kMostArrivals = 100'000;
std::vector<double> arrival_times(const ArrivalPlan& plan);

}  // namespace espalier
