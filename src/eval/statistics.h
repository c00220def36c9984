// What samples say: their mean, their quantiles, and how far the mean of others like them may lie. Pure functions: the
// same numbers in the same order give the same result on every machine.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

namespace espalier {

struct Interval {
  double low = 0;
  double high = 0;

  bool operator==(const Interval&) const = default;
};

struct BootstrapOptions {
  double confidence = 0.95;
  std::int64_t resamples = 2000;
  std::uint64_t seed = 0;
};

// Requires at least one sample.
double mean(std::span<const double> samples);

// The percentile bootstrap of the mean: samples are drawn again with replacement, `resamples` times, and the interval
// holds the middle `confidence` of the means. Requires at least one sample.
Interval mean_interval(std::span<const double> samples, const BootstrapOptions& options = {});

// The same for sum(numerators) / sum(denominators), pairs being drawn: tokens over verify steps of turns, for one. A
// draw whose denominators sum to 0 counts as 0. Requires as many of the one as of the other, at least one.
Interval ratio_interval(std::span<const double> numerators, std::span<const double> denominators,
                        const BootstrapOptions& options = {});

// The figures that tables show.
struct Distribution {
  std::int64_t count = 0;  // 0: all others are 0 too
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  Interval interval = {};  // of the mean

  bool operator==(const Distribution&) const = default;
};
Distribution distribution_of(std::span<const double> samples, const BootstrapOptions& options = {});

// {"count", "mean", "interval": [low, high], "p50", "p90", "p99"}
nlohmann::ordered_json to_json(const Distribution& distribution);
nlohmann::ordered_json to_json(const Interval& interval);

}  // namespace espalier
