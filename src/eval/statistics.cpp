#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/quantile.h"
#include "base/random.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

double sum_of(std::span<const double> samples) {
  return std::accumulate(samples.begin(), samples.end(), 0.0);
}

// `statistic(draws)` of many resamples, each a list of indices below `count`; the middle of what came out.
template <typename Statistic>
Interval bootstrap(std::size_t count, const BootstrapOptions& options, const Statistic& statistic) {
  check(count > 0, "the interval of no samples");
  check(options.resamples > 0 && options.confidence > 0 && options.confidence < 1, "bootstrap: {} resamples, {}",
        options.resamples, options.confidence);
  std::vector<std::size_t> draws(count);
  std::vector<double> found;
  std::uint64_t position = 0;
  for (std::int64_t i = 0; i < options.resamples; ++i) {
    for (std::size_t& draw : draws)
      draw =
          std::min(static_cast<std::size_t>(uniform(options.seed, position++) * static_cast<double>(count)), count - 1);
    found.push_back(statistic(draws));
  }
  std::ranges::sort(found);
  const double tail = (1 - options.confidence) / 2;
  return {quantile(found, tail), quantile(found, 1 - tail)};
}

}  // namespace

double mean(std::span<const double> samples) {
  check(!samples.empty(), "the mean of no samples");
  return sum_of(samples) / static_cast<double>(samples.size());
}

Interval mean_interval(std::span<const double> samples, const BootstrapOptions& options) {
  return bootstrap(samples.size(), options, [&](const std::vector<std::size_t>& draws) {
    double sum = 0;
    for (std::size_t draw : draws) sum += samples[draw];
    return sum / static_cast<double>(draws.size());
  });
}

Interval ratio_interval(std::span<const double> numerators, std::span<const double> denominators,
                        const BootstrapOptions& options) {
  check(numerators.size() == denominators.size(), "ratio_interval: {} over {}", numerators.size(), denominators.size());
  return bootstrap(numerators.size(), options, [&](const std::vector<std::size_t>& draws) {
    double above = 0, below = 0;
    for (std::size_t draw : draws) {
      above += numerators[draw];
      below += denominators[draw];
    }
    return below == 0 ? 0 : above / below;
  });
}

Distribution distribution_of(std::span<const double> samples, const BootstrapOptions& options) {
  if (samples.empty()) return {};
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  return {.count = static_cast<std::int64_t>(samples.size()),
          .mean = mean(samples),
          .p50 = quantile(sorted, 0.5),
          .p90 = quantile(sorted, 0.9),
          .p99 = quantile(sorted, 0.99),
          .interval = mean_interval(samples, options)};
}

Json to_json(const Interval& interval) {
  return Json::array({interval.low, interval.high});
}

Json to_json(const Distribution& distribution) {
  return {{"count", distribution.count}, {"mean", distribution.mean}, {"interval", to_json(distribution.interval)},
          {"p50", distribution.p50},     {"p90", distribution.p90},   {"p99", distribution.p99}};
}

}  // namespace espalier
