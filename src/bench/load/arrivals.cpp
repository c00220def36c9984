#include "bench/load/arrivals.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace espalier {

std::vector<double> arrival_times(const ArrivalPlan& plan) {
  check(plan.rate > 0, "arrivals at a rate of {}", plan.rate);
  const std::int64_t most = plan.seconds > 0 ? kMostArrivals : std::min(plan.requests, kMostArrivals);
  std::vector<double> times;
  double time = 0;
  for (std::int64_t i = 0; i < most; ++i) {
    time -= std::log1p(-uniform(plan.seed, static_cast<std::uint64_t>(i))) / plan.rate;
    if (plan.seconds > 0 && time >= plan.seconds) break;
    times.push_back(time);
  }
  return times;
}

}  // namespace espalier
