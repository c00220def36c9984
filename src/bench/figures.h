// What a benchmark measures and how it counts: figures with one sample per repeat, median and quartiles.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace espalier {

// Half of the samples lie between the quartiles.
struct Spread {
  double lower = 0;
  double median = 0;
  double upper = 0;
};
// Quantiles between two samples are interpolated. Requires at least one sample.
Spread spread_of(std::span<const double> samples);

// One thing that is timed. rows and context are 0 where they do not apply.
struct Figure {
  std::string name = {};  // "step", "prefill", ...
  std::int64_t rows = 0;
  std::int64_t context = 0;
  std::function<double()> sample = {};  // seconds
  std::vector<double> samples = {};     // one per repeat

  Spread spread() const { return spread_of(samples); }
};

// The figure of that name; nullptr when there is none.
const Figure* find_figure(std::span<const Figure> figures, std::string_view name, std::int64_t rows,
                          std::int64_t context);

// Several calls in a row, of which the median counts: a sample that a short interruption does not spoil. `once` returns
// the seconds of one call; the first call only warms up.
double sample_calls(const std::function<double()>& once);

// Wall time of a call, in seconds.
double seconds_of(const std::function<void()>& body);

}  // namespace espalier
