#include "decode/step_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace espalier {
namespace {

const StepTimes kTimes{
    .rows = {1, 2, 4, 8}, .contexts = {100, 300}, .seconds = {1.0, 1.2, 1.6, 3.2, 2.0, 2.4, 3.2, 6.4}};

std::vector<double> filled(const StepCosts& costs, std::int64_t context, std::size_t rows) {
  std::vector<double> times(rows);
  costs.fill(context, times);
  return times;
}

TEST(StepTimes, AreUsableOnlyAsAWholeTable) {
  EXPECT_TRUE(kTimes.usable());
  EXPECT_FALSE(StepTimes().usable());
  const auto damaged = [](auto damage) {
    StepTimes times = kTimes;
    damage(times);
    return times.usable();
  };
  EXPECT_FALSE(damaged([](StepTimes& t) { t.seconds.pop_back(); }));
  EXPECT_FALSE(damaged([](StepTimes& t) { t.seconds[3] = 0; }));
  EXPECT_FALSE(damaged([](StepTimes& t) { t.seconds[3] = std::nan(""); }));
  EXPECT_FALSE(damaged([](StepTimes& t) { t.rows = {1, 2, 2, 8}; }));
  EXPECT_FALSE(damaged([](StepTimes& t) { t.rows = {2, 3, 4, 8}; }));
  EXPECT_FALSE(damaged([](StepTimes& t) { t.contexts = {300, 100}; }));
  EXPECT_FALSE(damaged([](StepTimes& t) { t.contexts = {-1, 100}; }));
  EXPECT_THROW(StepCosts(StepTimes(), {}), std::logic_error);
}

TEST(StepCosts, AreTheMeasuredTimesWhereThereAreSome) {
  const std::vector<double> at_100 = filled(StepCosts(kTimes, {}), 100, 8);
  EXPECT_DOUBLE_EQ(at_100[0], 1.0);
  EXPECT_DOUBLE_EQ(at_100[3], 1.6);
  EXPECT_DOUBLE_EQ(at_100[7], 3.2);
  EXPECT_DOUBLE_EQ(filled(StepCosts(kTimes, {}), 300, 8)[7], 6.4);
}

TEST(StepCosts, AreStraightLinesBetweenAndBeyond) {
  const StepCosts costs(kTimes, {});
  EXPECT_DOUBLE_EQ(filled(costs, 100, 8)[2], 1.4) << "3 rows, between 2 and 4";
  EXPECT_DOUBLE_EQ(filled(costs, 200, 1)[0], 1.5) << "between the contexts";
  EXPECT_DOUBLE_EQ(filled(costs, 500, 1)[0], 3.0) << "along the last slope";
  EXPECT_DOUBLE_EQ(filled(costs, 0, 1)[0], 1.0) << "no shorter than measured";
  EXPECT_DOUBLE_EQ(filled(costs, 100, 16)[15], 6.4) << "16 rows: twice 8";
}

TEST(StepCosts, NeverFallWithMoreRowsOrALongerText) {
  StepTimes noisy = kTimes;
  noisy.seconds = {1.0, 0.9, 1.6, 1.5, 0.8, 2.4, 3.2, 3.0};
  const StepCosts costs(noisy, {});
  for (std::int64_t context : {0, 100, 150, 400}) {
    const std::vector<double> times = filled(costs, context, 12);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end())) << context;
    const std::vector<double> longer = filled(costs, context + 50, 12);
    for (std::size_t i = 0; i < times.size(); ++i) EXPECT_GE(longer[i], times[i]);
  }
}

TEST(StepCosts, OnADeviceWithBucketsAreThoseOfTheNextBucket) {
  const std::vector<std::int64_t> buckets = {1, 4, 8};
  const std::vector<double> times = filled(StepCosts(kTimes, buckets), 100, 8);
  EXPECT_DOUBLE_EQ(times[0], 1.0);
  EXPECT_DOUBLE_EQ(times[1], 1.6);
  EXPECT_DOUBLE_EQ(times[3], 1.6);
  EXPECT_DOUBLE_EQ(times[4], 3.2);
}

TEST(StepCosts, OfSomeRowsDoNotDependOnHowManyAreAskedFor) {
  for (const std::vector<std::int64_t>& buckets : {std::vector<std::int64_t>{}, {1, 3, 5, 6, 9}}) {
    const StepCosts costs(kTimes, buckets);
    const std::vector<double> all = filled(costs, 150, 20);
    for (std::size_t rows = 1; rows < all.size(); ++rows) EXPECT_EQ(filled(costs, 150, rows).back(), all[rows - 1]);
    EXPECT_DOUBLE_EQ(all[11], 12 * all[9] / 10) << "beyond the last bucket any number is launched as it is";
  }
}

TEST(StepCosts, FollowAMachineThatIsSlowerThanMeasured) {
  StepCosts costs(kTimes, {});
  for (int i = 0; i < 200; ++i) costs.observe(1, 100, 3.0);
  const std::vector<double> times = filled(costs, 100, 8);
  EXPECT_NEAR(times[0], 3.0, 0.05);
  EXPECT_NEAR(times[7], 9.6, 0.2) << "steps of other rows are believed to be slower too";
  for (int i = 0; i < 200; ++i) costs.observe(8, 100, 3.2);
  EXPECT_NEAR(filled(costs, 100, 8)[7], 3.7, 0.5) << "until they are seen themselves";
}

TEST(StepCosts, AreNotPulledFarByOneStepThatWasDelayed) {
  StepCosts costs(kTimes, {});
  for (int i = 0; i < 50; ++i) costs.observe(1, 100, 1.0);
  costs.observe(1, 100, 1000);
  EXPECT_LT(filled(costs, 100, 1)[0], 1.1);
  costs.observe(1, 100, 0);
  costs.observe(1, 100, -1);
  costs.observe(1, 100, std::nan(""));
  EXPECT_LT(filled(costs, 100, 1)[0], 1.1) << "times that are none say nothing";
}

}  // namespace
}  // namespace espalier
