#include "bench/load/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace espalier {
namespace {

TEST(Arrivals, AreAscendingAndTheSameForTheSameSeed) {
  const ArrivalPlan plan{.rate = 3, .requests = 200, .seed = 5};
  const auto times = arrival_times(plan);
  EXPECT_EQ(times.size(), 200u);
  EXPECT_TRUE(std::ranges::is_sorted(times));
  EXPECT_GE(times.front(), 0);
  EXPECT_EQ(times, arrival_times(plan));
  EXPECT_NE(times, arrival_times({.rate = 3, .requests = 200, .seed = 6}));
}

// The gaps of a Poisson process have the mean 1 / rate and as large a deviation. For n gaps the mean is off by
// 1 / (rate sqrt(n)) at one deviation; five are allowed.
TEST(Arrivals, GapsHaveTheMeanAndTheDeviationOfAPoissonProcess) {
  constexpr std::int64_t n = 20'000;
  const auto times = arrival_times({.rate = 4, .requests = n, .seed = 1});
  double sum = 0, squares = 0, before = 0;
  for (const double time : times) {
    const double gap = time - std::exchange(before, time);
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / n, deviation = std::sqrt(squares / n - mean * mean);
  EXPECT_NEAR(mean, 0.25, 5 * 0.25 / std::sqrt(n));
  EXPECT_NEAR(deviation, 0.25, 10 * 0.25 / std::sqrt(n));
}

TEST(Arrivals, WithATimeAllOfThemLieInIt) {
  const auto times = arrival_times({.rate = 50, .requests = 1, .seconds = 2, .seed = 9});
  EXPECT_GT(times.size(), 50u);
  EXPECT_LT(times.back(), 2);
}

TEST(Arrivals, AreNeverMoreThanCanBeMeant) {
  EXPECT_EQ(arrival_times({.rate = 1e4, .seconds = 1e6}).size(), static_cast<std::size_t>(kMostArrivals));
}

}  // namespace
}  // namespace espalier
