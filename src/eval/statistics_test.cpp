#include "eval/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "base/quantile.h"

namespace espalier {
namespace {

// tests/data/statistics.json: numpy and scipy on random samples.
const nlohmann::json& golden() {
  static const nlohmann::json read =
      nlohmann::json::parse(read_text_file(std::filesystem::path(ESPALIER_TEST_DATA) / "statistics.json"));
  return read;
}

std::vector<double> numbers(const nlohmann::json& list) {
  return list.get<std::vector<double>>();
}

std::vector<double> sorted(std::vector<double> samples) {
  std::ranges::sort(samples);
  return samples;
}

BootstrapOptions options_of(const nlohmann::json& interval) {
  return {.confidence = interval.at("confidence"), .resamples = golden().at("resamples")};
}

// Five deviations of the difference between two independent bootstraps, of which the golden one is an average.
void expect_within_resampling_error(const Interval& ours, const nlohmann::json& golden) {
  const auto ends = numbers(golden.at("ends")), deviations = numbers(golden.at("deviations"));
  EXPECT_NEAR(ours.low, ends[0], 5 * deviations[0]);
  EXPECT_NEAR(ours.high, ends[1], 5 * deviations[1]);
}

TEST(Statistics, MeansAndQuantilesAreThoseOfNumpy) {
  for (const nlohmann::json& example : golden().at("means")) {
    SCOPED_TRACE(example.at("name"));
    const auto samples = numbers(example.at("samples"));
    EXPECT_NEAR(mean(samples), example.at("mean"), 1e-14 * std::abs(example.at("mean").get<double>()));
    for (const nlohmann::json& pair : example.at("quantiles"))
      EXPECT_NEAR(quantile(sorted(samples), pair[0]), pair[1], 1e-14 * std::abs(pair[1].get<double>())) << pair[0];
  }
}

TEST(Statistics, TheIntervalOfAMeanIsThatOfScipyWithinTheResamplingError) {
  for (const nlohmann::json& example : golden().at("means")) {
    SCOPED_TRACE(example.at("name"));
    const nlohmann::json& interval = example.at("interval");
    expect_within_resampling_error(mean_interval(numbers(example.at("samples")), options_of(interval)), interval);
  }
}

TEST(Statistics, TheIntervalOfARatioDrawsPairs) {
  for (const nlohmann::json& example : golden().at("ratios")) {
    SCOPED_TRACE(example.at("name"));
    const nlohmann::json& interval = example.at("interval");
    expect_within_resampling_error(
        ratio_interval(numbers(example.at("numerators")), numbers(example.at("denominators")), options_of(interval)),
        interval);
  }
}

TEST(Statistics, TheSameSamplesGiveTheSameIntervalAndAnotherSeedAnother) {
  const std::vector<double> samples = {1, 2, 3, 5, 8, 13, 21};
  EXPECT_EQ(mean_interval(samples), mean_interval(samples));
  EXPECT_NE(mean_interval(samples), mean_interval(samples, {.seed = 1}));
  // On every machine: these figures are part of what a report says.
  EXPECT_EQ(mean_interval(samples, {.resamples = 8}), (Interval{3.1071428571428572, 8.9678571428571416}));
}

TEST(Statistics, ADistributionHasTheFiguresOfATable) {
  const Distribution found = distribution_of(std::vector<double>{4, 1, 3, 2});
  EXPECT_EQ(found.count, 4);
  EXPECT_EQ(found.mean, 2.5);
  EXPECT_EQ(found.p50, 2.5);
  EXPECT_DOUBLE_EQ(found.p90, 3.7);
  EXPECT_DOUBLE_EQ(found.p99, 3.97);
  EXPECT_LT(found.interval.low, 2.5);
  EXPECT_GT(found.interval.high, 2.5);
  EXPECT_EQ(to_json(found).at("interval").size(), 2u);
}

TEST(Statistics, OneSampleIsItsOwnIntervalAndNoneHasFiguresOfZero) {
  EXPECT_EQ(distribution_of(std::vector<double>{3}),
            (Distribution{.count = 1, .mean = 3, .p50 = 3, .p90 = 3, .p99 = 3, .interval = {3, 3}}));
  EXPECT_EQ(distribution_of({}), Distribution{});
  EXPECT_THROW(mean({}), std::logic_error);
  EXPECT_THROW(mean_interval({}), std::logic_error);
  EXPECT_EQ(ratio_interval(std::vector<double>{1}, std::vector<double>{0}), (Interval{0, 0}));
}

}  // namespace
}  // namespace espalier
